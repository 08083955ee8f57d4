"""Rotations by 90 degrees, permutations of axes, and one of several: the same choice in, the same batch out."""

from __future__ import annotations

import pytest
from batchgeneratorsv2.transforms.intensity.brightness import BrightnessAdditiveTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.noise.median_filter import MedianFilterTransform
from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
from batchgeneratorsv2.transforms.spatial.rot90 import Rot90Transform
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from batchgeneratorsv2.transforms.spatial.transpose import TransposeAxesTransform
from batchgeneratorsv2.transforms.utils.random import OneOfTransform, RandomTransform

from .data import FORMS, label_map, unit_image
from .lift_more import check
from .objects import random_spatial

# (batch, the axes of equal length)
EQUAL = {
    "2d": ((1, 1, 13, 13), {0, 1}),
    "2d-4ch": ((5, 4, 12, 12), {0, 1}),
    "3d": ((2, 1, 9, 9, 9), {0, 1, 2}),
    "3d-4ch": ((2, 4, 10, 10, 10), {0, 1, 2}),
    "3d-5rows": ((5, 1, 7, 7, 7), {2, 1, 0}),
    "first and last": ((5, 2, 8, 11, 8), {0, 2}),
    "last two": ((5, 1, 6, 9, 9), {1, 2}),
}
equal = pytest.mark.parametrize("form, axes", EQUAL.values(), ids=EQUAL)


def sample(form):
    return unit_image(*form), label_map((form[0], 2, *form[2:]), (-1, 0, 1, 2), smooth=False)


@equal
@pytest.mark.parametrize("turns", [(0, 1, 2, 3), (1,), (2,), (3,), (-1, 5)], ids=str)
@pytest.mark.parametrize("combinations", [1, 3])
def test_rot90(form, axes, turns, combinations, device):
    for seed in range(3):
        check(Rot90Transform(combinations, turns, axes), *sample(form), device, seed=seed, tolerance=0)


@equal
def test_transpose(form, axes, device):
    for seed in range(4):
        check(TransposeAxesTransform(axes), *sample(form), device, seed=seed, tolerance=0)


@pytest.mark.parametrize("axes", [set(), {1}], ids=str)
def test_transpose_of_fewer_than_two_axes(axes, device):
    check(TransposeAxesTransform(axes), *sample((2, 2, 5, 6, 7)), device, tolerance=0)


@pytest.mark.parametrize("real", [Rot90Transform(1), TransposeAxesTransform({0, 1, 2})], ids=lambda t: type(t).__name__)
def test_a_closed_gate_leaves_the_row_alone(real, device):
    drawn = check(RandomTransform(real, 0.5), *sample((6, 2, 7, 7, 7)), device, tolerance=0)
    assert 0 < sum(values is None for values in drawn[0]) < 6


def test_one_after_the_other(device):
    """The rows that one moves, the next may leave alone; no step writes into the tensors of the caller."""
    steps = [
        RandomTransform(Rot90Transform(1, (0, 1, 2, 3)), 0.5),
        RandomTransform(TransposeAxesTransform({0, 1, 2}), 0.5),
        MirrorTransform((0, 1, 2)),
    ]
    for seed in range(5):
        check(steps, *sample((5, 2, 7, 7, 7)), device, seed=seed, tolerance=0, measured_as="moves: ")


CHOICES = {
    "DA5": [
        RandomTransform(MedianFilterTransform((2, 8), 0, 0.5), 0.6),
        RandomTransform(GaussianBlurTransform((0.3, 1.5), False, True, 0.5), 0.6),
    ],
    "always taken": [GammaTransform((0.7, 1.5), 0.5, False, 1, 0.5), BrightnessAdditiveTransform(0, 0.5)],
    "with a move": [
        RandomTransform(MirrorTransform((0, 1)), 0.7),
        MedianFilterTransform(3),
        GaussianBlurTransform((0.5, 1)),
    ],
    "one": [RandomTransform(MedianFilterTransform(2), 0.5)],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_one_of(form, choices, device):
    for seed in range(2):
        check(OneOfTransform(choices), *sample(form), device, seed=seed)


def test_one_of_chooses_for_each_row(device):
    drawn = check(OneOfTransform(CHOICES["with a move"]), *sample((8, 1, 9, 10)), device)
    assert {values["choice"] for values in drawn[0]} == {0, 1, 2}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("modes", [{"mode_image": "nearest"}, {}], ids=["ord0", "Segord0"])
def test_nearest(form, modes, device):
    """Image and segmentation, or the segmentation alone, by the nearest neighbour: the trainers DAOrd0, DA5ord0 and
    DA5Segord0. A nearest voxel is no average: not one may differ where the image is nearest, too."""
    real = random_spatial([max(2, n - 3) for n in form[2:]], mode_seg="nearest", **modes)
    for seed in range(3):
        check(real, *sample(form), device, seed=seed, measured_as="nearest: ", tolerance=0 if modes else 1e-4)


def test_nearest_with_the_trainers_own_options(device):
    """As DAOrd0 writes it, with the probabilities raised."""
    real = SpatialTransform(
        (11, 13, 9),
        patch_center_dist_from_border=0,
        random_crop=False,
        p_elastic_deform=0,
        p_rotation=0.8,
        rotation=(-0.5, 0.5),
        p_scaling=0.8,
        scaling=(0.7, 1.4),
        p_synchronize_scaling_across_axes=1,
        bg_style_seg_sampling=False,
        mode_image="nearest",
        mode_seg="nearest",
    )
    check(real, *sample((5, 2, 14, 15, 13)), device, measured_as="nearest: ", tolerance=0)
