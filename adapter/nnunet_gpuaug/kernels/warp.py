"""Resampling of one row without a grid in memory: `ops.geometry.warp_image` and `warp_labels`, linear mode.

2D is 3D with a first axis of one voxel: its weights are 1 and 0, so nothing is rounded differently. The compiler may
not fuse multiplications and additions, as the labels have to agree with batchgeneratorsv2 in every voxel: it is told
where to, as the host does in its matrix product (FUSED) and in its `grid_sample` (SAMPLED).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256
# specialised, a size of 1 would be a constant of another type, and each new size could mean a new compilation
_SIZES = ["size_z", "size_y", "size_x", "patch_z", "patch_y", "patch_x", "outside"]


@triton.jit
def _axis(gz, gy, gx, mz, my, mx, size, FUSED: tl.constexpr, SAMPLED: tl.constexpr):
    """Position along one axis in voxels: lower neighbour, weight of the lower, weight of the upper, nearest."""
    acc = gz * mz
    if FUSED:
        acc = tl.fma(gy, my + tl.zeros_like(gy), acc)
        acc = tl.fma(gx, mx + tl.zeros_like(gx), acc)
    else:
        acc = acc + gy * my
        acc = acc + gx * mx
    extent = size.to(tl.float32) + tl.zeros_like(acc)
    grid = tl.div_rn(acc, extent * 0.5) + 1
    if SAMPLED:
        position = tl.fma(grid, extent * 0.5, tl.zeros_like(grid) - 0.5)
    else:
        position = (grid * extent - 1) * 0.5
    low = tl.floor(position)
    # adding and taking away 1.5 * 2^23 rounds half to even
    nearest = (position + 12582912.0) - 12582912.0
    return low, low + 1 - position, position - low, nearest


@triton.jit
def _positions(
    index, size_z, size_y, size_x, patch_z, patch_y, patch_x,
    m00, m01, m02, m10, m11, m12, m20, m21, m22, FUSED: tl.constexpr, SAMPLED: tl.constexpr,
):  # fmt: skip
    """The three axes' results of `_axis` for the output voxels `index`."""
    x = index % patch_x
    y = (index // patch_x) % patch_y
    z = index // (patch_x * patch_y)
    gz = z.to(tl.float32) + (1 - patch_z).to(tl.float32) * 0.5
    gy = y.to(tl.float32) + (1 - patch_y).to(tl.float32) * 0.5
    gx = x.to(tl.float32) + (1 - patch_x).to(tl.float32) * 0.5
    lz, wz0, wz1, nz = _axis(gz, gy, gx, m00, m01, m02, size_z, FUSED, SAMPLED)
    ly, wy0, wy1, ny = _axis(gz, gy, gx, m10, m11, m12, size_y, FUSED, SAMPLED)
    lx, wx0, wx1, nx = _axis(gz, gy, gx, m20, m21, m22, size_x, FUSED, SAMPLED)
    return lz, wz0, wz1, nz, ly, wy0, wy1, ny, lx, wx0, wx1, nx


@triton.jit
def _read(base, z, y, x, size_z, size_y, size_x, outside, valid):
    """The value at a whole-numbered position, `outside` beyond the border; and whether it is inside."""
    inside = (z >= 0) & (z < size_z) & (y >= 0) & (y < size_y) & (x >= 0) & (x < size_x) & valid
    offset = (z.to(tl.int32) * size_y + y.to(tl.int32)) * size_x + x.to(tl.int32)
    return tl.load(base + offset, mask=inside, other=outside), inside


@triton.jit(do_not_specialize=_SIZES[:6])
def _warp_image(
    image, out, fill, size_z, size_y, size_x, patch_z, patch_y, patch_x,
    m00, m01, m02, m10, m11, m12, m20, m21, m22, FUSED: tl.constexpr, SAMPLED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    count = patch_z * patch_y * patch_x
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(1)
    valid = index < count
    lz, wz0, wz1, _nz, ly, wy0, wy1, _ny, lx, wx0, wx1, _nx = _positions(
        index, size_z, size_y, size_x, patch_z, patch_y, patch_x,
        m00, m01, m02, m10, m11, m12, m20, m21, m22, FUSED, SAMPLED,
    )  # fmt: skip
    base = image + channel * (size_z * size_y * size_x)
    total = tl.zeros_like(lz)
    for corner in tl.static_range(8):
        z = lz + (corner // 4)
        y = ly + (corner // 2 % 2)
        x = lx + (corner % 2)
        value, inside = _read(base, z, y, x, size_z, size_y, size_x, fill, valid)
        weight = (wx1 if corner % 2 else wx0) * (wy1 if corner // 2 % 2 else wy0) * (wz1 if corner // 4 else wz0)
        total += tl.where(inside, (value - fill) * weight, 0.0)
    tl.store(out + channel * count + index, total + fill, mask=valid)


@triton.jit
def _add(total, weight, factor, SAMPLED: tl.constexpr):
    """total + weight * factor, the product rounded or not."""
    factor = factor + tl.zeros_like(weight)
    return tl.fma(weight, factor, total) if SAMPLED else total + weight * factor


@triton.jit
def _share(label, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS: tl.constexpr,
           SAMPLED: tl.constexpr):  # fmt: skip
    """A label's score: the weights of the neighbours that carry it, summed in grid_sample's order, as float16."""
    total = _add(tl.zeros_like(w0), w0, tl.where(l0 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w1, tl.where(l1 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w2, tl.where(l2 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w3, tl.where(l3 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w4, tl.where(l4 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w5, tl.where(l5 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w6, tl.where(l6 == label, 1000.0, 0.0), SAMPLED)
    total = _add(total, w7, tl.where(l7 == label, 1000.0, 0.0), SAMPLED)
    if COUNTS:
        total = tl.where(label == outside, rest, total)
    return total.to(tl.float16).to(tl.float32)


@triton.jit
def _better(score, label, best, winner, HIGHEST: tl.constexpr):
    """The better of two candidates; among equals the lower label, or the higher."""
    tied = label > winner if HIGHEST else label < winner
    take = (score > best) | ((score == best) & tied)
    return tl.where(take, score, best), tl.where(take, label, winner)


@triton.jit
def _weight(base, z, y, x, wz, wy, wx, size_z, size_y, size_x, outside, valid):
    label, inside = _read(base, z, y, x, size_z, size_y, size_x, outside, valid)
    return label, tl.where(inside, wx * wy * wz, 0.0)


@triton.jit(do_not_specialize=_SIZES)
def _warp_labels(
    seg, out, outside, size_z, size_y, size_x, patch_z, patch_y, patch_x,
    m00, m01, m02, m10, m11, m12, m20, m21, m22,
    FUSED: tl.constexpr, SAMPLED: tl.constexpr, COUNTS: tl.constexpr, NEAREST: tl.constexpr, HIGHEST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    count = patch_z * patch_y * patch_x
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(1)
    valid = index < count
    lz, wz0, wz1, nz, ly, wy0, wy1, ny, lx, wx0, wx1, nx = _positions(
        index, size_z, size_y, size_x, patch_z, patch_y, patch_x,
        m00, m01, m02, m10, m11, m12, m20, m21, m22, FUSED, SAMPLED,
    )  # fmt: skip
    base = seg + channel * (size_z * size_y * size_x)
    outside = outside.to(seg.dtype.element_ty)
    hz, hy, hx = lz + 1, ly + 1, lx + 1
    l0, w0 = _weight(base, lz, ly, lx, wz0, wy0, wx0, size_z, size_y, size_x, outside, valid)
    l1, w1 = _weight(base, lz, ly, hx, wz0, wy0, wx1, size_z, size_y, size_x, outside, valid)
    l2, w2 = _weight(base, lz, hy, lx, wz0, wy1, wx0, size_z, size_y, size_x, outside, valid)
    l3, w3 = _weight(base, lz, hy, hx, wz0, wy1, wx1, size_z, size_y, size_x, outside, valid)
    l4, w4 = _weight(base, hz, ly, lx, wz1, wy0, wx0, size_z, size_y, size_x, outside, valid)
    l5, w5 = _weight(base, hz, ly, hx, wz1, wy0, wx1, size_z, size_y, size_x, outside, valid)
    l6, w6 = _weight(base, hz, hy, lx, wz1, wy1, wx0, size_z, size_y, size_x, outside, valid)
    l7, w7 = _weight(base, hz, hy, hx, wz1, wy1, wx1, size_z, size_y, size_x, outside, valid)
    # what the other labels leave is the share of `outside`, which has the rest of the plane
    rest = _add(tl.zeros_like(w0), w0, tl.where(l0 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w1, tl.where(l1 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w2, tl.where(l2 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w3, tl.where(l3 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w4, tl.where(l4 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w5, tl.where(l5 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w6, tl.where(l6 == outside, 0.0, -1000.0), SAMPLED)
    rest = _add(rest, w7, tl.where(l7 == outside, 0.0, -1000.0), SAMPLED)
    rest += 1000.0

    best = _share(
        l0, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED
    )
    winner = l0
    s = _share(l1, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l1, best, winner, HIGHEST)
    s = _share(l2, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l2, best, winner, HIGHEST)
    s = _share(l3, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l3, best, winner, HIGHEST)
    s = _share(l4, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l4, best, winner, HIGHEST)
    s = _share(l5, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l5, best, winner, HIGHEST)
    s = _share(l6, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l6, best, winner, HIGHEST)
    s = _share(l7, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED)
    best, winner = _better(s, l7, best, winner, HIGHEST)
    if NEAREST:
        near, _inside = _read(base, nz, ny, nx, size_z, size_y, size_x, outside, valid)
        s = _share(
            near, l0, l1, l2, l3, l4, l5, l6, l7, w0, w1, w2, w3, w4, w5, w6, w7, rest, outside, COUNTS, SAMPLED
        )
        winner = tl.where(s == best, near, winner)
    tl.store(out + channel * count + index, winner, mask=valid)


def _as_3d(matrix: np.ndarray, patch: Sequence[int], size: Sequence[int]) -> tuple[list[int], list[int], list[float]]:
    full = np.eye(3, dtype=np.float32)
    full[3 - len(patch) :, 3 - len(patch) :] = matrix
    lead = [1] * (3 - len(patch))
    return [*lead, *size], [*lead, *patch], full.ravel().tolist()


def warp_image(
    image: Tensor, matrix: np.ndarray, patch: Sequence[int], fill: float, fused: bool, samples_fused: bool
) -> Tensor:
    """`ops.geometry.warp_image` for float32, linear, `fill` beyond the border."""
    size, volume, entries = _as_3d(matrix, patch, image.shape[1:])
    image, out = image.contiguous(), image.new_empty((len(image), *patch))
    with torch.cuda.device_of(image):
        _warp_image[_grid(out)](
            image, out, float(fill), *size, *volume, *entries,
            FUSED=fused, SAMPLED=samples_fused, BLOCK=_BLOCK, enable_fp_fusion=False,
        )  # fmt: skip
    return out


def warp_labels(
    seg: Tensor, matrix: np.ndarray, patch: Sequence[int], outside: int, tiebreak: str, fused: bool,
    samples_fused: bool, counts: bool,
) -> Tensor:  # fmt: skip
    """`ops.geometry.warp_labels` for integer labels, linear."""
    size, volume, entries = _as_3d(matrix, patch, seg.shape[1:])
    seg, out = seg.contiguous(), seg.new_empty((len(seg), *patch))
    with torch.cuda.device_of(seg):
        _warp_labels[_grid(out)](
            seg, out, int(outside), *size, *volume, *entries,
            FUSED=fused, SAMPLED=samples_fused, COUNTS=counts,
            NEAREST=tiebreak == "nearest", HIGHEST=tiebreak == "highest", BLOCK=_BLOCK, enable_fp_fusion=False,
        )  # fmt: skip
    return out


def _grid(out: Tensor) -> tuple[int, int]:
    return triton.cdiv(out[0].numel(), _BLOCK), len(out)
