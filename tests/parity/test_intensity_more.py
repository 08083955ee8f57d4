"""The intensity transforms beyond nnU-Net's default: the same values in, the same image out."""

from __future__ import annotations

import pytest
import torch
from batchgeneratorsv2.transforms.intensity.brightness import BrightnessAdditiveTransform
from batchgeneratorsv2.transforms.intensity.inversion import InvertImageTransform
from batchgeneratorsv2.transforms.intensity.random_clip import CutOffOutliersTransform
from batchgeneratorsv2.transforms.noise.rician import RicianNoiseTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform

from nnunet_gpuaug import Batch
from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.sampling import row_streams
from nnunet_gpuaug.transforms import RicianNoise

from .data import FORMS, label_map, unit_image
from .lift_more import check

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
synchronized = pytest.mark.parametrize("synchronize", [False, True], ids=["own-values", "shared-value"])


def check_image(real, form, device, **options):
    return check(real, unit_image(*form), None, device, **options)


@forms
@synchronized
@pytest.mark.parametrize("p", [0.6, 1])
def test_brightness_additive(form, synchronize, p, device):
    check_image(BrightnessAdditiveTransform(-0.2, 0.5, synchronize, p), form, device)


@forms
@pytest.mark.parametrize("synchronize", [0, 1, 0.5])
def test_inversion(form, synchronize, device):
    check_image(InvertImageTransform(0.7, synchronize, 0.6), form, device)


@forms
@synchronized
@pytest.mark.parametrize("retain_std", [0, 1, 0.5])
def test_cut_off_outliers(form, synchronize, retain_std, device):
    check_image(CutOffOutliersTransform((0, 20), (75, 100), synchronize, 0.7, retain_std), form, device)


@pytest.mark.parametrize("lower, upper", [(0.2, 99.8), (0, 100), (50, 50), (60, 40)], ids=str)
def test_cut_off_at_fixed_percentiles(lower, upper, device):
    """Up to one value that is left, and percentiles the wrong way round."""
    # a constant has no standard deviation to give back: what is left of it is the rounding of its mean
    retain_std = float(lower < upper)
    check_image(CutOffOutliersTransform(lower, upper, p_retain_std=retain_std), FORMS["3d"], device)


@forms
@pytest.mark.parametrize("sigma", [(0, 0.1), (0.5, 2), (0, 0)], ids=str)
def test_rician_noise(form, sigma, device):
    """All channels of a row share the statistics, as they do in the original."""
    check_image(RicianNoiseTransform(sigma), form, device)


@pytest.mark.parametrize(
    "real",
    [
        BrightnessAdditiveTransform(0, 0.5, False),
        InvertImageTransform(1),
        CutOffOutliersTransform(5, 95),
        RicianNoiseTransform(),
    ],
    ids=lambda t: type(t).__name__,
)
def test_a_closed_gate_leaves_the_row_alone(real, device):
    form = (6, 2, 9, 11, 7)
    drawn = check(RandomTransform(real, 0.5), unit_image(*form), label_map((6, 1, 9, 11, 7), [0, 1]), device)
    assert 0 < sum(values is None for values in drawn[0]) < 6


@pytest.mark.parametrize("value", [0.0, 2.5])
@pytest.mark.parametrize("real", [InvertImageTransform(1), CutOffOutliersTransform(5, 95), RicianNoiseTransform(0.0)])
def test_constant_images(real, value, device):
    if type(real) is RicianNoiseTransform:
        real.noise_variance = (0, 0)
    check(real, torch.full((2, 2, 5, 6, 7), value), None, device)


def test_rician_noise_is_independent_in_rows_and_channels(device):
    """Far above the minimum the noise is x + n1, but for a small correction; the same draw gives the same bits."""
    noise = RicianNoise(noise_variance=1.0)
    shape = Shape(3, 0, (20, 21, 22))
    params = noise.draw(row_streams(3, 4), shape)
    batch = Batch(100 * unit_image(1, 1, *shape.spatial).expand(4, 3, -1, -1, -1).to(device))
    noisy = noise.apply(batch, params).image
    assert torch.equal(noisy, noise.apply(batch, params).image)
    fields = (noisy - batch.image).flatten(0, 1).flatten(1).cpu()
    correlation = torch.corrcoef(fields)
    assert (correlation - torch.eye(12)).abs().max() < 5 / fields.shape[1] ** 0.5
    assert (fields.std(1) - 1).abs().max() < 5 / (2 * fields.shape[1]) ** 0.5
