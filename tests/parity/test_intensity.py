"""Intensity transforms: the same values in, the same image out."""

from __future__ import annotations

import pytest
import torch
from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
from batchgeneratorsv2.transforms.intensity.contrast import BGContrast, ContrastTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from scipy.stats import kstest

from nnunet_gpuaug import Batch, GaussianNoise
from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.ops.intensity import seeded_normal
from nnunet_gpuaug.sampling import row_streams

from .data import FORMS, label_map, unit_image
from .harness import check
from .measure import likely

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
synchronized = pytest.mark.parametrize("synchronize", [False, True], ids=["own-values", "shared-value"])


def check_image(real, form, device, **options):
    return check(real, unit_image(*form), None, device, **options)


@forms
@synchronized
def test_noise(form, synchronize, device):
    check_image(GaussianNoiseTransform((0, 0.1), p_per_channel=0.7, synchronize_channels=synchronize), form, device)


@forms
@synchronized
def test_brightness(form, synchronize, device):
    check_image(MultiplicativeBrightnessTransform(BGContrast((0.75, 1.25)), synchronize, 0.7), form, device)


@forms
@synchronized
@pytest.mark.parametrize("preserve_range", [False, True])
def test_contrast(form, synchronize, preserve_range, device):
    check_image(ContrastTransform(BGContrast((0.75, 1.25)), preserve_range, synchronize, 0.7), form, device)


@forms
@synchronized
@pytest.mark.parametrize("retain_stats", [0, 1, 0.5])
@pytest.mark.parametrize("invert", [0, 1, 0.5])
def test_gamma(form, synchronize, invert, retain_stats, device):
    check_image(GammaTransform(BGContrast((0.7, 1.5)), invert, synchronize, 0.8, retain_stats), form, device)


@pytest.mark.parametrize(
    "real",
    [
        GaussianNoiseTransform(0.1),
        MultiplicativeBrightnessTransform((0.5, 2), False),
        ContrastTransform((0.5, 2), True, False),
        GammaTransform((0.3, 3), 0.5, False, 1, 0.5),
    ],
    ids=lambda t: type(t).__name__,
)
def test_a_closed_gate_leaves_the_row_alone(real, device):
    form = (6, 2, 9, 11, 7)
    drawn = check(RandomTransform(real, 0.5), unit_image(*form), label_map((6, 1, 9, 11, 7), [0, 1]), device)
    assert 0 < sum(values is None for values in drawn[0]) < 6


@pytest.mark.parametrize("scale, shift", [(1e-3, 0), (1e3, 0), (1, 50)])
def test_other_ranges_in_float64(scale, shift, device):
    """Raw CT and MR values. In double precision, so that the tolerance means the same as for unit-std data."""
    image = (unit_image(2, 2, 9, 13, 11) * scale + shift).double()
    check(GammaTransform((0.7, 1.5), 0.5, False, 1, 0.5), image, None, device)
    check(ContrastTransform((0.75, 1.25), True, False), image, None, device)


def test_the_noise_field_is_standard_normal(device):
    field = seeded_normal(torch.empty((40, 50, 50), device=device), seed=7).cpu()
    likely("normal field, Kolmogorov-Smirnov", kstest(field.flatten().numpy(), "norm").pvalue)
    assert abs(field.mean()) < 4 / field.numel() ** 0.5
    assert abs(field.std() - 1) < 4 / (2 * field.numel()) ** 0.5


def test_the_noise_field_depends_on_the_seed_alone(device):
    like = torch.empty((9, 8, 7), device=device)
    first, other = seeded_normal(like, seed=2**61), seeded_normal(like, seed=2**61 + 1)
    assert torch.equal(first, seeded_normal(like.transpose(0, 2).contiguous().transpose(0, 2), seed=2**61))
    assert not torch.equal(first, other)


def test_noise_is_independent_in_rows_and_channels(device):
    """Of 12 fields, no two are correlated, so none equal; the same draw gives the same bits."""
    noise = GaussianNoise(noise_variance=1.0)
    shape = Shape(3, 0, (20, 21, 22))
    params = noise.draw(row_streams(3, 4), shape)
    blank = Batch(torch.zeros((4, 3, *shape.spatial), device=device))
    fields = noise.apply(blank, params).image
    assert torch.equal(fields, noise.apply(blank, params).image)
    correlation = torch.corrcoef(fields.flatten(0, 1).flatten(1).cpu())
    assert (correlation - torch.eye(12)).abs().max() < 5 / fields[0, 0].numel() ** 0.5
