"""Ops on label tensors and binary masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad


def to_regions(labels: Tensor, regions: Sequence[Sequence[int]]) -> Tensor:
    """(B, *S) labels to (B, R, *S) bool: where the label belongs to each region."""
    out = torch.empty((labels.shape[0], len(regions), *labels.shape[1:]), dtype=torch.bool, device=labels.device)
    for index, members in enumerate(regions):
        mask = labels == members[0]
        for label in members[1:]:
            mask |= labels == label
        out[:, index] = mask
    return out


def downsample_labels(seg: Tensor, scales: Sequence[Sequence[float]]) -> list[Tensor]:
    """(B, K, *S) to round(S · scale) for each of the scales, nearest-exact; the tensor itself where all are 1."""
    # float32 is exact for labels below 2^24, and interpolate takes no int16
    values = seg.float()
    out = []
    for scale in scales:
        size = [round(n * s) for n, s in zip(seg.shape[2:], scale, strict=True)]
        unchanged = all(s == 1 for s in scale)
        out.append(seg if unchanged else interpolate(values, size, mode="nearest-exact").to(seg.dtype))
    return out


def dilate(mask: Tensor, element: Tensor) -> Tensor:
    """Binary dilation of mask (*S) by a structuring element of the same rank, False outside.

    An even side puts the centre half a voxel off, as nnU-Net does: (n − 1) // 2 voxels are padded before, the rest
    after. Counting by FFT costs the same for every radius; Kornia's morphology does not take volumes.
    """
    sides = [side for n in reversed(element.shape) for side in ((n - 1) // 2, n // 2)]
    padded = pad(mask.float(), sides)
    spectrum = torch.fft.rfftn(padded) * torch.fft.rfftn(element.float(), s=padded.shape).conj()
    counts = torch.fft.irfftn(spectrum, s=padded.shape)
    return counts[tuple(slice(n) for n in mask.shape)] > 0.5


def erode(mask: Tensor, element: Tensor) -> Tensor:
    """Binary erosion; voxels outside count as set."""
    return ~dilate(~mask, element)


def close(mask: Tensor, element: Tensor) -> Tensor:
    """Dilation, then erosion."""
    return erode(dilate(mask, element), element)


def open_(mask: Tensor, element: Tensor) -> Tensor:
    """Erosion, then dilation."""
    return dilate(erode(mask, element), element)


BINARY_OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dilation": dilate,
    "erosion": erode,
    "closing": close,
    "opening": open_,
}
