"""Label steps at the end of nnU-Net's pipelines. None of them draws anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field

from ..batch import Batch, Shape
from ..errors import AugmentationError
from ..ops import labels as ops
from .base import LabelStep, Params, Spec, check_label_fits


class MaskImage(LabelStep):
    """Set image channels to a constant where the segmentation is negative (outside the mask of `use_mask_for_norm`).

    Has to come before `RemoveLabel` turns −1 into background. Matches batchgeneratorsv2 `MaskImageTransform`.

    Args:
        apply_to_channels: the image channels.
        channel_idx_in_seg: the segmentation channel that holds the mask.
        set_outside_to: the constant.
    """

    class Spec(Spec):
        apply_to_channels: tuple[int, ...]
        channel_idx_in_seg: int = 0
        set_outside_to: float = 0.0

    def shape_after(self, shape: Shape) -> Shape:
        s = self.spec
        self._check_channels("apply_to_channels", s.apply_to_channels, shape.channels, "image")
        if shape.seg_channels:
            self._check_channels("channel_idx_in_seg", (s.channel_idx_in_seg,), shape.seg_channels, "segmentation")
        return shape

    def apply(self, batch: Batch, params: Params) -> Batch:
        s = self.spec
        outside = self.segmentation_of(batch)[:, s.channel_idx_in_seg] < 0
        image = batch.image if batch.owned else batch.image.clone()
        for channel in s.apply_to_channels:
            image[:, channel].masked_fill_(outside, s.set_outside_to)
        return replace(batch, image=image)


class RemoveLabel(LabelStep):
    """Replace one label by another, in some or all (None) segmentation channels.

    nnU-Net turns −1 (outside the image, outside the mask) into background with it.
    Matches batchgeneratorsv2 `RemoveLabelTransform`.
    """

    class Spec(Spec):
        label_value: int
        set_to: int
        segmentation_channels: tuple[int, ...] | None = None

    def shape_after(self, shape: Shape) -> Shape:
        if shape.seg_channels and self.spec.segmentation_channels is not None:
            chosen = self.spec.segmentation_channels
            self._check_channels("segmentation_channels", chosen, shape.seg_channels, "segmentation")
        return shape

    def apply(self, batch: Batch, params: Params) -> Batch:
        s = self.spec
        seg = self.segmentation_of(batch)
        check_label_fits(seg, s.set_to, "set_to")
        seg = seg if batch.owned else seg.clone()
        for channel in range(seg.shape[1]) if s.segmentation_channels is None else s.segmentation_channels:
            labels = seg[:, channel]
            labels.masked_fill_(labels == s.label_value, s.set_to)
        return replace(batch, segmentation=seg)


def _as_region(value: Any) -> Any:
    return (value,) if isinstance(value, int) else value


Region = Annotated[tuple[int, ...], BeforeValidator(_as_region), Field(min_length=1)]


class ConvertSegmentationToRegions(LabelStep):
    """Segmentation (B, K, *S) to one bool channel for each region, (B, R, *S), in the order given.

    Regions may overlap, a region may be one label. nnU-Net passes the ignore label as the last region, so the last
    channel is then the ignore mask. Matches batchgeneratorsv2 `ConvertSegmentationToRegionsTransform`.

    Args:
        regions: the labels of each region.
        channel_in_seg: the segmentation channel to read.
    """

    class Spec(Spec):
        regions: tuple[Region, ...] = Field(min_length=1)
        channel_in_seg: int = 0

    def shape_after(self, shape: Shape) -> Shape:
        if shape.seg_channels:
            self._check_channels("channel_in_seg", (self.spec.channel_in_seg,), shape.seg_channels, "segmentation")
        return shape._replace(seg_channels=len(self.spec.regions))

    def apply(self, batch: Batch, params: Params) -> Batch:
        labels = self.segmentation_of(batch)[:, self.spec.channel_in_seg]
        return replace(batch, segmentation=ops.to_regions(labels, self.spec.regions))


class DownsampleSegForDS(LabelStep):
    """The deep-supervision targets: the segmentation at each scale, nearest-exact, as a list.

    Args:
        ds_scales: for each target one factor for all axes, or one for each axis.

    Matches batchgeneratorsv2 `DownsampleSegForDSTransform`. With deep supervision off nnU-Net leaves the step out,
    and the target stays one tensor.
    """

    class Spec(Spec):
        ds_scales: tuple[float | tuple[float, ...], ...] = Field(min_length=1)

    def shape_after(self, shape: Shape) -> Shape:
        size = shape.spatial
        for scales in self._scales(len(size)):
            if len(scales) != len(size) or any(round(n * s) < 1 for n, s in zip(size, scales, strict=True)):
                raise AugmentationError(
                    f"DownsampleSegForDS: ds_scales has {scales}, which does not fit the spatial size {size}: "
                    "one factor for each axis, and at least one voxel must remain"
                )
        return shape

    def _scales(self, rank: int) -> list[tuple[float, ...]]:
        return [s if isinstance(s, tuple) else (s,) * rank for s in self.spec.ds_scales]

    def apply(self, batch: Batch, params: Params) -> Batch:
        seg = self.segmentation_of(batch)
        return replace(batch, segmentation=ops.downsample_labels(seg, self._scales(seg.ndim - 2)))


class MoveSegAsOneHot(LabelStep):
    """Append one segmentation channel to the image as one channel of 0/1 for each label: the previous stage's
    segmentation in a cascade. Matches batchgeneratorsv2 `MoveSegAsOneHotToDataTransform`.

    Args:
        source_channel_idx: the segmentation channel.
        all_labels: the labels, in the order of the channels; need not be contiguous.
        remove_channel_from_source: drop the channel from the segmentation.

    Raises:
        AugmentationError: the segmentation has no such channel.
    """

    class Spec(Spec):
        source_channel_idx: int = Field(ge=0)
        all_labels: tuple[int, ...] = Field(min_length=1)
        remove_channel_from_source: bool = True

    def shape_after(self, shape: Shape) -> Shape:
        s = self.spec
        if s.source_channel_idx >= shape.seg_channels:
            raise AugmentationError(
                f"MoveSegAsOneHot: source_channel_idx = {s.source_channel_idx}, but the segmentation has "
                f"{shape.seg_channels} channel(s); a cascade needs the previous stage's segmentation as the second"
            )
        return shape._replace(
            channels=shape.channels + len(s.all_labels), seg_channels=shape.seg_channels - s.remove_channel_from_source
        )

    def apply(self, batch: Batch, params: Params) -> Batch:
        s, seg, image = self.spec, self.segmentation_of(batch), batch.image
        count = image.shape[1]
        out = image.new_empty((len(image), count + len(s.all_labels), *image.shape[2:]))
        out[:, :count] = image
        for channel, label in enumerate(s.all_labels, start=count):
            out[:, channel] = seg[:, s.source_channel_idx] == label
        if s.remove_channel_from_source:
            seg = torch.cat([seg[:, : s.source_channel_idx], seg[:, s.source_channel_idx + 1 :]], dim=1)
        return replace(batch, image=out, segmentation=seg)
