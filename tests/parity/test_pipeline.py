"""nnU-Net's own default pipelines, as its trainer builds them, step by step and at the end."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, NamedTuple

import pytest
import torch
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from .data import label_map, unit_image
from .harness import check

WIDE, NARROW = (-math.pi, math.pi), (-math.pi / 6, math.pi / 6)


class Setting(NamedTuple):
    """A configuration of nnU-Net, and a batch for it.

    Attributes:
        batch: (B, C, *initial patch).
        options: arguments of `get_training_transforms`.
    """

    batch: tuple[int, ...]
    patch: tuple[int, ...]
    rotation: tuple[float, float]
    scales: list[list[float]] | None
    mirror_axes: tuple[int, ...] | None
    dummy_2d: bool
    labels: tuple[int, ...]
    options: dict[str, Any]

    @property
    def is_cascaded(self) -> bool:
        return self.options.get("is_cascaded", False)

    def training(self) -> Any:
        return nnUNetTrainer.get_training_transforms(
            self.patch, self.rotation, self.scales, self.mirror_axes, self.dummy_2d, **self.options
        )

    def validation(self) -> Any:
        options = {k: v for k, v in self.options.items() if k != "use_mask_for_norm"}
        return nnUNetTrainer.get_validation_transforms(self.scales, **options)

    def data(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows, _, *size = self.batch
        channels = [label_map((rows, 1, *size), (-1, 0, *self.labels), seed=seed)]
        if self.is_cascaded:
            channels.append(label_map((rows, 1, *size), (-1, 0, *self.options["foreground_labels"]), seed=seed + 1))
        return unit_image(*self.batch, seed=seed), torch.cat(channels, dim=1)


HALVES_3D = [[1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]
HALVES_DUMMY = [[1.0, 1.0, 1.0], [1.0, 0.5, 0.5], [0.5, 0.25, 0.25]]
SETTINGS = {
    "3d": Setting((5, 1, 23, 26, 22), (16, 20, 14), NARROW, HALVES_3D, (0, 1, 2), False, (1, 2), {}),
    "3d-4ch": Setting((2, 4, 19, 22, 21), (15, 18, 13), NARROW, HALVES_3D, (0, 1, 2), False, (1, 2, 3, 4), {}),
    "3d-no-ds": Setting((1, 1, 19, 22, 21), (15, 18, 13), NARROW, None, (0, 2), False, (1,), {}),
    "2d": Setting((5, 1, 53, 48), (40, 36), WIDE, [[1.0, 1.0], [0.5, 0.5], [0.25, 0.25]], (0, 1), False, (1, 2), {}),
    "2d-4ch": Setting((2, 4, 45, 50), (33, 41), WIDE, [[1.0, 1.0], [0.5, 0.5]], None, False, (1, 2, 3), {}),
    "dummy-2d": Setting((2, 1, 6, 40, 37), (6, 32, 28), WIDE, HALVES_DUMMY, (0, 1, 2), True, (1, 2), {}),
    "dummy-2d-4ch": Setting((5, 4, 5, 31, 29), (5, 23, 24), WIDE, HALVES_DUMMY, (1, 2), True, (1, 2, 3), {}),
    "mask": Setting(
        (2, 4, 19, 22, 21),
        (15, 18, 13),
        NARROW,
        HALVES_3D,
        (0, 1, 2),
        False,
        (1, 2),
        {"use_mask_for_norm": [True, False, False, True]},
    ),
    "cascade": Setting(
        (5, 1, 21, 25, 20),
        (16, 20, 15),
        NARROW,
        HALVES_3D,
        (0, 1, 2),
        False,
        (1, 2),
        {"is_cascaded": True, "foreground_labels": [1, 3, 7]},
    ),
    "regions": Setting(
        (2, 1, 23, 26, 22),
        (16, 20, 14),
        NARROW,
        HALVES_3D,
        (0, 1, 2),
        False,
        (1, 2, 3, 4),
        {"regions": [(1, 2, 3), (2, 3), 3], "ignore_label": 4},
    ),
    "everything": Setting(
        (2, 2, 6, 40, 37),
        (6, 32, 28),
        WIDE,
        HALVES_DUMMY,
        (0, 1, 2),
        True,
        (1, 2, 3, 4),
        {
            "use_mask_for_norm": [False, True],
            "is_cascaded": True,
            "foreground_labels": [1, 2, 3],
            "regions": [[1, 2, 3], [2, 3], 3],
            "ignore_label": 4,
        },
    ),
}
settings = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def with_wide_gates(real):
    """The pipeline, changed to take and to leave out each step more evenly than nnU-Net does."""
    for step in real.transforms:
        if type(step) is RandomTransform:
            step.apply_probability = 0.6
        if type(step) is SpatialTransform:
            step.p_rotation = step.p_scaling = 0.5
    return real


@settings
@pytest.mark.parametrize("seed", range(3))
def test_training(setting, seed, device):
    real = with_wide_gates(setting.training())
    check(real, *setting.data(seed), device, seed=seed, measured_as="training: ")


@settings
@pytest.mark.parametrize("seed", range(2))
def test_training_with_nnunets_probabilities(setting, seed, device):
    check(setting.training(), *setting.data(seed), device, seed=100 + seed, measured_as="training: ")


@settings
def test_validation(setting, device):
    check(setting.validation(), *setting.data(0), device, tolerance=0, measured_as="validation: ")


def test_every_step_is_taken_and_left_out():
    """In what `test_training` draws with its first seed."""
    taken = defaultdict(set)
    for setting in SETTINGS.values():
        real = with_wide_gates(setting.training())
        drawn = check(real, *setting.data(0), "cpu", measured_as="training: ")
        for values, step in zip(drawn, real.transforms, strict=True):
            if type(step) is RandomTransform:
                taken[type(step.transform).__name__].update(v is not None for v in values)
            if type(step) is SpatialTransform:
                taken["SpatialTransform"].update(v["grid"] is not None for v in values)
    assert len(taken) == 9
    assert all(seen == {True, False} for seen in taken.values()), taken
