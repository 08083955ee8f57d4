"""Blur and simulated low resolution: the same values in, the same image out."""

from __future__ import annotations

import pytest
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform

from .data import FORMS, unit_image
from .harness import check

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
synchronized_axes = pytest.mark.parametrize("axes", [False, True], ids=["own-axes", "shared-axes"])
synchronized_channels = pytest.mark.parametrize("channels", [False, True], ids=["own-channels", "shared-channels"])


@forms
@synchronized_axes
@synchronized_channels
def test_blur(form, axes, channels, device):
    # stock fails if channels are synchronised and none is drawn
    real = GaussianBlurTransform((0.5, 1.5), channels, axes, p_per_channel=1 if channels else 0.6)
    check(real, unit_image(*form), None, device)


@pytest.mark.parametrize("use_fft", [False, True], ids=["convolution", "fft"])
def test_blur_with_benchmark(use_fft, device):
    """Stock times an FFT against a convolution and takes the faster one; both are within the tolerance of ours."""
    real = GaussianBlurTransform((0.5, 1.0), False, False, p_per_channel=1, benchmark=True)
    real.benchmark_use_fft = {n: {size: use_fft for size in (3, 5, 7)} for n in (21, 24, 19)}
    check(real, unit_image(2, 2, 21, 24, 19), None, device)


def test_blur_benchmarked_by_stock(device):
    real = RandomTransform(GaussianBlurTransform((0.5, 1.0), False, False, 0.5, benchmark=True), 0.7)
    check(real, unit_image(4, 2, 14, 15, 13), None, device)
    assert real.transform.benchmark_use_fft, "stock has not timed anything"


@pytest.mark.parametrize("sigma", [0.3, 0.4166, 0.5, 0.58, 0.59, 0.75, 0.9, 0.92, 1.0, 1.25, 1.5, 2.9, 5.0])
def test_blur_kernel_size_steps(sigma, device):
    """Sigmas on both sides of where the kernel grows by two taps, and up to 31 of them."""
    check(GaussianBlurTransform(sigma), unit_image(1, 1, 33, 35), None, device)


@forms
@synchronized_axes
@synchronized_channels
@pytest.mark.parametrize("ignore_axes", [None, (0,), (0, 1)])
def test_low_resolution(form, axes, channels, ignore_axes, device):
    real = SimulateLowResolutionTransform((0.3, 1), channels, axes, ignore_axes, None, p_per_channel=0.7)
    check(real, unit_image(*form), None, device)


@pytest.mark.parametrize("allowed", [(1,), (0, 3), (3, 1, 2)])
def test_low_resolution_of_some_channels(allowed, device):
    real = SimulateLowResolutionTransform((0.4, 0.9), False, False, None, allowed, p_per_channel=0.8)
    check(real, unit_image(3, 4, 12, 17, 11), None, device)


def test_low_resolution_of_every_size(device):
    """Every number of voxels that an axis can go down to: the source index of each must be stock's, ties included."""
    for target in range(1, 49):
        real = SimulateLowResolutionTransform(target / 48, False, True, None)
        check(real, unit_image(1, 1, 48, 37, seed=target), None, device)
