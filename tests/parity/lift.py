"""From what a real batchgeneratorsv2 object drew to the draw of our transform, so that both apply the same values.

What our side must not look at is NaN: values of channels and rows that were not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
from batchgeneratorsv2.transforms.intensity.contrast import ContrastTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
from batchgeneratorsv2.transforms.nnunet.random_binary_operator import ApplyRandomBinaryOperatorTransform
from batchgeneratorsv2.transforms.nnunet.remove_connected_components import (
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
)
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.spatial import spatial
from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform
from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from torch import Tensor

from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.ops import intensity
from nnunet_gpuaug.sampling import row_streams
from nnunet_gpuaug.transforms.base import Params, Transform

Values = dict[str, Any]
Sample = dict[str, Any]

FIELDS: dict[int, Tensor] = {}
"""The noise fields that the real objects added, under the seeds that the lifted draws hold."""


@contextmanager
def recorded_affine() -> Iterator[Values]:
    """Within it, the dict holds the angles and scales that SpatialTransform last built its matrix from: the matrix in
    its parameters does not determine them to the last bit."""
    seen: Values = {}

    def build_3d(angles: Any, scales: Any, build: Callable = spatial.create_affine_matrix_3d) -> np.ndarray:
        seen.update(angles=[float(a) for a in angles], scales=[float(s) for s in scales])
        return build(angles, scales)

    def build_2d(angle: Any, scales: Any, build: Callable = spatial.create_affine_matrix_2d) -> np.ndarray:
        seen.update(angles=[math.nan, float(angle)], scales=[float(s) for s in scales])
        return build(angle, scales)

    with mock.patch.multiple(spatial, create_affine_matrix_3d=build_3d, create_affine_matrix_2d=build_2d):
        yield seen


@contextmanager
def recorded_choices() -> Iterator[list[tuple[Any, Any]]]:
    """Within it, the list receives (options, choice) of each `np.random.choice`, (None, value) of each `uniform`."""
    seen: list[tuple[Any, Any]] = []

    def choice(options: Any, draw: Callable = np.random.choice) -> Any:
        seen.append((list(options), draw(options)))
        return seen[-1][1]

    def uniform(draw: Callable = np.random.uniform) -> float:
        seen.append((None, draw()))
        return seen[-1][1]

    with mock.patch.multiple(np.random, choice=choice, uniform=uniform):
        yield seen


@contextmanager
def recorded_noise() -> Iterator[None]:
    """Within it, our GaussianNoise adds the fields that the real objects added."""

    def field(like: Tensor, seed: int) -> Tensor:
        return FIELDS[seed].to(like, copy=True)

    with mock.patch.object(intensity, "seeded_normal", field):
        yield


def run_real(transform: Any, sample: Sample) -> tuple[Values | None, Sample]:
    """Draw and apply one step of a real pipeline. Returns its values, or None if its gate was closed."""
    if type(transform) is RandomTransform:
        if not transform.get_parameters(**sample)["apply_transform"]:
            return None, sample
        transform = transform.transform
    with recorded_affine() as affine:
        values = {**transform.get_parameters(**sample), **affine}
    if type(transform) is RemoveRandomConnectedComponentFromOneHotEncodingTransform:
        values["choices"] = {}
        for channel in values["apply_to_channels"]:  # one by one, to know whose choices are whose
            with recorded_choices() as values["choices"][channel]:
                sample = transform.apply(sample, apply_to_channels=[channel])
        return values, sample
    state = torch.get_rng_state()
    sample = transform.apply(sample, **values)
    if type(transform) is GaussianNoiseTransform:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            values["field"] = torch.empty((values["num_apply"], *sample["image"].shape[1:])).normal_()
    return values, sample


def lift(ours: Transform, real: Any, drawn: Sequence[Values | None], shape: Shape) -> Params:
    """The draw of `ours` for a batch in whose rows `real`, which it was mapped from, drew `drawn`."""
    real = real.transform if type(real) is RandomTransform else real
    params = ours.draw(row_streams(0, len(drawn)), shape)
    for name, values in params.items():
        if values.is_floating_point():
            params[name] = torch.full_like(values, math.nan)
    for row, values in enumerate(drawn):
        params["batch_prob"][row] = float(values is not None)
        if values is not None:
            for name, value in lift_row(ours, real, values, shape).items():
                params[name][row] = torch.as_tensor(value, dtype=params[name].dtype)
    return params


def lift_row(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    """Our values for one row, as Python numbers and lists, from what `real` drew for it."""
    return _LIFTS[type(real)](ours, real, values, shape) if type(real) in _LIFTS else {}


def _channels(drawn: Any, count: int, **values: Any) -> Values:
    """`active`, and full lists with one entry for each channel, from values for the drawn channels only."""
    index = _plain(drawn)
    out: Values = {"active": [c in index for c in range(count)]}
    for name, of_drawn in values.items():
        numbers = _plain(of_drawn)
        if numbers:
            out[name] = [_not_drawn(numbers[0])] * count
            for c, value in zip(index, numbers, strict=True):
                out[name][c] = value
    return out


def _plain(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, Tensor) else list(values)


def _not_drawn(like: Any) -> Any:
    if isinstance(like, list):
        return [math.nan] * len(like)
    return math.nan if isinstance(like, float) else 0


def _spatial(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    if values["grid"] is None:
        return {"warp": False}
    return {"warp": True, "angles": values["angles"], "scales": values["scales"]}


def _mirror(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return {"flip": [axis in values["axes"] for axis in range(len(shape.spatial))]}


def _noise(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    count, sigmas = values["num_apply"], values["sigmas"]
    if not isinstance(sigmas, list):  # one for all, or None if no channel was drawn
        sigmas = [float(sigmas)] * count if count else []
    seeds = []
    for plane in values.get("field", [None] * count):
        seeds.append(len(FIELDS))
        FIELDS[seeds[-1]] = plane
    return _channels(values["apply_idx"], shape.channels, sigma=sigmas, seed=seeds)


def _blur(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    index = values["apply_to_channel"].nonzero().flatten()
    sigmas = values["sigmas"]
    return _channels(index, shape.channels, sigmas=[sigmas] * len(index) if real.synchronize_channels else sigmas)


def _factors(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    factors = values["multipliers"]
    return _channels(values["apply_to_channel"], shape.channels, factor=[] if factors is None else factors)


def _low_resolution(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return _channels(values["apply_to_channel"], shape.channels, scales=values["scales"])


def _gamma(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    if values["gamma"] is None:
        return {"active": [False] * shape.channels}
    drawn = {"exponent": "gamma", "invert": "invert_image", "retain_stats": "retain_stats"}
    return _channels(
        values["apply_to_channel"], shape.channels, **{name: values[theirs] for name, theirs in drawn.items()}
    )


def _ordered(ours: Transform, drawn: Sequence[int], **values: Sequence[Any]) -> Values:
    """`order`, `active` and full lists: the drawn channels first, in their order."""
    channels = list(ours.spec.channel_idx)
    rest = [c for c in channels if c not in drawn]
    return {
        "order": [channels.index(c) for c in [*drawn, *rest]],
        "active": [True] * len(drawn) + [False] * len(rest),
        **{name: [*of_drawn, *([0] * len(rest))] for name, of_drawn in values.items()},
    }


def _binary_operator(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    operators = [list(real.any_of_these).index(operator) for operator in values["operators"]]
    radii = [float(r) for r in values["strel_size"]]
    return _ordered(ours, values["apply_to_channels"], operator=operators, radius=radii)


def _component(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    component, fill, other = [], [], []
    for channel in values["apply_to_channels"]:
        chosen, gate, given = [*values["choices"][channel], None, None, None][:3]
        component.append(_share(*chosen) if chosen else 0.0)
        fill.append(bool(gate) and gate[1] < real.fill_with_other_class_p)
        rest = [c for c in ours.spec.channel_idx if c != channel]
        other.append(_share(rest, given[1]) if given else 0.0)
    return _ordered(ours, values["apply_to_channels"], component=component, fill=fill, other=other)


def _share(options: Sequence[Any], choice: Any) -> float:
    """The middle of the part of 0 to 1 that stands for `choice` if all options have equal parts."""
    return (list(options).index(choice) + 0.5) / len(options)


_LIFTS: dict[type, Callable[[Transform, Any, Values, Shape], Values]] = {
    spatial.SpatialTransform: _spatial,
    MirrorTransform: _mirror,
    GaussianNoiseTransform: _noise,
    GaussianBlurTransform: _blur,
    MultiplicativeBrightnessTransform: _factors,
    ContrastTransform: _factors,
    SimulateLowResolutionTransform: _low_resolution,
    GammaTransform: _gamma,
    ApplyRandomBinaryOperatorTransform: _binary_operator,
    RemoveRandomConnectedComponentFromOneHotEncodingTransform: _component,
}
