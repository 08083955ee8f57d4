"""Intensity ops on one plane, a float tensor of any rank. Each returns a new tensor; none makes the host wait."""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 1e-7

_generators: dict[torch.device, torch.Generator] = {}


def seeded_normal(like: Tensor, seed: int) -> Tensor:
    """N(0, 1), of the shape, dtype and device of `like`. The same seed gives the same field on one device."""
    generator = _generators.get(like.device)
    if generator is None:
        generator = _generators[like.device] = torch.Generator(like.device)
    generator.manual_seed(seed)
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
