"""Resampling of one row: image (C, *S) or segmentation (K, *S), spatial rank 2 or 3.

The segmentation has to agree with batchgeneratorsv2 in every voxel, so coordinates and scores are computed with its
float32 operations in its order. One rounding apart, and voxels at the edge of a tie fall to another label.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

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
    return _normalised(matrix, axes, size, matmul_is_fused())


def _normalised(matrix: np.ndarray, axes: Sequence[Tensor], size: Sequence[int], fused: bool) -> list[Tensor]:
    """matrix · axes / (size / 2), the sums rounded after each term; `fused` leaves the products unrounded."""
    out = []
    for weights, n in zip(torch.from_numpy(matrix).float().tolist(), size, strict=True):
        acc = axes[0] * weights[0]
        for axis, weight in zip(axes[1:], weights[1:], strict=True):
            # a product of two float32 is exact in float64
            acc = (acc.double() + axis.double() * weight).float() if fused else acc + axis * weight
        # a tensor as divisor: CUDA multiplies by the reciprocal of a number, which rounds differently
        out.append(acc / torch.full((), n / 2, device=acc.device))
    return out


@cache
def matmul_is_fused() -> bool:
    """Whether this host's BLAS multiplies and adds with one rounding. batchgeneratorsv2 computes its coordinates by a
    matrix product, whose last bit depends on the processor; to give the same labels, follow the host."""
    axes = [torch.arange(-7.5, 8).view([-1 if axis == i else 1 for i in range(3)]) for axis in range(3)]
    matrix = affine_matrix((0.1, 0.2, 0.3), (1.1, 1.2, 1.3))
    grid = torch.stack(torch.broadcast_tensors(*axes), dim=-1)
    product = torch.matmul(grid, torch.from_numpy(matrix.T).float())
    return torch.equal(product, torch.stack(_normalised(matrix, axes, (2, 2, 2), fused=True), dim=-1))


def _in_voxels(coordinate: Tensor, n: int, fused: bool) -> Tensor:
    """`grid_sample`'s normalised coordinate to voxels; `fused` leaves the product unrounded."""
    if fused:
        return ((coordinate + 1).double() * (n / 2) - 0.5).float()
    return ((coordinate + 1) * n - 1) / 2


@cache
def grid_sample_is_fused(rank: int) -> bool:
    """Whether this host's `grid_sample` multiplies and adds with one rounding, in positions and in sums: in 2D it is
    vectorised and does so where the processor can, in 3D it does not."""
    line = torch.zeros((1, 1, *[1] * (rank - 1), 63))
    line[..., 32] = 1
    x = torch.linspace(0.016, 0.0317, 64)  # positions 31.5 to 32, where subtracting 0.5 lays bare a rounded product
    grid = torch.stack([x, *[torch.zeros(64)] * (rank - 1)], dim=-1).view(1, *[1] * (rank - 1), 64, rank)
    return torch.equal(grid_sample(line, grid, align_corners=False).flatten(), _in_voxels(x, 63, fused=True) - 31)


def reaches_outside(matrix: np.ndarray, patch: Sequence[int], size: Sequence[int]) -> bool:
    """Whether some voxel of the patch is interpolated with a voxel beyond the border.

    The coordinates grow along each axis of the patch, so the corners hold the extremes: this needs no grid.
    """
    ends = [((1 - n) / 2, (n - 1) / 2) for n in patch]
    corners = torch.tensor(list(itertools.product(*ends))).unbind(dim=1)
    grid = torch.stack(_normalised(matrix, corners, size, matmul_is_fused()))
    bound = min(1 - 1 / n for n in size)
    return not grid.abs().amax().item() <= bound


def warp_image(
    image: Tensor,
    matrix: np.ndarray,
    patch: Sequence[int],
    mode: str = "bilinear",
    padding: str = "zeros",
    fill: float = 0.0,
) -> Tensor:
    """Sample image (C, *S) by `matrix`; linear (`bilinear`) or `nearest`. Returns (C, *patch).

    padding: `zeros`, `border`, `reflection` as in `grid_sample`, or `constant`: `fill` outside.
    """
    coordinates = sampling_coordinates(matrix, patch, image.shape[1:], image)
    grid = torch.stack(tuple(reversed(coordinates)), dim=-1)[None].to(image.dtype)
    source = image - fill if padding == "constant" else image
    out = grid_sample(
        source[None], grid, mode=mode, padding_mode="zeros" if padding == "constant" else padding, align_corners=False
    )[0]
    return out + fill if padding == "constant" else out


