"""One of several transforms."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from ..batch import Batch, Shape
from ..errors import AugmentationError
from .base import Params, Transform


class OneOf(Transform, nn.Module):
    """Apply one of several transforms, chosen per row with equal probability; each keeps its own probability `p`.

    The draw holds each transform's draw under its index, with the gate closed in the rows that chose another.
    Matches batchgeneratorsv2 `OneOfTransform`. Kornia's `random_apply=1` chooses per batch, MONAI's `OneOf` per call.

    Args:
        transforms: transforms that leave the shape as it is.
    """

    def __init__(self, transforms: Iterable[Transform]) -> None:
        super().__init__()
        if isinstance(transforms, Transform) or not isinstance(transforms, Iterable):
            raise AugmentationError(f"OneOf: transforms = {transforms!r} must be a list of transforms")
        transforms = list(transforms)
        for index, transform in enumerate(transforms):
            if not isinstance(transform, Transform) or not transform.gated:
                raise AugmentationError(f"OneOf: transforms[{index}] = {transform!r} cannot be left out for some rows")
        if not transforms:
            raise AugmentationError("OneOf: transforms is empty; at least one is needed")
        self.transforms = nn.ModuleList(transforms)

    def __repr__(self) -> str:
        return f"OneOf([{', '.join(map(repr, self.transforms))}])"

    def shape_after(self, shape: Shape) -> Shape:
        for transform in self.transforms:
            transform.shape_after(shape)
        return shape

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        return {"choice": rng.randrange(len(self.transforms))}

    def draw(self, streams: Sequence[random.Random], shape: Shape) -> Params:
        params = super().draw(streams, shape)
        for index, transform in enumerate(self.transforms):
            for name, value in transform.draw(streams, shape).items():
                params[f"{index}.{name}"] = value
            params[f"{index}.batch_prob"] *= params["choice"] == index
        return params

    def apply(self, batch: Batch, params: Params) -> Batch:
        for index, transform in enumerate(self.transforms):
            prefix = f"{index}."
            own = {name.removeprefix(prefix): v for name, v in params.items() if name.startswith(prefix)}
            batch = transform.apply(batch, own)
        return batch
