"""How long a 3d_fullres training iteration takes: stock nnU-Net, this package, and loops without augmentation.

    python train_loop.py prepare FOLDER            # a synthetic CT-like dataset, preprocessed by nnU-Net
    python train_loop.py run FOLDER OUT.json --loops ours:8 stock:8 ...

A loop is KIND:WORKERS. Kinds: `stock`; `ours`, with prefetch; `inline`, ours without prefetch; `none`, workers load and
crop, the device takes the centre (no augmentation); `ready`, one ready batch again and again (the bare train step).

Each iteration ends with the loss on the host, as nnU-Net's does. Iterations before the prefilled queue first runs empty
are dropped, or the first 20 if it never does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

DATASET, CONFIGURATION = "Dataset900_Synthetic", "3d_fullres"
CASES, SIDE, LABELS = 10, 256, 28
WARMUP, EMPTY_MS = 20, 20.0


def set_paths(folder: Path) -> None:
    for name in ("raw", "preprocessed", "results"):
        path = folder / name
        path.mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{name}"] = str(path)
    os.environ["nnUNet_compile"] = "f"


def prepare(folder: Path) -> None:
    """Noise over a smooth background, and an ellipsoid of its own intensity for each label."""
    import SimpleITK as sitk

    raw = folder / "raw" / DATASET
    for name in ("imagesTr", "labelsTr"):
        (raw / name).mkdir(parents=True, exist_ok=True)
    axis = np.linspace(-1, 1, SIDE, dtype=np.float32)
    for case in range(CASES):
        rng = np.random.default_rng(case)
        seg = np.zeros((SIDE,) * 3, dtype=np.uint8)
        for label in range(1, LABELS + 1):
            center, radius = rng.uniform(-0.8, 0.8, 3), rng.uniform(0.08, 0.3, 3)
            z, y, x = (((axis - c) / r) ** 2 for c, r in zip(center, radius, strict=True))
            seg[z[:, None, None] + y[None, :, None] + x[None, None, :] < 1] = label
        image = seg * 40.0 - 200 + rng.standard_normal(seg.shape, dtype=np.float32) * 30
        for array, path in ((image, f"imagesTr/case{case:02d}_0000"), (seg, f"labelsTr/case{case:02d}")):
            sitk.WriteImage(sitk.GetImageFromArray(array), str(raw / f"{path}.nii.gz"), useCompression=False)
    labels = {"background": 0, **{f"organ{i}": i for i in range(1, LABELS + 1)}}
    description = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": CASES, "file_ending": ".nii.gz"}
    (raw / "dataset.json").write_text(json.dumps(description))
    module = "nnunetv2.experiment_planning.plan_and_preprocess_entrypoints"
    command = f"from {module} import plan_and_preprocess_entry; plan_and_preprocess_entry()"
    arguments = ["-d", "900", "-c", CONFIGURATION, "-np", "10", "-npfp", "10"]
    subprocess.run([sys.executable, "-c", command, *arguments], check=True)


def make_trainer(kind: str, workers: int):
    from nnunetv2.run.run_training import get_trainer_from_args

    from nnunet_gpuaug import Settings
    from nnunet_gpuaug.nnunet.options import TrainingOptions
    from nnunet_gpuaug.nnunet.run import Job, build_trainer

    os.environ["nnUNet_n_proc_DA"] = str(workers)
    if kind == "stock":
        return get_trainer_from_args(DATASET, CONFIGURATION, 0)
    trainer = build_trainer(Job(DATASET, CONFIGURATION, 0))
    trainer.gpuaug_configure(TrainingOptions(Settings(prefetch=kind == "ours")))
    return trainer


def without_augmentation(pipeline):
    """The same shapes and label steps, nothing drawn: the centre of the initial patch."""
    from nnunet_gpuaug import DownsampleSegForDS, Pipeline, RemoveLabel, Spatial

    spatial, scales = pipeline.transforms[0], pipeline.transforms[-1]
    return Pipeline(
        [
            Spatial(patch_size=spatial.spec.patch_size, border_mode_seg="constant", padding_value_seg=-1),
            RemoveLabel(label_value=-1, set_to=0),
            DownsampleSegForDS(ds_scales=scales.spec.ds_scales),
        ]
    )


def run_loop(kind: str, workers: int, iterations: int, seconds: float) -> dict:
    import record
    import torch

    trainer = make_trainer(kind, workers)
    trainer.initialize()
    train, val = trainer.get_dataloaders()
    if kind == "none":
        trainer._gpuaug_training.pipeline = without_augmentation(trainer._gpuaug_training.pipeline)
    trainer.set_deep_supervision_enabled(True)
    trainer.on_train_epoch_start()
    torch.cuda.reset_peak_memory_stats()
    ready = next(train) if kind == "ready" else None
    waits, steps, augments, started, first = [], [], [], time.perf_counter(), None
    while len(steps) < iterations and time.perf_counter() - started < seconds:
        start = time.perf_counter()
        batch = next(train) if ready is None else ready
        got = time.perf_counter()
        trainer.train_step(batch)
        end = time.perf_counter()
        waits.append(1000 * (got - start))
        steps.append(1000 * (end - got))
        augments.append(batch.augment_ms() if hasattr(batch, "augment_ms") and ready is None else 0.0)
        if first is None and len(waits) > WARMUP and waits[-1] > EMPTY_MS:
            first = len(waits)
    for loader in (train, val):
        loader._finish()
    del trainer, train, val, ready, batch
    gc.collect()
    keep = slice(first or WARMUP, None)
    whole = [w + s for w, s in zip(waits[keep], steps[keep], strict=True)]
    return {
        "kind": kind,
        "workers": workers,
        "queue_ran_empty_at": first,
        "next_ms": record.summary(waits[keep]),
        "step_ms": record.summary(steps[keep]),
        "iteration_ms": record.summary(whole),
        "copy_and_augment_ms": record.summary(augments[keep]),
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--loops", nargs="+", default=["ready:8", "none:8", "ours:8", "inline:8", "stock:8"])
    parser.add_argument("--iterations", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    set_paths(args.folder)
    if args.command == "prepare":
        prepare(args.folder)
        return
    import record
    import torch

    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    loops = []
    for loop in args.loops:
        kind, workers = loop.split(":")
        loops.append(run_loop(kind, int(workers), args.iterations, args.seconds))
        short = {k: round(loops[-1][k]["mean"], 2) for k in ("next_ms", "step_ms", "iteration_ms")}
        print(loop, short, loops[-1]["iteration_ms"]["n"], flush=True)
        what = "training iterations, 3d_fullres, patch 128³, batch 2, AMP, 28 labels, not compiled"
        record.write(args.out, {"what": what, "loops": loops})  # after each, so that a limit loses one loop only


if __name__ == "__main__":
    main()
