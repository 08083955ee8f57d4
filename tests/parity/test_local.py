"""Augmentations of a part of the image: the same place and values in, the same weights and the same image out."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.local.brightness_gradient import BrightnessGradientAdditiveTransform
from batchgeneratorsv2.transforms.local.local_contrast import LocalContrastTransform
from batchgeneratorsv2.transforms.local.local_gamma import LocalGammaTransform
from batchgeneratorsv2.transforms.local.local_smoothing import LocalSmoothingTransform
from batchgeneratorsv2.transforms.local.local_transform import LocalTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation import nnUNetTrainerDA5 as da5
from scipy import ndimage

from nnunet_gpuaug.ops.filters import gaussian_filter
from nnunet_gpuaug.ops.intensity import bump

from .data import FORMS, label_map, unit_image
from .lift_more import check
from .measure import compare_images

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
shared = pytest.mark.parametrize("shared", [False, True], ids=["own-places", "shared-place"])
SCALES = {"range": (2, 8), "fixed": 5.0, "DA5": da5._brightnessadditive_localgamma_transform_scale}
scales = pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
REALS = {
    "gradient": partial(BrightnessGradientAdditiveTransform, max_strength=(-5, 5), mean_centered=False),
    "centred gradient": partial(BrightnessGradientAdditiveTransform, max_strength=(-5, 5), mean_centered=True),
    "DA5's gradient": partial(
        BrightnessGradientAdditiveTransform,
        max_strength=da5._brightness_gradient_additive_max_strength,
        mean_centered=False,
    ),
    "gamma": partial(LocalGammaTransform, gamma=(0.3, 3)),
    "DA5's gamma": partial(LocalGammaTransform, gamma=da5._local_gamma_gamma),
    "contrast": partial(LocalContrastTransform, new_contrast=(0.3, 3)),
    "smoothing": partial(LocalSmoothingTransform, smoothing_strength=(0.5, 1), kernel_size=(0, 1.5)),
}
each = pytest.mark.parametrize("make", REALS.values(), ids=REALS)


@forms
@shared
@scales
@each
def test_transforms(form, shared, scale, make, device):
    real = make(scale=scale, loc=(-0.5, 1.5), same_for_all_channels=shared, p_per_channel=0.7)
    check(real, unit_image(*form), None, device)


@each
@pytest.mark.parametrize("loc, scale", [((-1, 2), (0.3, 1)), (-3, 1.0), (0.5, 1e4)], ids=["narrow", "far", "wide"])
def test_weights_that_underflow(make, loc, scale, device):
    """A narrow Gaussian far outside weighs nothing; of a wide one only rounding is left, on both sides the same."""
    real = make(scale=scale, loc=loc, same_for_all_channels=False)
    check(real, unit_image(4, 2, 19, 14, 12), None, device)


@each
def test_constant_images(make, device):
    image = torch.full((2, 2, 9, 8, 7), 3.0)
    check(make(scale=(2, 8), loc=(0, 1)), image, None, device)


@each
def test_a_closed_gate_leaves_the_row_alone(make, device):
    form = (6, 2, 9, 11, 7)
    real = RandomTransform(make(scale=(2, 4)), 0.5)
    drawn = check(real, unit_image(*form), label_map((6, 1, 9, 11, 7), [0, 1]), device)
    assert 0 < sum(values is None for values in drawn[0]) < 6


@pytest.mark.parametrize("size", [(9, 14), (13, 8, 11), (1, 9, 8), (64, 64, 64)], ids=str)
@pytest.mark.parametrize("loc", [-1, -0.5, 0, 0.4, 1, 2])
@pytest.mark.parametrize("share", [0.17, 0.5, 1, 3])
def test_the_weights(size, loc, share, device):
    """Against the real kernel, in [0, 1], with centre and width drawn from none."""
    locs = [loc + 0.1 * axis for axis in range(len(size))]
    widths = [share * n for n in size]
    real = LocalTransform(scale=lambda size, axis: widths[axis], loc=lambda size, axis: locs[axis])
    expected = torch.from_numpy(real._generate_kernel(size))
    weights = bump(torch.empty(size, device=device), [c * n for c, n in zip(locs, size, strict=True)], widths)
    compare_images("weights of the local transforms", weights, expected, 1e-5)


@pytest.mark.parametrize("sigma", [0, 0.1, 0.12, 0.5, 1.0, 1.5, 3.0, 10.0])
@pytest.mark.parametrize("size", [(9, 14), (13, 8, 11), (2, 1, 5)], ids=str)
def test_the_smoothing(sigma, size, device):
    """SciPy's, also where the filter is wider than the image."""
    image = unit_image(*size)
    expected = torch.from_numpy(ndimage.gaussian_filter(image.numpy(), sigma=sigma))
    compare_images("smoothing of LocalSmoothing", gaussian_filter(image.to(device), sigma), expected, 1e-5)


def test_of_one_voxel_weigh_nothing(device):
    """One share is its own minimum: NaN nowhere."""
    for make in REALS.values():
        check(make(scale=1.0, loc=0.5), torch.full((1, 1, 1, 1, 1), 2.0), None, device)
    assert math.isfinite(bump(torch.empty((1, 1), device=device), [0.5, 0.5], [1.0, 1.0]).item())


def test_large_values(device):
    """Raw CT values: the tolerance, relative to the standard deviation."""
    image = unit_image(2, 2, 12, 13, 11) * 1000 - 500
    for name, make in REALS.items():
        np.random.seed(0)
        check(make(scale=(3, 8)), image, None, device, tolerance=0.1, measured_as=f"{name}, std 1000: ")
