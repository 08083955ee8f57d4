"""Augmentations of the one-hot channels that a cascade gets from its previous stage. All values stay exactly 0 or 1."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from skimage.measure import label as connected_components
from skimage.morphology import ball, disk
from torch import Tensor

from ..batch import Batch, Shape
from ..ops import labels as ops
from ..sampling import NotNegative, Probability, Uniform
from .base import LabelStep, Params, Spec, drawn_rows

Operator = Literal["dilation", "erosion", "closing", "opening"]


class CascadeSpec(Spec):
    """The one-hot channels, and the probability per row and channel that one is augmented. The channels are taken in
    an order drawn per row, because one channel's change can show in the others."""

    channel_idx: tuple[int, ...] = Field(min_length=1)
    p_per_label: Probability = 1.0


class _CascadeStep(LabelStep):
    gated = True

    def __init__(self, *, p: float = 1.0, **spec: Any) -> None:
        super().__init__(**spec)
        self.p = self._read_p(p)

    def shape_after(self, shape: Shape) -> Shape:
        self._check_channels("channel_idx", self.spec.channel_idx, shape.channels, "image")
        return shape

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        order = list(range(len(self.spec.channel_idx)))
        rng.shuffle(order)
        return {"order": order, "active": [rng.random() < self.spec.p_per_label for _ in order]}

    def apply(self, batch: Batch, params: Params) -> Batch:
        rows = drawn_rows(params)
        if not rows:
            return batch
        image = batch.image if batch.owned else batch.image.clone()
        for row in rows:
            for place, index in enumerate(params["order"][row].tolist()):
                if params["active"][row, place]:
                    channel = self.spec.channel_idx[index]
                    values = {k: v[row, place].item() for k, v in params.items() if v.ndim == 2}
                    others = [image[row, c] for c in self.spec.channel_idx if c != channel]
                    self.change(image[row, channel], others, values)
        return replace(batch, image=image)

    def change(self, mask: Tensor, others: list[Tensor], values: dict[str, Any]) -> None:
        """Change the channel `mask` (*S), and `others`, in place."""
        raise NotImplementedError


class ApplyRandomBinaryOperator(_CascadeStep):
    """Dilate, erode, close or open one-hot channels; voxels that a channel gains are taken from the others.

    Args:
        channel_idx: the image channels.
        any_of_these: the operators, one drawn per row and channel with equal probability.
        strel_size: radius of the ball (2D: disk) in voxels, drawn per row and channel. A real number: the side of the
            element is 2 · radius + 1, rounded down (2D: up), so half of the sides are even, which shifts the result
            by half a voxel (dilation, erosion) or one (closing, opening).
        p_per_label: probability per row and channel.
        p: probability per row.

    Matches batchgeneratorsv2 `ApplyRandomBinaryOperatorTransform`.
    """

    class Spec(CascadeSpec):
        any_of_these: tuple[Operator, ...] = Field(("dilation", "erosion", "closing", "opening"), min_length=1)
        strel_size: NotNegative = Uniform(1, 10)

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        count = len(self.spec.channel_idx)
        return {
            **super().draw_row(rng, shape),
            "operator": [rng.randrange(len(self.spec.any_of_these)) for _ in range(count)],
            "radius": [float(self.spec.strel_size(rng)) for _ in range(count)],
        }

    def change(self, mask: Tensor, others: list[Tensor], values: dict[str, Any]) -> None:
        element = torch.from_numpy((disk if mask.ndim == 2 else ball)(values["radius"], dtype=bool))
        if mask.device.type == "cuda":
            element = element.pin_memory().to(mask.device, non_blocking=True)
        before = mask.bool()
        after = ops.BINARY_OPERATORS[self.spec.any_of_these[values["operator"]]](before, element)
        gained = after & ~before
        for other in others:
            other.masked_fill_(gained, 0)
        mask.copy_(after)


class RemoveRandomConnectedComponent(_CascadeStep):
    """Erase one connected component (26 neighbours, 2D: 8) of one-hot channels.

    The component is chosen with equal probability among those smaller than a share of the patch. Components are
    found on the host, for the drawn rows and channels only: the one place where the pipeline makes the host wait.

    Args:
        channel_idx: the image channels.
        fill_with_other_class_p: probability that the erased component is given to another of the channels, drawn
            with equal probability.
        dont_do_if_covers_more_than_x_percent: the share (0.15 is 15 %) of the patch's voxels from which on a
            component is left alone.
        p_per_label: probability per row and channel.
        p: probability per row.

    Matches batchgeneratorsv2 `RemoveRandomConnectedComponentFromOneHotEncodingTransform`.
    """

    class Spec(CascadeSpec):
        fill_with_other_class_p: Probability = 0.25
        dont_do_if_covers_more_than_x_percent: Probability = 0.25

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        count = len(self.spec.channel_idx)
        return {
            **super().draw_row(rng, shape),
            # which component and which channel, as shares of how many there turn out to be
            "component": [rng.random() for _ in range(count)],
            "fill": [rng.random() < self.spec.fill_with_other_class_p for _ in range(count)],
            "other": [rng.random() for _ in range(count)],
        }

    def change(self, mask: Tensor, others: list[Tensor], values: dict[str, Any]) -> None:
        components = connected_components(mask.bool().cpu().numpy())
        sizes = np.bincount(components.ravel())[1:]
        small = 1 + np.flatnonzero(sizes < components.size * self.spec.dont_do_if_covers_more_than_x_percent)
        if len(small) == 0:
            return
        chosen = torch.from_numpy(components == small[int(values["component"] * len(small))]).to(mask.device)
        mask.masked_fill_(chosen, 0)
        if values["fill"] and others:
            others[int(values["other"] * len(others))].masked_fill_(chosen, 1)
