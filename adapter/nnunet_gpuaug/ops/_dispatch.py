"""Chooses, for the tensor at hand, between an op and the Triton kernel that computes the same."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from torch import Tensor, float32

from . import geometry

try:
    from ..kernels import warp
except ImportError:  # Triton is never required
    warp = None

_INDEX_LIMIT = 2**31  # the kernels index with 32 bits

_allowed: ContextVar[bool] = ContextVar("kernels_allowed", default=True)


@contextmanager
def kernels(allowed: bool) -> Iterator[None]:
    """Within the block, kernels are chosen only if `allowed`, and allowed around it."""
    token = _allowed.set(allowed and _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(token)


def _has_kernel(x: Tensor, patch: Sequence[int]) -> bool:
    small = max(x.numel(), len(x) * math.prod(patch)) < _INDEX_LIMIT
    return warp is not None and _allowed.get() and small and (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1")


def warp_image(image: Tensor, matrix: np.ndarray, patch: Sequence[int], mode: str, padding: str, fill: float) -> Tensor:
    """`geometry.warp_image`."""
    covered = mode == "bilinear" and padding in ("zeros", "constant") and image.dtype == float32
    if covered and _has_kernel(image, patch):
        outside = fill if padding == "constant" else 0.0
        fused, samples_fused = geometry.matmul_is_fused(), geometry.grid_sample_is_fused(len(patch))
        return warp.warp_image(image, matrix, patch, outside, fused, samples_fused)
    return geometry.warp_image(image, matrix, patch, mode, padding, fill)


def warp_labels(
    seg: Tensor, matrix: np.ndarray, patch: Sequence[int], outside: int, mode: str, tiebreak: str
) -> Tensor:
    """`geometry.warp_labels`."""
    if mode == "bilinear" and not seg.is_floating_point() and _has_kernel(seg, patch):
        counts = geometry.reaches_outside(matrix, patch, seg.shape[1:])
        fused, samples_fused = geometry.matmul_is_fused(), geometry.grid_sample_is_fused(len(patch))
        return warp.warp_labels(seg, matrix, patch, outside, tiebreak, fused, samples_fused, counts)
    return geometry.warp_labels(seg, matrix, patch, outside, mode, tiebreak)
