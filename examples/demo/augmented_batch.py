"""Save a picture of batches that the pipeline augmented, as nnU-Net's own training would get them.

Needs `nnUNet_preprocessed` and a planned, preprocessed dataset; `run.py` calls it so:

    python examples/demo/augmented_batch.py Dataset152_DeformedMNI152 nnUNetDemoPlans augmented.png
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import torch
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug import Pipeline

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

LABEL_COLOURS = {1: "#35b5ff", 2: "#ffb000"}


def build_trainer(dataset: str, plans_name: str, configuration: str, device: torch.device) -> nnUNetTrainer:
    """A stock trainer of the dataset, not initialized: it is only asked for its settings and transforms."""
    folder = Path(os.environ["nnUNet_preprocessed"]) / dataset
    plans = json.loads((folder / f"{plans_name}.json").read_text())
    plans["continue_training"] = False  # nnU-Net's own entry point adds this key as well
    description = json.loads((folder / "dataset.json").read_text())
    return nnUNetTrainer(plans, configuration, 0, description, device)


def load_batch(trainer: nnUNetTrainer, batch_size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What nnU-Net's loader hands to the augmentation: image (B, C, *S) and segmentation (B, 1, *S) on the device."""
    np.random.seed(seed)  # nnU-Net's loader picks cases and places with NumPy's global generator
    _, _, initial_patch_size, _ = trainer.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
    folder = trainer.preprocessed_dataset_folder
    loader = nnUNetDataLoader(
        infer_dataset_class(folder)(folder),
        batch_size,
        initial_patch_size,
        trainer.configuration_manager.patch_size,
        trainer.label_manager,
        oversample_foreground_percent=trainer.oversample_foreground_percent,
    )
    batch = loader.generate_train_batch()
    image, segmentation = (torch.as_tensor(batch[key]).to(trainer.device) for key in ("data", "target"))
    return image, segmentation


def _show(axes, image: torch.Tensor, segmentation: torch.Tensor) -> None:
    """The middle slice of one sample, channel 0, with the outline of each label."""
    picture = image[0, image.shape[1] // 2].float().cpu().numpy()
    labels = segmentation[0, segmentation.shape[1] // 2].cpu().numpy()
    axes.imshow(picture, cmap="gray", vmin=-2, vmax=2, origin="lower", interpolation="nearest")
    for label, colour in LABEL_COLOURS.items():
        if (labels == label).any():
            axes.contour(labels == label, levels=[0.5], colors=[colour], linewidths=0.9)
    axes.set_xticks([])
    axes.set_yticks([])


def _frame(axes, outer: torch.Size, inner: torch.Size) -> None:
    """Mark the patch of size `inner` in the middle of `outer`: what a sample without rotation and scaling keeps."""
    (height, width), (y, x) = inner[-2:], ((o - i) // 2 for o, i in zip(outer[-2:], inner[-2:], strict=True))
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), width, height, fill=False, color="white", ls="--", lw=1.2))


def save_picture(path: Path, pipeline: Pipeline, image: torch.Tensor, segmentation: torch.Tensor, times: int) -> None:
    """One row a sample: the loader's patch, then the results of `times` calls of the pipeline on the whole batch."""
    figure, grid = pyplot.subplots(
        len(image), times + 1, figsize=(2.3 * (times + 1), 2.35 * len(image) + 0.8), squeeze=False, layout="constrained"
    )
    results = [pipeline(image=image, segmentation=segmentation) for _ in range(times)]
    for column, out in enumerate(results, start=1):
        target = out["segmentation"]
        finest = target[0] if isinstance(target, list) else target  # deep supervision: finest first
        for row in range(len(image)):
            _show(grid[row, column], out["image"][row], finest[row])
        grid[0, column].set_title(f"augmented, call {column}", fontsize=10)
    for row in range(len(image)):
        _show(grid[row, 0], image[row], segmentation[row])
        _frame(grid[row, 0], image.shape, results[0]["image"].shape)
        grid[row, 0].set_ylabel(f"sample {row}", fontsize=10)
    grid[0, 0].set_title("from the loader", fontsize=10)
    figure.suptitle(
        "Batches augmented on the device (middle slice; outlines: blue grey matter, orange white matter;\n"
        "dashed: the patch that is cut out of a sample that is neither rotated nor scaled)",
        fontsize=11,
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="name of the dataset's folder")
    parser.add_argument("plans", help="name of the plans")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("--configuration", default="3d_fullres")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--times", type=int, default=5, help="how often the batch is augmented")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["nnUNet_results"] = scratch  # a trainer makes its results folder when it is built; not wanted here
        trainer = build_trainer(options.dataset, options.plans, options.configuration, torch.device(options.device))
        image, segmentation = load_batch(trainer, options.samples, options.seed)
        pipeline = Pipeline.from_nnunet(trainer, seed=options.seed)
        print(pipeline)
        save_picture(options.picture, pipeline, image, segmentation, options.times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
