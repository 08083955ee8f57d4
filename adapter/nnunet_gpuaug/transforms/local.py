"""Augmentations of a part of the image: under a smooth Gaussian weight, or in boxes."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from torch import Tensor

from ..batch import Shape
from ..errors import AugmentationError
from ..ops import filters, intensity
from ..sampling import (
    LogUniformOfSize,
    NotNegative,
    Positive,
    PositiveAxisScalar,
    Probability,
    Scalar,
    Uniform,
    draw_integer,
)
from .base import ImageAugmentation, Spec
from .intensity import draw_active, draw_per_channel


class LocalSpec(Spec):
    """Where the weight lies: a Gaussian over the patch, scaled to [0, 1], possibly centred outside.

    `loc` is the centre as a share of the axis, `scale` the standard deviation in voxels; both drawn per row, channel
    and axis, or per row and axis if `same_for_all_channels`. The transform's own value is then shared, too.
    """

    scale: PositiveAxisScalar
    loc: Scalar = Uniform(-1, 2)
    same_for_all_channels: bool = True
    p_per_channel: Probability = 1.0


class _LocalAugmentation(ImageAugmentation):
    """Draws the weight's place for each channel, and one value of `values`."""

    def values(self) -> dict[str, Scalar]:
        """The distributions of the transform's own values."""
        raise NotImplementedError

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c, size = self.spec, shape.channels, shape.spatial
        count = 1 if s.same_for_all_channels else c
        centers = [[s.loc(rng) * n for n in size] for _ in range(count)]
        widths = [[self._width(rng, n) for n in size] for _ in range(count)]
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "centers": centers * (c // count),
            "widths": widths * (c // count),
            **{k: draw_per_channel(rng, v, c, s.same_for_all_channels) for k, v in self.values().items()},
        }

    def _width(self, rng: random.Random, size: int) -> float:
        scale = self.spec.scale
        return scale.of_size(rng, size) if isinstance(scale, LogUniformOfSize) else scale(rng)


class BrightnessGradientAdditive(_LocalAugmentation):
    """x + strength · weight / max |weight|.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `LocalSpec`.
        max_strength: the strength, drawn per row and channel.
        mean_centered: take the weight's mean away first.
        p: probability per row.

    Matches batchgeneratorsv2 `BrightnessGradientAdditiveTransform` without `clip_intensities`.
    """

    class Spec(LocalSpec):
        max_strength: Scalar = Uniform(0, 1)
        mean_centered: bool = True

    def values(self) -> dict[str, Scalar]:
        return {"strength": self.spec.max_strength}

    def plane(self, x: Tensor, centers: list[float], widths: list[float], strength: float) -> Tensor:
        return intensity.add_gradient(x, intensity.bump(x, centers, widths), strength, self.spec.mean_centered)


class LocalGamma(_LocalAugmentation):
    """Blend the channel, scaled to [0, 1], with its power: n · (1 − weight) + n ** gamma · weight, scaled back.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `LocalSpec`.
        gamma: the exponent, drawn per row and channel.
        p: probability per row.

    Matches batchgeneratorsv2 `LocalGammaTransform`.
    """

    class Spec(LocalSpec):
        gamma: Positive = Uniform(0.5, 1)

    def values(self) -> dict[str, Scalar]:
        return {"exponent": self.spec.gamma}

    def plane(self, x: Tensor, centers: list[float], widths: list[float], exponent: float) -> Tensor:
        return intensity.local_gamma(x, intensity.bump(x, centers, widths), exponent)


class LocalContrast(_LocalAugmentation):
    """Blend the channel with (x − mean) · contrast + mean, the mean weighted.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `LocalSpec`.
        new_contrast: the factor, drawn per row and channel.
        p: probability per row.

    Matches batchgeneratorsv2 `LocalContrastTransform`.
    """

    class Spec(LocalSpec):
        new_contrast: Scalar = Uniform(0.5, 1.5)

    def values(self) -> dict[str, Scalar]:
        return {"factor": self.spec.new_contrast}

    def plane(self, x: Tensor, centers: list[float], widths: list[float], factor: float) -> Tensor:
        return intensity.local_contrast(x, intensity.bump(x, centers, widths), factor)


class LocalSmoothing(_LocalAugmentation):
    """Blend the channel with its Gaussian smoothing: x · (1 − strength · weight) + smooth · strength · weight.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `LocalSpec`.
        smoothing_strength: drawn per row and channel.
        kernel_size: sigma of the smoothing in voxels, drawn per row.
        p: probability per row.

    Matches batchgeneratorsv2 `LocalSmoothingTransform`.
    """

    class Spec(LocalSpec):
        smoothing_strength: Scalar = Uniform(0.5, 1.0)
        kernel_size: NotNegative = Uniform(0.5, 1.5)

    def values(self) -> dict[str, Scalar]:
        return {"strength": self.spec.smoothing_strength}

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        sigma = float(self.spec.kernel_size(rng))
        return {**super().draw_row(rng, shape), "sigma": [sigma] * shape.channels}

    def plane(self, x: Tensor, centers: list[float], widths: list[float], strength: float, sigma: float) -> Tensor:
        weights = intensity.bump(x, centers, widths) * strength
        return (filters.gaussian_filter(x, sigma) * weights).add_((1 - weights).mul_(x))


Side = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]


