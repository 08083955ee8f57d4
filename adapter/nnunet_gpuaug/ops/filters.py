"""Filters on one plane, a float tensor (*S) of rank 2 or 3. Each returns a new tensor; none makes the host wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from kornia.filters import get_gaussian_kernel1d
from torch import Tensor
from torch.nn.functional import interpolate, pad

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def gaussian_kernel_size(sigma: float) -> int:
    """The odd number nearest to 6 · sigma + 0.5: the kernel's total width, about ±3 sigma."""
    width = sigma * 6 + 0.5
    rounded = round(width)
    if rounded % 2 == 1:
        return rounded
    return rounded + 1 if width >= rounded else rounded - 1


def gaussian_blur(x: Tensor, sigmas: Sequence[float]) -> Tensor:
    """Separable Gaussian, one sigma (voxels) for each axis, with reflected borders.

    The taps are Kornia's. The sum over shifted slices replaces `kornia.filters.filter3d` and MONAI's
    `separable_filtering`, equal on the CPU, because on CUDA those convolve in TF32 and copy the taps to the device.
    """
    for axis, sigma in enumerate(sigmas):
        size = gaussian_kernel_size(sigma)
        taps = get_gaussian_kernel1d(size, sigma, dtype=torch.float32)[0].tolist()
        x = _correlate(x, taps, axis)
    return x


def _correlate(x: Tensor, taps: Sequence[float], axis: int) -> Tensor:
    length, half = x.shape[axis], len(taps) // 2
    padded = _reflect(x, axis, half)
    out = padded.narrow(axis, 0, length) * taps[0]
    for k, tap in enumerate(taps[1:], start=1):
        out.add_(padded.narrow(axis, k, length), alpha=tap)
    return out


def _reflect(x: Tensor, axis: int, width: int) -> Tensor:
    """Pad by reflection without repeating the border voxel. An axis shorter than the padding reflects repeatedly
    (an axis of one voxel repeats it), where torch and so batchgeneratorsv2 raise."""
    while width > 0:
        step = min(width, x.shape[axis] - 1)
        sides = [0, 0] * (x.ndim - 1 - axis) + [step or width] * 2 + [0, 0] * axis
        x = pad(x[None, None], sides, mode="reflect" if step else "replicate")[0, 0]
        width -= step or width
    return x


def low_resolution(x: Tensor, scales: Sequence[float]) -> Tensor:
    """Down by nearest-exact to round(size · scale) voxels (at least 1), up again by linear interpolation."""
    size = [max(1, round(n * s)) for n, s in zip(x.shape, scales, strict=True)]
    small = interpolate(x[None, None], size, mode="nearest-exact")
    return interpolate(small, x.shape, mode=_LINEAR[x.ndim])[0, 0]
