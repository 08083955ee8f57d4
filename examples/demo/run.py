"""Train nnU-Net through nnunet_gpuaug on a small dataset, predict a held-out case with stock nnU-Net, score it.

    python examples/demo/run.py [--output demo_output] [--device auto]

Everything is written below the output folder. The exit code is 0 only if the prediction is clearly better than chance.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from make_dataset import DATASET_ID, DATASET_NAME, LABELS, make_dataset
from report import chance_labellings, clearly_above, load, save_picture, score, score_table
from steps import StepError, Steps, command_path

PLANS = "nnUNetDemoPlans"
CONFIGURATION = "3d_fullres"
TRAINER = "nnUNetTrainerGPUAug"  # the name of the results folder: stock nnUNetTrainer, augmentation on the device
GPU_MEMORY_TARGET_GB = "0.12"  # makes nnU-Net plan a patch of 32 x 32 x 32 in cases of 48 x 40 x 48
HELD_OUT = "front_000"
MARGIN = 0.2  # by how much the mean Dice has to beat each kind of chance
MARKER = ".nnunet_gpuaug_demo"
WHAT_IT_SHOWS = (
    "The data are blocks of ONE brain, the MNI152 T1 template, each rotated, scaled, deformed, shaded and made noisy. "
    "Training cases come from its back half, the held-out case from its front half. A good Dice shows that the "
    "machinery works: it says nothing about how well a network does on other people's scans."
)


def prepare_output(output: Path) -> None:
    """Make the output folder, or empty the one of an earlier run. A folder that is not ours is left alone."""
    if output.exists() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise StepError(f"{output} exists and is not from this demo; choose another one with --output")
    output.mkdir(parents=True, exist_ok=True)
    (output / MARKER).touch()
    for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results", "prediction", "logs"):
        shutil.rmtree(output / name, ignore_errors=True)
        (output / name).mkdir()


def environment(output: Path) -> dict[str, str]:
    """nnU-Net's settings: folders below the output, few processes, no compilation (it would outlast the training)."""
    workers = str(min(4, os.cpu_count() or 1))
    return {
        **{name: str(output / name) for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results")},
        "nnUNet_compile": "f",
        "nnUNet_n_proc_DA": workers,
        "nnUNet_def_n_proc": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads leave the cores to others: much faster on a busy machine
        "PYTHONUNBUFFERED": "1",
    }


def run(options: argparse.Namespace, console: Console) -> bool:
    """All steps; whether the prediction is clearly better than chance."""
    start = time.monotonic()
    output: Path = options.output.resolve()
    device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise StepError(f"torch {torch.__version__} finds no CUDA device; use --device cpu")
    console.print(Panel(WHAT_IT_SHOWS, title="nnunet_gpuaug demo", subtitle=f"torch {torch.__version__} on {device}"))
    prepare_output(output)
    processes = str(min(4, os.cpu_count() or 1))
    dataset = str(DATASET_ID)
    raw = output / "nnUNet_raw" / DATASET_NAME
    pictures = {"augmented batches": output / "augmented_batches.png", "prediction": output / "prediction.png"}

    with Steps(console, output / "logs", environment(output), total=6) as steps:
        with steps.step("Cut and deform the template into an nnU-Net dataset"):
            make_dataset(output / "nnUNet_raw", n_training=options.cases, seed=options.seed)
        steps.run(
            "Plan and preprocess (nnU-Net's own command)",
            [
                *(command_path("nnUNetv2_plan_and_preprocess"), "-d", dataset, "-c", CONFIGURATION),
                *("-gpu_memory_target", GPU_MEMORY_TARGET_GB, "-overwrite_plans_name", PLANS),
                *("-npfp", processes, "-np", processes, "--verify_dataset_integrity"),
            ],
        )
        steps.run(
            "Draw a picture of augmented batches",
            [
                *(sys.executable, str(Path(__file__).with_name("augmented_batch.py"))),
                *(DATASET_NAME, PLANS, str(pictures["augmented batches"])),
                *("--configuration", CONFIGURATION, "--device", device, "--seed", str(options.seed)),
            ],
        )
        steps.run(
            f"Train with the augmentation on {device}, then validate",
            [
                *(command_path("nnunet_gpuaug_train"), dataset, CONFIGURATION, "0", "-p", PLANS, "-device", device),
                *("--epochs", str(options.epochs), "--iterations", str(options.iterations)),
                *("--seed", str(options.seed)),
            ],
            show=r"^Epoch \d|iterations/s|_loss |Pseudo dice|^predicting|Mean Validation Dice",
        )
        steps.run(
            "Predict the held-out case (nnU-Net's own command)",
            [
                *(command_path("nnUNetv2_predict"), "-i", str(raw / "imagesTs"), "-o", str(output / "prediction")),
                *("-d", dataset, "-c", CONFIGURATION, "-f", "0", "-p", PLANS, "-tr", TRAINER, "-device", device),
                *("-npp", "1", "-nps", "1"),
            ],
        )
        with steps.step("Score the prediction"):
            image = load(raw / "imagesTs" / f"{HELD_OUT}_0000.nii.gz")
            truth = load(raw / "labelsTs" / f"{HELD_OUT}.nii.gz")
            prediction = load(output / "prediction" / f"{HELD_OUT}.nii.gz")
            names = {value: name for name, value in LABELS.items()}
            labels = [value for value in LABELS.values() if value > 0]
            model = score("nnU-Net, trained here", prediction, truth, labels)
            chances = [
                score(name, labelling, truth, labels)
                for name, labelling in chance_labellings(image, truth, options.seed).items()
            ]
            save_picture(pictures["prediction"], image, truth, prediction, model, names)

    console.print(score_table(model, chances, names))
    for name, path in pictures.items():
        console.print(f"Picture of the {name}: {path}", soft_wrap=True, highlight=False)
    console.print(f"Everything else: {output} (logs, data, checkpoint)", soft_wrap=True, highlight=False)
    console.print(f"Time: {time.monotonic() - start:.0f} s")
    return clearly_above(model, chances, MARGIN)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--output", type=Path, default=Path("demo_output"), help="folder for everything (default: demo_output)")
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="auto: a GPU if torch finds one")
    add("--cases", type=int, default=10, help="number of training cases (default: %(default)s)")
    add("--epochs", type=int, default=8, help="(default: %(default)s)")
    add("--iterations", type=int, default=12, help="training iterations per epoch (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the dataset, the augmentation and the chance (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """0: clearly above chance; 1: not; 2: a step failed."""
    console = Console()
    try:
        good = run(parse(arguments), console)
    except (StepError, ValueError, OSError) as error:
        console.print(f"[bold red]The demo failed:[/bold red] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    if not good:
        console.print(f"[bold red]The prediction is not clearly above chance[/bold red] (mean Dice, margin {MARGIN}).")
        return 1
    console.print(f"[bold green]The prediction is clearly above chance[/bold green] (mean Dice, by at least {MARGIN}).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
