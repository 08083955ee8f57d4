"""Blur and simulated low resolution. Drawn for each row with probability `p`, then for each channel."""

from __future__ import annotations

import random
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from ..batch import Shape
from ..errors import AugmentationError
from ..ops import filters as ops
from ..sampling import Constant, IntegerRange, NotNegative, Positive, Probability, Scalar, Uniform, draw_integer
from .base import ImageAugmentation, Spec
from .intensity import ChannelSpec, draw_active, draw_per_channel


def _draw_per_axis(
    rng: random.Random, value: Scalar, shape: Shape, synchronize_channels: bool, synchronize_axes: bool
) -> list[list[float]]:
    """One value for each channel and spatial axis, shared among channels or axes as asked."""

    def axes() -> list[float]:
        rank = len(shape.spatial)
        return [value(rng)] * rank if synchronize_axes else [value(rng) for _ in range(rank)]

    return [axes()] * shape.channels if synchronize_channels else [axes() for _ in range(shape.channels)]


class GaussianBlur(ImageAugmentation):
    """Separable Gaussian blur, reflected at the border; the kernel is the odd number nearest to 6 · sigma + 0.5 wide.

    Args:
        blur_sigma: sigma in voxels, drawn per row, channel and axis (`synchronize_…`: shared).
        synchronize_axes: one sigma for all axes.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    On an axis shorter than the kernel the reflection is repeated; batchgeneratorsv2 raises there.
    Matches batchgeneratorsv2 `GaussianBlurTransform`, whose `benchmark` only chooses between equal implementations.
    """

    class Spec(ChannelSpec):
        blur_sigma: NotNegative = Uniform(0.5, 1.0)
        synchronize_axes: bool = False

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s = self.spec
        return {
            "active": draw_active(rng, shape.channels, s.p_per_channel),
            "sigmas": _draw_per_axis(rng, s.blur_sigma, shape, s.synchronize_channels, s.synchronize_axes),
        }

    def plane(self, x: Tensor, sigmas: list[float]) -> Tensor:
        return ops.gaussian_blur(x, sigmas)


class SimulateLowResolution(ImageAugmentation):
    """Downsample by nearest-exact to round(size · scale) voxels, upsample linearly.

    Args:
        scale: drawn per row, channel and axis (`synchronize_…`: shared).
        synchronize_axes: one scale for all axes.
        ignore_axes: spatial axes that keep their resolution (0 in dummy-2D training); None for none.
        allowed_channels: the channels that may be drawn; None for all.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    No axis becomes shorter than one voxel, where batchgeneratorsv2 raises.
    Matches batchgeneratorsv2 `SimulateLowResolutionTransform`.
    """

    class Spec(ChannelSpec):
        scale: Positive = Uniform(0.5, 1.0)
        synchronize_axes: bool = True
        ignore_axes: tuple[Annotated[int, Field(ge=0, le=2)], ...] | None = None
        allowed_channels: tuple[Annotated[int, Field(ge=0)], ...] | None = None

    def shape_after(self, shape: Shape) -> Shape:
        s = self.spec
        self._check_channels("allowed_channels", s.allowed_channels or (), shape.channels, "image")
        if any(axis >= len(shape.spatial) for axis in s.ignore_axes or ()):
            raise AugmentationError(
                f"SimulateLowResolution: ignore_axes = {s.ignore_axes}; the input has the spatial size "
                f"{shape.spatial}, so axes 0 to {len(shape.spatial) - 1} are allowed"
            )
        return shape

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s = self.spec
        active = draw_active(rng, shape.channels, s.p_per_channel)
        if s.allowed_channels is not None:
            active = [on and channel in s.allowed_channels for channel, on in enumerate(active)]
        return {
            "active": active,
            "scales": _draw_per_axis(rng, s.scale, shape, s.synchronize_channels, s.synchronize_axes),
        }

    def plane(self, x: Tensor, scales: list[float]) -> Tensor:
        ignored = self.spec.ignore_axes or ()
        scales = [1.0 if axis in ignored else scale for axis, scale in enumerate(scales)]
        return ops.low_resolution(x, scales)


class PerChannelSpec(Spec):
    """Which channels of a drawn row are filtered, and the probability per row that they share the drawn value."""

    p_same_for_each_channel: Probability = 0.0
    p_per_channel: Probability = 1.0


class MedianFilter(ImageAugmentation):
    """The median in a cube (2D: square) around each voxel, borders mirrored with the border voxel repeated.

    Args:
        filter_size: side of the cube in voxels, or [low, high): drawn per row and channel from the whole numbers
            below high. Even sides are allowed; they reach one voxel further back than ahead.
        p_same_for_each_channel, p_per_channel: see `PerChannelSpec`.
        p: probability per row.

    Matches batchgeneratorsv2 `MedianFilterTransform`.
    """

    class Spec(PerChannelSpec):
        filter_size: IntegerRange

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        same = rng.random() < s.p_same_for_each_channel
        sizes = [draw_integer(rng, s.filter_size) for _ in range(c)]
        return {"active": draw_active(rng, c, s.p_per_channel), "size": sizes[:1] * c if same else sizes}

    def plane(self, x: Tensor, size: int) -> Tensor:
        return ops.median(x, size)


class Sharpening(ImageAugmentation):
    """x + strength · Laplacian, with 6 (2D: 4) neighbours and the border voxel repeated.

    Args:
        strength: drawn per row and channel.
        p_clamp_intensities: probability per channel that the result is clamped to the channel's old range.
        p_same_for_each_channel, p_per_channel: see `PerChannelSpec`; shares strength and clamping.
        p: probability per row.

    Matches batchgeneratorsv2 `SharpeningTransform`.
    """

    class Spec(PerChannelSpec):
        strength: Scalar = Constant(0.2)
        p_clamp_intensities: Probability = 0.0

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        same = rng.random() < s.p_same_for_each_channel
        strengths = draw_per_channel(rng, s.strength, c, same)
        clamp = draw_active(rng, c, s.p_clamp_intensities)
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "strength": strengths,
            "clamp": clamp[:1] * c if same else clamp,
        }

    def plane(self, x: Tensor, strength: float, clamp: bool) -> Tensor:
        return ops.sharpen(x, strength, clamp)