def warp_labels(
    seg: Tensor,
    matrix: np.ndarray,
    patch: Sequence[int],
    outside: float,
    mode: str = "bilinear",
    tiebreak: str = "nearest",
) -> Tensor:
    """Sample labels (K, *S) by `matrix`: each voxel gets the label with the largest interpolated share.

    The share of a label is the sum of the linear weights of those of the 8 (2D: 4) neighbours that carry it, so the
    cost does not depend on the number of labels, and no label can appear that no neighbour has. Beyond the border
    every voxel has the label `outside`. Ties, after rounding of 1000 × share to float16, go to the nearest
    neighbour's label if it is among the tied ones, else to the lowest; `tiebreak` `lowest` or `highest` skips the
    nearest. `mode` `nearest` takes the nearest neighbour's label everywhere. Returns (K, *patch), of seg's dtype.
    """
    flat = [c.reshape(-1) for c in sampling_coordinates(matrix, patch, seg.shape[1:], seg)]
    counts_outside = reaches_outside(matrix, patch, seg.shape[1:])
    count = flat[0].numel()
    out = seg.new_empty((len(seg), count))
    # the temporaries are 9 times as large: on the CPU they should stay in the cache, on a GPU each should fill it
    step = 2**13 if seg.device.type == "cpu" else 2**20
    for start in range(0, count, step):
        part = slice(start, start + step)
        out[:, part] = _warp_labels(seg, [c[part] for c in flat], outside, counts_outside, mode, tiebreak)
    return out.view(len(seg), *patch)


def _warp_labels(
    seg: Tensor, coordinates: Sequence[Tensor], outside: float, counts_outside: bool, mode: str, tiebreak: str
) -> Tensor:
    fused = grid_sample_is_fused(len(coordinates))
    position = [_in_voxels(c, n, fused) for c, n in zip(coordinates, seg.shape[1:], strict=True)]
    nearest, _ = _gather(seg, [p.round()[None] for p in position], outside)
    if mode == "nearest":
        return nearest[0]

    low = [p.floor() for p in position]
    corners = _corners([torch.stack([lo, lo + 1]) for lo in low])
    labels, inside = _gather(seg, corners, outside)
    # grid_sample multiplies the weights from the last axis to the first
    sides = _corners([torch.stack([lo + 1 - p, p - lo]) for p, lo in zip(position, low, strict=True)])
    weights = sides[-1]
    for side in reversed(sides[:-1]):
        weights = weights * side
    # a product of two float32 is exact in float64, so that a sum is rounded once
    weights = torch.where(inside, (weights.double() if fused else weights) * _SCORE, 0.0)[:, None]

    # (neighbours + 1, K, N): the candidates are the neighbours' labels and, last, the nearest label. Their scores are
    # summed one neighbour after the other, because the order decides the rounding.
    candidates = torch.cat([labels, nearest])
    score = torch.zeros(candidates.shape, device=seg.device)
    for label, weight in zip(labels, weights, strict=True):
        score = (score + torch.where(candidates == label, weight, 0.0)).float()
    if counts_outside:  # the share of `outside` is what the others leave, as it has the rest of the plane
        rest = torch.zeros(labels.shape[1:], device=seg.device)
        for taken in torch.where(labels == outside, 0.0, weights):
            rest = (rest - taken).float()
        score = torch.where(candidates == outside, rest + _SCORE, score)
    score = score.half()

    labels, best = candidates[:-1], score[:-1].amax(dim=0)
    if tiebreak == "highest":
        winner = torch.where(score[:-1] == best, labels, labels.amin(dim=0)).amax(dim=0)
    else:
        winner = torch.where(score[:-1] == best, labels, labels.amax(dim=0)).amin(dim=0)
    return torch.where(score[-1] == best, nearest[0], winner) if tiebreak == "nearest" else winner


def _corners(pairs: Sequence[Tensor]) -> list[Tensor]:
    """For each axis the lower and upper value (2, N), to the values at the 2^rank corners (2^rank, N)."""
    rank, count = len(pairs), pairs[0].shape[1]
    return [
        pair.view([2 if axis == i else 1 for i in range(rank)] + [count]).expand(*[2] * rank, count).reshape(-1, count)
        for axis, pair in enumerate(pairs)
    ]


def _gather(seg: Tensor, at: Sequence[Tensor], outside: float) -> tuple[Tensor, Tensor]:
    """Labels (M, K, N) at whole-numbered positions, one (M, N) for each axis, and where (M, N) they are inside seg.
    Beyond the border the label is `outside`."""
    index, inside = None, None
    for p, n in zip(at, seg.shape[1:], strict=True):
        ok = (p >= 0) & (p <= n - 1)
        i = p.clamp(0, n - 1).long()
        index = i if index is None else index * n + i
        inside = ok if inside is None else inside & ok
    found = seg.flatten(1)[:, index].movedim(1, 0)
    return torch.where(inside[:, None], found, outside).to(seg.dtype), inside


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
