"""Rotation, scaling, cropping and mirroring of the image, and of segmentations by the nearest neighbour."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from batchgeneratorsv2.transforms.utils.pseudo2d import Convert2DTo3DTransform, Convert3DTo2DTransform

from .data import FORMS, label_map, unit_image
from .harness import check
from .objects import fixed_spatial, random_spatial

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
MIRROR_AXES = [(0,), (1,), (0, 1), (1, 0), (2,), (0, 2), (0, 1, 2), ()]
PADDING = ["zeros", "constant", "border", "reflection"]


def sample(form, labels=(-1, 0, 1, 2)):
    return unit_image(*form), label_map((form[0], 2, *form[2:]), labels)


@forms
@pytest.mark.parametrize("less", [0, 1, 4], ids=lambda n: f"{n}-less")
def test_warp(form, less, device):
    """Final patch as large as the initial one, an odd and an even number of voxels smaller."""
    drawn = check(random_spatial([n - less for n in form[2:]]), *sample(form), device, seed=form[0])
    assert any(values["grid"] is not None for values in drawn[0])


@pytest.mark.parametrize("patch", [(21, 24, 16), (20, 25, 31), (23, 11, 17)], ids=str)
def test_warp_to_other_proportions(patch, device):
    """Larger and smaller than the input on different axes."""
    check(random_spatial(patch), *sample((3, 2, 19, 22, 17)), device)


@forms
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", PADDING)
def test_padding_of_the_image(form, mode, padding, device):
    real = random_spatial(form[2:], mode_image=mode, padding_mode_image=padding, padding_value_image=2.5)
    check(real, *sample(form), device)


@pytest.mark.parametrize("axis, degrees", list(itertools.product(range(3), (10, 30, -20))))
def test_sense_of_rotation(axis, degrees, device):
    """One bar along each axis of an asymmetric volume, turned about each axis."""
    image = torch.zeros((1, 3, 21, 27, 24))
    image[0, 0, :, 9, 7] = image[0, 1, 14, :, 8] = image[0, 2, 6, 17, :] = 1
    seg = image.amax(1, keepdim=True).to(torch.int16)
    angles = [math.radians(degrees) if axis == i else 0.0 for i in range(3)]
    real, ours = fixed_spatial(angles, [1.3, 0.8, 1.0], image.shape[2:])
    check(real, image, seg, device, ours=ours)


@pytest.mark.parametrize("rows, channels", [(1, 1), (2, 4), (5, 1)])
def test_dummy_2d(rows, channels, device):
    steps = [Convert3DTo2DTransform(), random_spatial((18, 23)), Convert2DTo3DTransform()]
    check(steps, *sample((rows, channels, 5, 22, 27)), device, measured_as="dummy 2D: ")


# (input, patch): equal and unequal parity, smaller, larger on some axes, larger on all
CROPS = [
    ((12, 15), (12, 15)),
    ((12, 15), (11, 12)),
    ((13, 14), (10, 9)),
    ((9, 10), (14, 13)),
    ((9, 10), (10, 9)),
    ((8, 9), (11, 12)),
    ((10, 11, 12), (7, 8, 9)),
    ((10, 11, 12), (9, 10, 11)),
    ((10, 11, 9), (13, 8, 12)),
    ((7, 8, 9), (12, 13, 11)),
    ((6, 6, 7), (9, 11, 12)),
    ((1, 9, 8), (1, 6, 7)),
]


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("border_seg", ["zeros", "constant"])
@pytest.mark.parametrize("size, patch", CROPS, ids=str)
def test_crop(size, patch, padding, border_seg, device):
    """Without a rotation or a scaling, the patch is cut out or padded: not one voxel may differ."""
    real = SpatialTransform(
        patch,
        0,
        False,
        padding_mode_image=padding,
        padding_value_image=-1.5,
        border_mode_seg=border_seg,
        padding_value_seg=-1,
    )
    check(real, *sample((2, 2, *size)), device, tolerance=0, measured_as="crop: ")


@pytest.mark.parametrize(
    "form, axes",
    [(form, axes) for form in FORMS.values() for axes in MIRROR_AXES if max(axes, default=0) < len(form) - 2],
    ids=str,
)
def test_mirror(form, axes, device):
    for seed in range(4):
        check(MirrorTransform(axes), *sample(form), device, seed=seed, tolerance=0)
