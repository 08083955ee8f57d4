"""Real batchgeneratorsv2 objects that several parity tests use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform

from nnunet_gpuaug.nnunet.mapping import map_transforms
from nnunet_gpuaug.transforms.base import Transform

_OUTSIDE = {"border_mode_seg": "constant", "padding_value_seg": -1}


def random_spatial(patch: Sequence[int], **options: Any) -> SpatialTransform:
    """nnU-Net's transform, but with angles and scales drawn in most rows, for each axis on its own."""
    drawn = {
        "p_rotation": 0.8,
        "rotation": (-math.pi, math.pi),
        "p_rot_per_axis": 0.7,
        "p_scaling": 0.8,
        "scaling": (0.7, 1.4),
        "p_synchronize_scaling_across_axes": 0.3,
    }
    return SpatialTransform(patch, 0, False, **{**drawn, **_OUTSIDE, **options})


def fixed_spatial(
    angles: Sequence[float], scales: Sequence[float], patch: Sequence[int], **options: Any
) -> tuple[SpatialTransform, list[Transform]]:
    """A real transform that draws these angles (radians) and scales, and ours.

    Ours is mapped from one without the callables, which it does not take: what it would draw does not matter.
    """
    options = {**_OUTSIDE, **options}
    real = SpatialTransform(
        patch,
        0,
        False,
        p_rotation=1,
        rotation=lambda image, dim: angles[dim],
        p_scaling=1,
        scaling=lambda image, dim: scales[dim],
        **options,
    )
    return real, map_transforms(SpatialTransform(patch, 0, False, **options))
