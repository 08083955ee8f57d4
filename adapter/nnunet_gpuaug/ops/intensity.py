"""Intensity ops on one plane, a float tensor of any rank. Each returns a new tensor; none makes the host wait."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

EPS = 1e-7

def seeded_normal(like: Tensor, seed: int) -> Tensor:
    """N(0, 1), of the shape, dtype and device of `like`. The same seed gives the same field on one device."""
    generator = torch.Generator(like.device).manual_seed(seed)
    return torch.empty_like(like, memory_format=torch.contiguous_format).normal_(generator=generator)


def gaussian_noise(x: Tensor, sigma: float, seed: int) -> Tensor:
    """x + sigma · N(0, 1)."""
    return seeded_normal(x, seed).mul_(sigma).add_(x)


def multiply(x: Tensor, factor: float) -> Tensor:
    """x · factor."""
    return x * factor


def contrast(x: Tensor, factor: float, preserve_range: bool) -> Tensor:
    """(x − mean) · factor + mean, clamped to the range of x if `preserve_range`."""
    mean = x.mean()
    out = (x - mean).mul_(factor).add_(mean)
    return out.clamp_(*torch.aminmax(x)) if preserve_range else out


def gamma(x: Tensor, exponent: float, invert: bool, retain_stats: bool) -> Tensor:
    """((x − min) / range) ** exponent · range + min, of −x if `invert` (and negated back), with the mean and the
    (unbiased) standard deviation of the input put back if `retain_stats`.

    A plane of one voxel is its own constant and comes back unchanged, where batchgeneratorsv2 returns NaN.
    """
    if x.numel() == 1:
        return x.clone()
    x = -x if invert else x
    low, high = torch.aminmax(x)
    span = high - low
    out = (x - low).div_(span.clamp(min=EPS)).pow_(exponent).mul_(span).add_(low)
    if retain_stats:
        ratio = x.std() / out.std().clamp(min=EPS)
        out.sub_(out.mean()).mul_(ratio).add_(x.mean())
    return out.neg_() if invert else out


def invert(x: Tensor) -> Tensor:
    """mean − (x − mean)."""
    mean = x.mean()
    return (x - mean).neg_().add_(mean)


def clip_percentiles(x: Tensor, lower: float, upper: float, retain_std: bool) -> Tensor:
    """Clamp to two percentiles (0 to 100) of x, then give back its standard deviation if `retain_std`."""
    out = x.clamp(torch.quantile(x, lower / 100), torch.quantile(x, upper / 100))
    if not retain_std or x.numel() == 1:
        return out
    mean, std = out.mean(), out.std()
    return torch.where(std > 1e-8, (out - mean) / std * x.std() + mean, out)


def rician_noise(x: Tensor, sigma: float, seed: int) -> Tensor:
    """sqrt((x − min + n1)² + n2²) + min with n1, n2 ~ N(0, sigma²), brought back to the mean and standard deviation
    of x. All statistics over the whole of x, channels included. A single voxel comes back unchanged."""
    if x.numel() == 1:
        return x.clone()
    low = x.min()
    real, imaginary = seeded_normal(torch.stack([x, x]), seed).mul_(sigma)
    out = (x - low).add_(real).pow_(2).add_(imaginary.pow_(2)).sqrt_().add_(low)
    mean, std = out.mean(), out.std()
    varies = std > 0
    return torch.where(varies, (out - mean) / torch.where(varies, std, 1) * x.std() + x.mean(), out * 0 + x.mean())


def fill_rectangle(x: Tensor, start: Sequence[int], size: Sequence[int], value: float | None) -> None:
    """Set a box of x to `value`, or to its own mean if None. In place."""
    box = x[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))]
    box.copy_(box.mean()) if value is None else box.fill_(value)


def bump(like: Tensor, centers: Sequence[float], widths: Sequence[float]) -> Tensor:
    """A separable Gaussian over the plane, each voxel's share by its cumulative distribution, scaled to [0, 1].

    Args:
        like: gives shape, dtype and device.
        centers: in voxels; voxel i reaches from i − 0.5 to i + 0.5.
        widths: standard deviations in voxels.
    """
    axes = [
        np.diff(ndtr((np.arange(-0.5, n + 0.5) - c) / w)).astype(np.float32)
        for n, c, w in zip(like.shape, centers, widths, strict=True)
    ]
    # extremes of a product of non-negative factors, rounded as the product below rounds them
    low, high = (functools.reduce(np.multiply, [f(a) for a in axes]) for f in (np.min, np.max))
    vectors = _send(np.concatenate(axes), like).split(list(like.shape))
    out = vectors[0]
    for vector in vectors[1:]:
        out = out[..., None] * vector
    out = out - float(low)
    return out / torch.full((), float(high - low), device=like.device) if high > low else out


def _send(values: np.ndarray, like: Tensor) -> Tensor:
    host = torch.from_numpy(values)
    return host.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else host.to(like.device)


def add_gradient(x: Tensor, weights: Tensor, strength: float, mean_centered: bool) -> Tensor:
    """x + strength · weights / max |weights|, the weights' mean taken away first if `mean_centered`."""
    if mean_centered:
        weights = weights - weights.mean()
    peak = weights.abs().max()
    return x + torch.where(peak < 1e-8, torch.zeros_like(weights), weights / peak * strength)


def local_gamma(x: Tensor, weights: Tensor, exponent: float) -> Tensor:
    """Blend x, scaled to [0, 1], with its power: n · (1 − weights) + n ** exponent · weights, scaled back."""
    low, high = torch.aminmax(x)
    span = (high - low).clamp(min=1e-8)
    unit = (x - low) / span
    return (unit.pow(exponent).mul_(weights)).add_((1 - weights).mul_(unit)).mul_(span).add_(low)


def local_contrast(x: Tensor, weights: Tensor, factor: float) -> Tensor:
    """Blend x with (x − mean) · factor + mean, the mean weighted by `weights`."""
    mean = (x * weights).sum() / (weights.sum() + 1e-8)
    return ((x - mean).mul_(factor).add_(mean)).mul_(weights).add_((1 - weights).mul_(x))
