"""Folding of the first spatial axis into the channels, for dummy-2D training."""

from __future__ import annotations

from dataclasses import replace

from ..batch import Batch, Shape
from ..errors import AugmentationError
from .base import LabelStep, Params


class Convert3DTo2D(LabelStep):
    """Fold the first spatial axis into the channels: (B, C, D, H, W) to (B, C · D, H, W), for dummy-2D augmentation,
    where all slices of a row share one in-plane transform. Matches batchgeneratorsv2 `Convert3DTo2DTransform`."""

    def shape_after(self, shape: Shape) -> Shape:
        if len(shape.spatial) != 3 or shape.folded:
            raise AugmentationError(f"Convert3DTo2D needs a 3D input, got the spatial size {shape.spatial}")
        depth, *plane = shape.spatial
        return Shape(
            shape.channels * depth, shape.seg_channels * depth, tuple(plane), (shape.channels, shape.seg_channels)
        )

    def apply(self, batch: Batch, params: Params) -> Batch:
        folded = batch.shape.channels, batch.shape.seg_channels
        seg = batch.segmentation
        return replace(
            batch,
            image=batch.image.flatten(1, 2),
            segmentation=None if seg is None else seg.flatten(1, 2),
            folded=folded,
        )


class Convert2DTo3D(LabelStep):
    """Undo `Convert3DTo2D`. Matches batchgeneratorsv2 `Convert2DTo3DTransform`."""

    def shape_after(self, shape: Shape) -> Shape:
        if not shape.folded:
            raise AugmentationError("Convert2DTo3D needs a Convert3DTo2D before it")
        channels, seg_channels = shape.folded
        return Shape(channels, seg_channels, (shape.channels // channels, *shape.spatial))

    def apply(self, batch: Batch, params: Params) -> Batch:
        channels, seg_channels = batch.folded
        seg = batch.segmentation
        return replace(
            batch,
            image=batch.image.unflatten(1, (channels, -1)),
            segmentation=None if seg is None else seg.unflatten(1, (seg_channels, -1)),
            folded=None,
        )
