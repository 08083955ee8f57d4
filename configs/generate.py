"""Writes the presets of this folder, each from what a real nnU-Net trainer builds for an example plan.

    python configs/generate.py
"""

from pathlib import Path
from typing import NamedTuple

from nnunet_gpuaug.cli.show import describe
from nnunet_gpuaug.config import write_text
from nnunet_gpuaug.nnunet.unstarted import pipeline_of

LABELS = {"background": 0, "organ": 1, "lesion": 2}
REGIONS = {"background": 0, "whole": [1, 2], "lesion": 2, "ignore": 3}

PATCHES = {
    "2d": [512, 512],
    "3d_fullres": [128, 128, 128],
    "3d_flat": [16, 256, 256],  # flat enough for nnU-Net to augment it slice by slice
}


class Preset(NamedTuple):
    """A trainer, and what it is asked to train on."""

    trainer: str
    configuration: str
    labels: dict = LABELS


PRESETS = {
    "default_3d": Preset("nnUNetTrainer", "3d_fullres"),
    "default_2d": Preset("nnUNetTrainer", "2d"),
    "default_dummy2d": Preset("nnUNetTrainer", "3d_flat"),
    "default_cascade": Preset("nnUNetTrainer", "3d_cascade_fullres"),
    "default_regions": Preset("nnUNetTrainer", "3d_fullres", REGIONS),
    "da5_3d": Preset("nnUNetTrainerDA5", "3d_fullres"),
    "da5_2d": Preset("nnUNetTrainerDA5", "2d"),
    "da5_dummy2d": Preset("nnUNetTrainerDA5", "3d_flat"),
    "da5_cascade": Preset("nnUNetTrainerDA5", "3d_cascade_fullres"),
    "da5ord0": Preset("nnUNetTrainerDA5ord0", "3d_fullres"),
    "da5segord0": Preset("nnUNetTrainerDA5Segord0", "3d_fullres"),
    "daord0": Preset("nnUNetTrainer_DASegOrd0", "3d_fullres"),
    "noda": Preset("nnUNetTrainerNoDA", "3d_fullres"),
    "nomirroring": Preset("nnUNetTrainerNoMirroring", "3d_fullres"),
    "onlymirror01": Preset("nnUNetTrainer_onlyMirror01", "3d_fullres"),
    "nodummy2dda": Preset("nnUNetTrainer_noDummy2DDA", "3d_flat"),
}


def example_plans() -> dict:
    """As much of a plans file as the transforms depend on, for one image channel."""
    configurations = {name: _configuration(patch) for name, patch in PATCHES.items()}
    configurations["3d_lowres"] = {"inherits_from": "3d_fullres", "next_stage": "3d_cascade_fullres"}
    configurations["3d_cascade_fullres"] = {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"}
    return {
        "dataset_name": "Dataset000_Example",
        "plans_name": "nnUNetPlans",
        "label_manager": "LabelManager",
        "configurations": configurations,
    }


def example_dataset(labels: dict) -> dict:
    """A dataset.json with these labels."""
    dataset = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 1, "file_ending": ".nii.gz"}
    return dataset if labels is LABELS else {**dataset, "regions_class_order": [1, 2]}


def _configuration(patch: list[int]) -> dict:
    stages = 6
    first = [1 if size < 32 else 2 for size in patch]  # as nnU-Net plans for anisotropic patches
    strides = [[1] * len(patch), *[first] * 2, *[[2] * len(patch)] * (stages - 3)]
    return {
        "data_identifier": "nnUNetPlans_example",
        "batch_size": 2,
        "patch_size": patch,
        "use_mask_for_norm": [False],
        "architecture": {"network_class_name": "", "arch_kwargs": {"strides": strides}, "_kw_requires_import": []},
    }


def generate(preset: Preset) -> str:
    """The text of a preset, from the installed nnU-Net."""
    pipeline = pipeline_of(preset.trainer, example_plans(), example_dataset(preset.labels), preset.configuration)
    return describe(pipeline, preset.trainer, preset.configuration)


def main() -> None:
    """Write all presets."""
    for name, preset in PRESETS.items():
        write_text(Path(__file__).parent / f"{name}.yaml", generate(preset))


if __name__ == "__main__":
    main()
