"""Blur and simulated low resolution. Drawn for each row with probability `p`, then for each channel."""

from __future__ import annotations

import random
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from ..batch import Shape
from ..errors import AugmentationError
from ..ops import filters as ops
from ..sampling import NotNegative, Positive, Scalar, Uniform
from .base import ImageAugmentation
from .intensity import ChannelSpec, draw_active


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
