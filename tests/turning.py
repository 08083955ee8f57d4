"""One given rotation and scaling, by this package and by batchgeneratorsv2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nnunet_gpuaug import Batch, Draw, Pipeline, Spatial


def turn(batch: Batch, angles: Sequence[float], scales: Sequence[float], patch: Sequence[int], **spec: Any) -> Batch:
    """`batch` through Spatial with the same angles (radians) and scales in every row."""
    rows = len(batch)
    spec = {"border_mode_seg": "constant", "padding_value_seg": -1, **spec}
    params = {
        "batch_prob": torch.ones(rows),
        "warp": torch.ones(rows, dtype=torch.bool),
        "angles": torch.tensor([list(angles)] * rows, dtype=torch.float64),
        "scales": torch.tensor([list(scales)] * rows, dtype=torch.float64),
    }
    return Pipeline([Spatial(patch_size=tuple(patch), **spec)]).apply(batch, Draw(("Spatial",), (params,)))


def turn_by_nnunet(
    batch: Batch, angles: Sequence[float], scales: Sequence[float], patch: Sequence[int], **options: Any
) -> Batch:
    """The same by batchgeneratorsv2's SpatialTransform, row by row, on the CPU."""
    from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform

    options = {"border_mode_seg": "constant", "padding_value_seg": -1, **options}
    transform = SpatialTransform(
        tuple(patch),
        patch_center_dist_from_border=0,
        random_crop=False,
        p_rotation=1,
        rotation=lambda image, dim: angles[dim],
        p_scaling=1,
        scaling=lambda image, dim: scales[dim],
        **options,
    )
    rows = [
        transform(image=image.cpu().clone(), segmentation=seg.cpu().clone())
        for image, seg in zip(batch.image, batch.segmentation, strict=True)
    ]
    return Batch(torch.stack([r["image"] for r in rows]), torch.stack([r["segmentation"] for r in rows]))


def to_cpu(batch: Batch) -> Batch:
    return Batch(batch.image.cpu(), None if batch.segmentation is None else batch.segmentation.cpu())


def degrees(*values: float) -> list[float]:
    return [value * torch.pi / 180 for value in values]