def _as_value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class BlankRectangle(ImageAugmentation):
    """Overwrite boxes by a constant, one after the other.

    Args:
        rectangle_size: side in voxels: one number for all axes, one for each axis, or [low, high) for each axis,
            drawn per box. An empty range gives its low end.
        rectangle_value: a number, a range [low, high] drawn per box, or "mean", the box's own mean.
        num_rectangles: a number, or [low, high), drawn per row and channel.
        force_square: with ranges: one draw, from the first axis' range, for all axes. Fixed sides stay as they are.
        p_per_channel: probability per channel.
        p: probability per row.

    Boxes lie inside the patch, every position equally probable.

    Raises:
        AugmentationError: a box can be larger than the patch, or the number of axes differs.

    Matches batchgeneratorsv2 `BlankRectangleTransform`.
    """

    class Spec(Spec):
        rectangle_size: Side | tuple[Side, ...] | tuple[tuple[Side, Count], ...]
        rectangle_value: Annotated[Literal["mean"] | float | tuple[float, float], BeforeValidator(_as_value)]
        num_rectangles: Count | tuple[Count, Count]
        force_square: bool = False
        p_per_channel: Annotated[float, Field(ge=0, le=1)] = 1.0

    def _ranges(self, rank: int) -> list[int | tuple[int, int]]:
        size = self.spec.rectangle_size
        ranges = [size] * rank if isinstance(size, int) else list(size)
        return ranges[:1] * len(ranges) if self._is_square(ranges) else ranges

    def _is_square(self, ranges: list[int | tuple[int, int]]) -> bool:
        return self.spec.force_square and all(isinstance(r, tuple) for r in ranges)

    def shape_after(self, shape: Shape) -> Shape:
        ranges = self._ranges(len(shape.spatial))
        largest = [r if isinstance(r, int) else max(r[0], r[1] - 1) for r in ranges]
        if len(ranges) != len(shape.spatial) or any(a > n for a, n in zip(largest, shape.spatial, strict=True)):
            raise AugmentationError(
                f"BlankRectangle: rectangle_size = {self.spec.rectangle_size} does not fit the patch {shape.spatial}"
            )
        return shape

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c, count = self.spec, shape.channels, self.spec.num_rectangles
        most = count if isinstance(count, int) else max(count[0], count[1] - 1)
        boxes = [[self._draw_box(rng, shape.spatial) for _ in range(most)] for _ in range(c)]
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "count": [draw_integer(rng, count) for _ in range(c)],
            "start": [[start for start, _, _ in channel] for channel in boxes],
            "size": [[size for _, size, _ in channel] for channel in boxes],
            "value": [[value for _, _, value in channel] for channel in boxes],
        }

    def _draw_box(self, rng: random.Random, patch: tuple[int, ...]) -> tuple[list[int], list[int], float]:
        ranges = self._ranges(len(patch))
        size = [draw_integer(rng, r) for r in ranges]
        if self._is_square(ranges):
            size = size[:1] * len(size)
        value = self.spec.rectangle_value
        drawn = rng.uniform(*value) if isinstance(value, tuple) else 0.0 if value == "mean" else value
        return [rng.randrange(n - a + 1) for n, a in zip(patch, size, strict=True)], size, float(drawn)

    def plane(self, x: Tensor, count: int, start: list, size: list, value: list[float]) -> Tensor:
        x = x.clone()
        for box in range(count):
            fill = None if self.spec.rectangle_value == "mean" else value[box]
            intensity.fill_rectangle(x, start[box], size[box], fill)
        return x
