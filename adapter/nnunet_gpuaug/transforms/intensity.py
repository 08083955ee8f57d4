"""Intensity augmentations. Drawn for each row with probability `p`, then for each channel with `p_per_channel`."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator
from torch import Tensor

from ..batch import Batch, Shape
from ..ops import intensity as ops
from ..sampling import (
    SEED_BITS,
    Constant,
    NotNegative,
    Percentile,
    Positive,
    Probability,
    Scalar,
    SplitRange,
    Uniform,
)
from .base import ImageAugmentation, Params, Spec, drawn_rows


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


class BrightnessAdditive(ImageAugmentation):
    """x + shift.

    Args:
        mu, sigma: the shift is N(mu, sigma²), drawn per row and channel. With `synchronize_channels` it is
            U(mu, sigma), drawn per row, which is what batchgeneratorsv2 draws then.
        p_per_channel, synchronize_channels: see `ChannelSpec`.
        p: probability per row.

    Raises:
        AugmentationError: `synchronize_channels` with mu > sigma.

    Matches batchgeneratorsv2 `BrightnessAdditiveTransform`.
    """

    class Spec(ChannelSpec):
        mu: float
        sigma: float = Field(ge=0)
        synchronize_channels: bool = True

        @model_validator(mode="after")
        def _is_a_range(self) -> BrightnessAdditive.Spec:
            if self.synchronize_channels and self.mu > self.sigma:
                raise ValueError("with synchronize_channels the shift is U(mu, sigma), so mu must not exceed sigma")
            return self

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        shared = rng.uniform(s.mu, s.sigma) if s.synchronize_channels else None
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "shift": [rng.gauss(s.mu, s.sigma) if shared is None else shared for _ in range(c)],
        }

    def plane(self, x: Tensor, shift: float) -> Tensor:
        return x + shift


class InvertImage(ImageAugmentation):
    """mean − (x − mean), with the mean of the channel.

    Args:
        p_invert_image: probability per row.
        p_synchronize_channels: probability per row that all channels are inverted.
        p_per_channel: else, the probability per channel.
        p: probability per row, on top of `p_invert_image`.

    Matches batchgeneratorsv2 `InvertImageTransform`.
    """

    class Spec(Spec):
        p_invert_image: Probability
        p_synchronize_channels: Probability = 1.0
        p_per_channel: Probability = 1.0

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s = self.spec
        invert, every = rng.random() < s.p_invert_image, rng.random() < s.p_synchronize_channels
        return {"active": [invert and (every or on) for on in draw_active(rng, shape.channels, s.p_per_channel)]}

    def plane(self, x: Tensor) -> Tensor:
        return ops.invert(x)


class CutOffOutliers(ImageAugmentation):
    """Clamp to two percentiles of the channel, and give back its standard deviation.

    Args:
        percentile_lower, percentile_upper: 0 to 100, drawn per row and channel, per row if `p_synchronize_channels`.
        p_retain_std: probability per channel that the standard deviation is given back.
        p_synchronize_channels: a switch, whatever its name says.
        p_per_channel: probability per channel.
        p: probability per row.

    Matches batchgeneratorsv2 `CutOffOutliersTransform`.
    """

    class Spec(Spec):
        percentile_lower: Percentile = Constant(0.2)
        percentile_upper: Percentile = Constant(99.8)
        p_synchronize_channels: bool = False
        p_per_channel: Probability = 1.0
        p_retain_std: Probability = 1.0

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, c = self.spec, shape.channels
        return {
            "active": draw_active(rng, c, s.p_per_channel),
            "lower": draw_per_channel(rng, s.percentile_lower, c, s.p_synchronize_channels),
            "upper": draw_per_channel(rng, s.percentile_upper, c, s.p_synchronize_channels),
            "retain_std": draw_active(rng, c, s.p_retain_std),
        }

    def plane(self, x: Tensor, lower: float, upper: float, retain_std: bool) -> Tensor:
        return ops.clip_percentiles(x, lower, upper, retain_std)


class RicianNoise(ImageAugmentation):
    """sqrt((x − min + n1)² + n2²) + min, then back to the row's mean and standard deviation. All channels of a row
    are transformed together, and share the statistics.

    Args:
        noise_variance: the standard deviation of n1 and n2, drawn per row; the original's name.
        p: probability per row.

    Matches batchgeneratorsv2 `RicianNoiseTransform`.
    """

    class Spec(Spec):
        noise_variance: NotNegative = Uniform(0.0, 0.1)

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        return {"sigma": float(self.spec.noise_variance(rng)), "seed": rng.getrandbits(SEED_BITS)}

    def apply(self, batch: Batch, params: Params) -> Batch:
        rows = drawn_rows(params)
        image = batch.image if batch.owned or not rows else batch.image.clone()
        for row in rows:
            image[row] = ops.rician_noise(image[row], params["sigma"][row].item(), params["seed"][row].item())
        return replace(batch, image=image)
