"""Intensity augmentations. Drawn for each row with probability `p`, then for each channel with `p_per_channel`."""

from __future__ import annotations

import random
from typing import Any

from torch import Tensor

from ..batch import Shape
from ..ops import intensity as ops
from ..sampling import SEED_BITS, NotNegative, Positive, Probability, Scalar, SplitRange, Uniform
from .base import ImageAugmentation, Spec


class ChannelSpec(Spec):
    """Which channels of a drawn row are augmented, and whether they share the drawn value."""

    p_per_channel: Probability = 1.0
    synchronize_channels: bool = False


def draw_active(rng: random.Random, channels: int, p: float) -> list[bool]:
    """The channels drawn, each with probability `p`."""
    return [rng.random() < p for _ in range(channels)]


def draw_per_channel(rng: random.Random, value: Scalar, channels: int, synchronize: bool) -> list[float]:
    """One value for each channel, or one for all."""
    return [value(rng)] * channels if synchronize else [value(rng) for _ in range(channels)]


class GaussianNoise(ImageAugmentation):
    """x + sigma · N(0, 1), the noise independent in every voxel and channel.

    Args:
        noise_variance: the standard deviation sigma; nnU-Net's name, though no square is taken. Drawn per row and
            channel, per row if `synchronize_channels`.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    The draw holds a seed for each plane; the field is made on the device from it.
    Matches batchgeneratorsv2 `GaussianNoiseTransform`.
    """

    class Spec(ChannelSpec):
        noise_variance: NotNegative = Uniform(0, 0.1)

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "sigma": draw_per_channel(rng, s.noise_variance, c, s.synchronize_channels),
            "seed": [rng.getrandbits(SEED_BITS) for _ in range(c)],
        }

    def plane(self, x: Tensor, sigma: float, seed: int) -> Tensor:
        return ops.gaussian_noise(x, sigma, seed)


class MultiplicativeBrightness(ImageAugmentation):
    """x · factor.

    Args:
        multiplier_range: the factor, drawn per row and channel, per row if `synchronize_channels`.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    Matches batchgeneratorsv2 `MultiplicativeBrightnessTransform`.
    """

    class Spec(ChannelSpec):
        multiplier_range: Scalar = SplitRange(0.75, 1.25)

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "factor": draw_per_channel(rng, s.multiplier_range, c, s.synchronize_channels),
        }

    def plane(self, x: Tensor, factor: float) -> Tensor:
        return ops.multiply(x, factor)


class Contrast(ImageAugmentation):
    """(x − mean) · factor + mean, with mean and range of the channel.

    Args:
        contrast_range: the factor, drawn per row and channel, per row if `synchronize_channels`.
        preserve_range: clamp to the channel's old minimum and maximum.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    Matches batchgeneratorsv2 `ContrastTransform`.
    """

    class Spec(ChannelSpec):
        contrast_range: Scalar = SplitRange(0.75, 1.25)
        preserve_range: bool = True

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "factor": draw_per_channel(rng, s.contrast_range, c, s.synchronize_channels),
        }

    def plane(self, x: Tensor, factor: float) -> Tensor:
        return ops.contrast(x, factor, self.spec.preserve_range)


class Gamma(ImageAugmentation):
    """((x − min) / range) ** gamma · range + min, with minimum and range of the channel.

    Args:
        gamma: the exponent, drawn per row and channel, per row if `synchronize_channels`.
        p_invert_image: probability per channel that −x is transformed and negated back.
        p_retain_stats: probability per channel that mean and standard deviation are restored.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    A patch of one voxel comes back unchanged. Matches batchgeneratorsv2 `GammaTransform`.
    """

    class Spec(ChannelSpec):
        gamma: Positive = SplitRange(0.7, 1.5)
        p_invert_image: Probability = 0.0
        p_retain_stats: Probability = 1.0

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "exponent": draw_per_channel(rng, s.gamma, c, s.synchronize_channels),
            "invert": draw_active(rng, c, s.p_invert_image),
            "retain_stats": draw_active(rng, c, s.p_retain_stats),
        }

    def plane(self, x: Tensor, exponent: float, invert: bool, retain_stats: bool) -> Tensor:
        return ops.gamma(x, exponent, invert, retain_stats)
