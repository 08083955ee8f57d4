"""The pipelines of nnU-Net's DA5 trainers, as they build them, step by step and at the end."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import OneOfTransform, RandomTransform
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation import nnUNetTrainerDA5 as da5

from nnunet_gpuaug.nnunet.mapping import map_transforms
from nnunet_gpuaug.transforms import Rot90, TransposeAxes

from .lift_more import check
from .measure import TOLERANCE
from .test_pipeline import HALVES_3D, HALVES_DUMMY, NARROW, WIDE, Setting

TRAINERS = {
    "DA5": da5.nnUNetTrainerDA5,
    "DA5ord0": da5.nnUNetTrainerDA5ord0,
    "DA5Segord0": da5.nnUNetTrainerDA5Segord0,
}
trainers = pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)

# axes of equal length in some, so that they are turned and permuted; no axis below 6, where the original fails
SETTINGS = {
    "3d": Setting((2, 1, 19, 20, 18), (12, 12, 12), NARROW, HALVES_3D, (0, 1, 2), False, (1, 2), {}),
    "3d-4ch": Setting((2, 4, 18, 17, 21), (12, 10, 12), NARROW, HALVES_3D, (0, 1, 2), False, (1, 2, 3), {}),
    "3d-unequal": Setting((1, 1, 19, 22, 21), (15, 18, 13), NARROW, None, (0, 2), False, (1,), {}),
    "2d": Setting((5, 1, 53, 48), (36, 36), WIDE, [[1.0, 1.0], [0.5, 0.5]], (0, 1), False, (1, 2), {}),
    "2d-4ch": Setting((2, 4, 45, 50), (33, 41), WIDE, [[1.0, 1.0], [0.5, 0.5]], (0, 1), False, (1, 2, 3), {}),
    "dummy-2d": Setting((2, 1, 6, 40, 37), (6, 28, 28), WIDE, HALVES_DUMMY, (0, 1, 2), True, (1, 2), {}),
    "dummy-2d-4ch": Setting((5, 4, 7, 31, 29), (7, 23, 24), WIDE, HALVES_DUMMY, (1, 2), True, (1, 2, 3), {}),
    "mask": Setting(
        (2, 4, 19, 18, 17),
        (12, 12, 11),
        NARROW,
        HALVES_3D,
        (0, 1, 2),
        False,
        (1, 2),
        {"use_mask_for_norm": [True, False, False, True]},
    ),
    "cascade-regions": Setting(
        (5, 2, 20, 21, 19),
        (14, 14, 14),
        NARROW,
        HALVES_3D,
        (0, 1, 2),
        False,
        (1, 2, 3, 4),
        {
            "is_cascaded": True,
            "foreground_labels": [1, 2, 3],
            "regions": [(1, 2, 3), (2, 3), 3],
            "ignore_label": 4,
        },
    ),
}
# On CUDA the warp rounds differently, by up to 7e-5; gamma, contrast, sharpening multiply what reaches them. Each step
# alone is held to the usual tolerance there, too, by its own tests.
TOLERANCE_OF_A_SEQUENCE = {"cpu": TOLERANCE, "cuda": 5e-3}
settings = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def training(trainer: Any, setting: Setting, wide: bool) -> Any:
    """The real pipeline; `wide` to take and to leave out each step more evenly than nnU-Net does."""
    real = trainer.get_training_transforms(
        setting.patch, setting.rotation, setting.scales, setting.mirror_axes, setting.dummy_2d, **setting.options
    )
    for step in real.transforms if wide else ():
        for inner in step.list_of_transforms if type(step) is OneOfTransform else [step]:
            if type(inner) is RandomTransform:
                inner.apply_probability = 0.6
        if type(step) is SpatialTransform:
            step.p_rotation = step.p_scaling = 0.5
    return real


@settings
@trainers
@pytest.mark.parametrize("seed", range(2))
def test_training(trainer, setting, seed, device):
    real = training(trainer, setting, wide=True)
    tolerance = TOLERANCE_OF_A_SEQUENCE[device]
    check(real, *setting.data(seed), device, seed=seed, tolerance=tolerance, measured_as="DA5: ")


@settings
@pytest.mark.parametrize("seed", range(2))
def test_training_with_nnunets_probabilities(setting, seed, device):
    real = training(da5.nnUNetTrainerDA5, setting, wide=False)
    tolerance = TOLERANCE_OF_A_SEQUENCE[device]
    check(real, *setting.data(seed), device, seed=100 + seed, tolerance=tolerance, measured_as="DA5: ")


def test_every_step_is_taken_and_left_out():
    """In what `test_training` draws with its seeds."""
    taken = defaultdict(set)
    for setting, seed in itertools.product(SETTINGS.values(), range(2)):
        real = training(da5.nnUNetTrainerDA5, setting, wide=True)
        drawn = check(real, *setting.data(seed), "cpu", seed=seed, measured_as="DA5: ")
        for values, step in zip(drawn, real.transforms, strict=True):
            if type(step) is RandomTransform:
                taken[type(step.transform).__name__].update(v is not None for v in values)
            if type(step) is OneOfTransform:
                name = type(step.list_of_transforms[0].transform).__name__
                taken[f"one of {name} …"].update((v["choice"], v["chosen"] is not None) for v in values)
    branches = set(itertools.product(range(2), (False, True)))
    for name, seen in taken.items():
        assert seen == (branches if name.startswith("one of") else {True, False}), name
    assert len(taken) == 14


@pytest.mark.parametrize(
    "name, axes", [("3d", {0, 1, 2}), ("3d-4ch", {0, 2}), ("3d-unequal", None), ("dummy-2d", {1, 2})]
)
def test_axes_of_equal_length_are_turned_and_permuted(name, axes):
    steps = training(da5.nnUNetTrainerDA5, SETTINGS[name], wide=False).transforms
    moves = [t for t in map_transforms(ComposeTransforms(steps)) if type(t) in (Rot90, TransposeAxes)]
    assert [set(t.spec.allowed_axes) for t in moves] == ([axes, axes] if axes else [])
