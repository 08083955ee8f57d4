"""Resampling of one row: image (C, *S) or segmentation (K, *S), spatial rank 2 or 3.

The segmentation has to agree with batchgeneratorsv2 in every voxel, so coordinates and scores are computed with its
float32 operations in its order. One rounding apart, and voxels at the edge of a tie fall to another label.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

_SCORE = 1000.0  # batchgeneratorsv2 scores a label by 1000 × its interpolated indicator, rounded to float16


def affine_matrix(angles: Sequence[float], scales: Sequence[float]) -> np.ndarray:
    """Rz · Ry · Rx · diag(scales) on (d, h, w) voxel offsets, output to input: a scale above 1 makes objects smaller.

    In 2D, R(angles[-1]) · diag(scales). Angles in radians.
    """
    cos, sin = np.cos(angles), np.sin(angles)
    if len(scales) == 2:
        return np.array([[cos[-1], -sin[-1]], [sin[-1], cos[-1]]]) @ np.diag(scales)
    rx = np.array([[1, 0, 0], [0, cos[0], -sin[0]], [0, sin[0], cos[0]]])
    ry = np.array([[cos[1], 0, sin[1]], [0, 1, 0], [-sin[1], 0, cos[1]]])
    rz = np.array([[cos[2], -sin[2], 0], [sin[2], cos[2], 0], [0, 0, 1]])
    return rz @ ry @ rx @ np.diag(scales)


def sampling_coordinates(matrix: np.ndarray, patch: Sequence[int], size: Sequence[int], like: Tensor) -> list[Tensor]:
    """Where each output voxel is read, in `grid_sample`'s normalised units (align_corners=False).

    Args:
        matrix: output to input offsets in voxels, about the centres of patch and input.
        patch, size: output and input size.
        like: gives the device.

    Returns:
        One float32 tensor (*patch) for each spatial axis.
    """
    rank = len(patch)
    axes = [
        (torch.arange(n, dtype=torch.float32, device=like.device) + (1 - n) / 2).view(
            [-1 if axis == i else 1 for i in range(rank)]
        )
        for axis, n in enumerate(patch)
    ]
    out = []
    for weights, n in zip(torch.from_numpy(matrix).float().tolist(), size, strict=True):
        acc = axes[0] * weights[0]
        for axis, weight in zip(axes[1:], weights[1:], strict=True):
            acc = acc + axis * weight
        # a tensor as divisor: CUDA multiplies by the reciprocal of a number, which rounds differently
        out.append(acc / torch.full((), n / 2, device=like.device))
    return out


def reaches_outside(matrix: np.ndarray, patch: Sequence[int], size: Sequence[int]) -> bool:
    """Whether some voxel of the patch is interpolated with a voxel beyond the border.

    The coordinates grow along each axis of the patch, so the corners hold the extremes: this needs no grid.
    """
    corners = np.array(list(itertools.product(*[((1 - n) / 2, (n - 1) / 2) for n in patch])), dtype=np.float32)
    a = matrix.astype(np.float32)
    acc = corners[:, :1] * a[:, 0]
    for axis in range(1, len(patch)):
        acc = acc + corners[:, axis : axis + 1] * a[:, axis]
    grid = acc / (np.array(size, dtype=np.float32) / 2)
    bound = min(1 - 1 / n for n in size)
    return not (-float(grid.min()) <= bound and float(grid.max()) <= bound)


def warp_image(
    image: Tensor, coordinates: Sequence[Tensor], mode: str = "bilinear", padding: str = "zeros", fill: float = 0.0
) -> Tensor:
    """Sample image (C, *S) at `coordinates`; linear (`bilinear`) or `nearest`. Returns (C, *patch).

    padding: `zeros`, `border`, `reflection` as in `grid_sample`, or `constant`: `fill` outside.
    """
    grid = torch.stack(tuple(reversed(coordinates)), dim=-1)[None].to(image.dtype)
    source = image - fill if padding == "constant" else image
    out = grid_sample(
        source[None], grid, mode=mode, padding_mode="zeros" if padding == "constant" else padding, align_corners=False
    )[0]
    return out + fill if padding == "constant" else out


def warp_labels(
    seg: Tensor,
    coordinates: Sequence[Tensor],
    outside: float,
    counts_outside: bool,
    mode: str = "bilinear",
    tiebreak: str = "nearest",
) -> Tensor:
    """Sample labels (K, *S) at `coordinates`: each voxel gets the label with the largest interpolated share.

    The share of a label is the sum of the linear weights of those of the 8 (2D: 4) neighbours that carry it, so the
    cost does not depend on the number of labels, and no label can appear that no neighbour has. Beyond the border
    every voxel has the label `outside`. Ties, after rounding of 1000 × share to float16, go to the nearest
    neighbour's label if it is among the tied ones, else to the lowest; `tiebreak` `lowest` or `highest` skips the
    nearest. `mode` `nearest` takes the nearest neighbour's label everywhere.

    Args:
        counts_outside: some coordinate reaches beyond the border (`reaches_outside`).

    Returns:
        (K, *patch), of seg's dtype.
    """
    patch = coordinates[0].shape
    flat = [c.reshape(-1) for c in coordinates]
    count = flat[0].numel()
    out = seg.new_empty((len(seg), count))
    # some forty temporaries: on the CPU they should stay in the cache, on a GPU each should fill the device
    step = 2**16 if seg.device.type == "cpu" else 2**22
    for start in range(0, count, step):
        part = slice(start, start + step)
        out[:, part] = _warp_labels(seg, [c[part] for c in flat], outside, counts_outside, mode, tiebreak)
    return out.view(len(seg), *patch)


def _warp_labels(
    seg: Tensor, coordinates: Sequence[Tensor], outside: float, counts_outside: bool, mode: str, tiebreak: str
) -> Tensor:
    size = seg.shape[1:]
    position = [((c + 1) * n - 1) / 2 for c, n in zip(coordinates, size, strict=True)]
    nearest, _ = _gather(seg, [p.round() for p in position], outside)
    if mode == "nearest":
        return nearest
    low = [p.floor() for p in position]
    labels, weights, inside = [], [], []
    for corner in itertools.product((0, 1), repeat=len(size)):
        at = [lo + step for lo, step in zip(low, corner, strict=True)]
        found, valid = _gather(seg, at, outside)
        labels.append(found)
        inside.append(valid)
        # grid_sample multiplies the weights from the last axis to the first
        sides = [(p - lo) if step else (lo + 1 - p) for p, lo, step in zip(position, low, corner, strict=True)]
        weight = sides[-1]
        for side in reversed(sides[:-1]):
            weight = weight * side
        weights.append(weight * _SCORE)

    def score(label: Tensor) -> Tensor:
        total = torch.zeros_like(weights[0]).expand(label.shape)
        for found, valid, weight in zip(labels, inside, weights, strict=True):
            total = total + torch.where((found == label) & valid, weight, 0.0)
        if counts_outside:  # the share of `outside` is what the others leave, as it has the rest of the plane
            rest = torch.zeros_like(weights[0]).expand(label.shape)
            for found, valid, weight in zip(labels, inside, weights, strict=True):
                rest = rest - torch.where((found != outside) & valid, weight, 0.0)
            total = torch.where(label == outside, rest + _SCORE, total)
        return total.half()

    best, winner = score(labels[0]), labels[0]
    for label in labels[1:]:
        other = score(label)
        tied = label > winner if tiebreak == "highest" else label < winner
        better = (other > best) | ((other == best) & tied)
        best, winner = torch.where(better, other, best), torch.where(better, label, winner)
    return torch.where(score(nearest) == best, nearest, winner) if tiebreak == "nearest" else winner


def _gather(seg: Tensor, at: Sequence[Tensor], outside: float) -> tuple[Tensor, Tensor]:
    """Labels (K, N) at whole-numbered positions, `outside` beyond the border; and where (N,) it is inside."""
    index, valid = None, None
    for p, n in zip(at, seg.shape[1:], strict=True):
        ok = (p >= 0) & (p <= n - 1)
        i = p.clamp(0, n - 1).long()
        index = i if index is None else index * n + i
        valid = ok if valid is None else valid & ok
    return torch.where(valid, seg.flatten(1)[:, index], outside).to(seg.dtype), valid


def center_crop(x: Tensor, patch: Sequence[int], padding: str = "constant", fill: float = 0.0) -> Tensor:
    """The central `patch` of x (..., *S), which starts at S // 2 − patch // 2; a view if nothing is padded.

    padding: `constant` (with `fill`), `reflect` or `replicate`, where the patch is larger than x.
    """
    rank = len(patch)
    starts = [n // 2 - p // 2 for n, p in zip(x.shape[-rank:], patch, strict=True)]
    for axis, (start, p) in enumerate(zip(starts, patch, strict=True), start=x.ndim - rank):
        first = max(start, 0)
        x = x.narrow(axis, first, min(start + p, x.shape[axis]) - first)
    before = [max(-start, 0) for start in starts]
    after = [p - n - b for p, n, b in zip(patch, x.shape[-rank:], before, strict=True)]
    if not any(before) and not any(after):
        return x
    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return pad(x, sides, mode=padding, **({"value": fill} if padding == "constant" else {}))
