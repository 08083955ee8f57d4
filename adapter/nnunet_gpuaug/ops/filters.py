"""Filters on one plane, a float tensor (*S) of rank 2 or 3. Each returns a new tensor; none makes the host wait."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from kornia.filters import get_gaussian_kernel1d
from torch import Tensor
from torch.nn.functional import interpolate, pad

_WINDOW_ELEMENTS = 2**26  # the median's windows are made for this many values at a time
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
        x = _correlate(_reflect(x, axis, size // 2), taps, axis)
    return x


def _correlate(padded: Tensor, taps: Sequence[float], axis: int) -> Tensor:
    length = padded.shape[axis] - len(taps) + 1
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


def sharpen(x: Tensor, strength: float, clamp: bool) -> Tensor:
    """x + strength · (2 · rank · x − the neighbours along each axis), the border voxel repeated; clamped to the old
    range if `clamp`."""
    laplace = x * (2 * x.ndim)
    for axis, length in enumerate(x.shape):
        padded = torch.cat([x.narrow(axis, 0, 1), x, x.narrow(axis, length - 1, 1)], dim=axis)
        laplace.sub_(padded.narrow(axis, 0, length)).sub_(padded.narrow(axis, 2, length))
    out = laplace.mul_(strength).add_(x)
    return out.clamp_(*torch.aminmax(x)) if clamp else out


def median(x: Tensor, size: int) -> Tensor:
    """The value of rank size^rank // 2 in a cube of side `size`, borders mirrored with the border voxel repeated.

    An even cube reaches size // 2 voxels back and size // 2 − 1 ahead, as `scipy.ndimage.median_filter`'s does.
    """
    padded = x
    for axis in range(x.ndim):
        padded = _mirrored(padded, axis, size // 2, size - 1 - size // 2)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    count = size**x.ndim
    # all windows of some slices at a time
    step = max(1, _WINDOW_ELEMENTS // (count * x[0].numel()))
    for start in range(0, len(x), step):
        length = min(step, len(x) - start)
        windows = padded[start : start + length + size - 1]
        for axis in range(x.ndim):
            windows = windows.unfold(axis, size, 1)
        out[start : start + length] = windows.reshape(length, *x.shape[1:], count).kthvalue(count // 2 + 1).values
    return out


def gaussian_filter(x: Tensor, sigma: float) -> Tensor:
    """`scipy.ndimage.gaussian_filter`: 4 sigma to each side, borders mirrored with the border voxel repeated."""
    radius = int(4 * sigma + 0.5)
    taps = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)] if radius else [1.0]
    taps = [tap / sum(taps) for tap in taps]
    for axis in range(x.ndim):
        x = _correlate(_mirrored(x, axis, radius, radius), taps, axis)
    return x


def _mirrored(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Pad by reflection with the border voxel repeated, as often as needed."""
    while before or after:
        length = x.shape[axis]
        left, right = min(before, length), min(after, length)
        x = torch.cat([x.narrow(axis, 0, left).flip(axis), x, x.narrow(axis, length - right, right).flip(axis)], axis)
        before, after = before - left, after - right
    return x
