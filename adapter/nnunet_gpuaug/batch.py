"""A training batch and its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import AugmentationError

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LABEL_DTYPES = (*_INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Shape(NamedTuple):
    """What a draw has to know of a batch: channels, segmentation channels, spatial size, and, while the first
    spatial axis is folded into the channels (dummy 2D), the channel counts before the folding."""

    channels: int
    seg_channels: int
    spatial: tuple[int, ...]
    folded: tuple[int, int] | None = None


@dataclass(frozen=True)
class Batch:
    """Image and segmentation of a batch, on one device.

    Attributes:
        image: (B, C, *S), floating point.
        segmentation: (B, K, *S), labels; a list of such tensors, finest first, once the deep-supervision targets
            are made; None if there is none.
        folded: the channel counts (image, segmentation) from before the first spatial axis was folded into the
            channels (dummy 2D), else None.
        owned: the tensors were allocated by the pipeline, so a step may write into them.
    """

    image: Tensor
    segmentation: Tensor | list[Tensor] | None = None
    folded: tuple[int, int] | None = None
    owned: bool = False

    def __len__(self) -> int:
        return self.image.shape[0]

    @property
    def shape(self) -> Shape:
        seg_channels = self.segmentation.shape[1] if isinstance(self.segmentation, Tensor) else 0
        return Shape(self.image.shape[1], seg_channels, tuple(self.image.shape[2:]), self.folded)

    def rows(self, start: int, stop: int) -> Batch:
        """The rows start..stop-1 as a batch of their own."""
        seg = self.segmentation
        seg = seg if seg is None else [s[start:stop] for s in seg] if isinstance(seg, list) else seg[start:stop]
        return Batch(self.image[start:stop], seg, self.folded)

    def check(self) -> None:
        """Raise AugmentationError if image and segmentation are not a batch that nnU-Net's loader could have made.

        Label values are looked at on the CPU only: on a GPU that would make the host wait.
        """
        image, seg = self.image, self.segmentation
        if not isinstance(image, Tensor) or not image.is_floating_point():
            kind = image.dtype if isinstance(image, Tensor) else type(image).__name__
            raise AugmentationError(f"image is {kind}; it must be a floating-point tensor")
        if image.ndim not in (4, 5):
            raise AugmentationError(
                f"image has shape {tuple(image.shape)}; it must be a batch, (B, C, H, W) or (B, C, D, H, W)"
            )
        if 0 in image.shape:
            raise AugmentationError(f"image has shape {tuple(image.shape)}; no axis may be empty")
        if seg is None:
            return
        if not isinstance(seg, Tensor) or seg.dtype not in _LABEL_DTYPES:
            kind = seg.dtype if isinstance(seg, Tensor) else type(seg).__name__
            allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in _LABEL_DTYPES)
            raise AugmentationError(f"segmentation is {kind}; it must be a tensor of labels of type {allowed}")
        if seg.ndim != image.ndim or seg.shape[0] != image.shape[0] or seg.shape[2:] != image.shape[2:]:
            raise AugmentationError(
                f"segmentation has shape {tuple(seg.shape)}, image {tuple(image.shape)}; "
                "rank, batch size and spatial size must be equal"
            )
        if seg.device != image.device:
            raise AugmentationError(f"segmentation is on {seg.device}, image on {image.device}; use one device")
        if seg.device.type == "cpu" and seg.numel():
            self._check_labels(seg)

    @staticmethod
    def _check_labels(seg: Tensor) -> None:
        if seg.is_floating_point() and not bool((seg - seg.round() == 0).all()):
            raise AugmentationError("segmentation holds values that are not whole numbers; labels must be whole")
        lowest = seg.min().item()
        if lowest < -1:
            raise AugmentationError(f"segmentation holds the label {lowest:g}; the smallest allowed is -1 (outside)")
