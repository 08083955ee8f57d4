"""Lifters for the transforms beyond nnU-Net's default pipeline.

Some of the real objects keep what they drew to themselves: the local ones return finished kernels, others draw while
they are applied. Within `recording`, their parameters hold it, too. `check` and `real_drawn` are those of the harness,
within it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from batchgeneratorsv2.helpers.scalar_type import sample_scalar
from batchgeneratorsv2.transforms.intensity.brightness import BrightnessAdditiveTransform
from batchgeneratorsv2.transforms.intensity.inversion import InvertImageTransform
from batchgeneratorsv2.transforms.intensity.random_clip import CutOffOutliersTransform
from batchgeneratorsv2.transforms.local import brightness_gradient, local_transform
from batchgeneratorsv2.transforms.local.brightness_gradient import BrightnessGradientAdditiveTransform
from batchgeneratorsv2.transforms.local.local_contrast import LocalContrastTransform
from batchgeneratorsv2.transforms.local.local_gamma import LocalGammaTransform
from batchgeneratorsv2.transforms.local.local_smoothing import LocalSmoothingTransform
from batchgeneratorsv2.transforms.noise.blank_rectangle import BlankRectangleTransform
from batchgeneratorsv2.transforms.noise.median_filter import MedianFilterTransform
from batchgeneratorsv2.transforms.noise.rician import RicianNoiseTransform
from batchgeneratorsv2.transforms.noise.sharpen import SharpeningTransform
from batchgeneratorsv2.transforms.spatial.rot90 import Rot90Transform
from batchgeneratorsv2.transforms.spatial.transpose import TransposeAxesTransform
from batchgeneratorsv2.transforms.utils.random import OneOfTransform, RandomTransform
from torch import Tensor

from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.transforms.base import Transform

from . import draws, harness, lift
from .lift import FIELDS, Values, lift_row

LOCAL = (
    BrightnessGradientAdditiveTransform,
    LocalGammaTransform,
    LocalContrastTransform,
    LocalSmoothingTransform,
)
_COLOUR = np.random.RandomState(0)  # takes over the state that the boxes' values were drawn from


@contextmanager
def recording() -> Iterator[None]:
    """Within it, parameters of local transforms hold `places`, a dict for each kernel; those of transforms that draw
    while they are applied hold `state`, the random state they begin with; those of OneOf hold choice and values."""
    places: list[Values] = []
    drawn: list[float] = []
    with ExitStack() as stack:

        def replace(owner: Any, name: str, new: Callable) -> None:
            stack.enter_context(mock.patch.object(owner, name, new))

        def sample(*args: Any) -> float:
            drawn.append(sample_scalar(*args))
            return drawn[-1]

        def generate(self: Any, size: Any, original: Callable = local_transform.LocalTransform._generate_kernel) -> Any:
            drawn.clear()
            kernel = original(self, size)
            centers = [loc * n for loc, n in zip(drawn[::2], size, strict=True)]
            places.append({"kernel": kernel, "centers": centers, "widths": drawn[1::2]})
            return kernel

        def strength(scalar: Any, image: Tensor, kernel: np.ndarray) -> float:
            places[-1]["strength"] = sample_scalar(scalar, image, kernel)
            return places[-1]["strength"]

        def local(original: Callable) -> Callable:
            def get_parameters(self: Any, **sample: Any) -> Values:
                places.clear()
                return {**original(self, **sample), "places": list(places)}

            return get_parameters

        def stateful(original: Callable, state: Callable) -> Callable:
            return lambda self, **sample: {**original(self, **sample), "state": state()}

        for kind in LOCAL:
            replace(kind, "get_parameters", local(kind.get_parameters))
        replace(local_transform.LocalTransform, "_generate_kernel", generate)
        replace(local_transform, "sample_scalar", sample)
        replace(brightness_gradient, "sample_scalar", strength)
        for kind, state in (
            (RicianNoiseTransform, torch.get_rng_state),
            (BlankRectangleTransform, np.random.get_state),
        ):
            replace(kind, "get_parameters", stateful(kind.get_parameters, state))
        replace(OneOfTransform, "get_parameters", _choose)
        replace(OneOfTransform, "apply", _apply_choice)
        yield


def _choose(self: Any, **sample: Any) -> Values:
    # the class itself chooses, among stand-ins that return their index
    choice = OneOfTransform([partial(int, i) for i in range(len(self.list_of_transforms))])()
    chosen = self.list_of_transforms[choice]
    if type(chosen) is RandomTransform:
        if not chosen.get_parameters(**sample)["apply_transform"]:
            return {"choice": choice, "chosen": None, "values": None}
        chosen = chosen.transform
    return {"choice": choice, "chosen": chosen, "values": chosen.get_parameters(**sample)}


def _apply_choice(self: Any, sample: Values, choice: int, chosen: Any, values: Values | None) -> Values:
    return sample if chosen is None else chosen.apply(sample, **values)


def check(*args: Any, **options: Any) -> harness.Drawn:
    with recording():
        return harness.check(*args, **options)


def real_drawn(*args: Any, **options: Any) -> draws.Arrays:
    with recording():
        drawn = draws.real_drawn(*args, **options)
    FIELDS.clear()
    return drawn


def _rot90(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    axes = [[int(axis) - 1 for axis in pair] for pair in values["axis_combinations"]]
    return {"rotations": values["num_rot_per_combination"], "axes": axes}


def _transpose(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return {"order": [axis - 1 for axis in values["axis_order"][1:]]}


def _median(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return {"active": values["apply_channel"], "size": values["filter_sizes"]}


def _sharpen(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return {
        "active": values["apply_channel"],
        "strength": values["strengths"],
        "clamp": values["clamp_intensities"],
    }


def _active(drawn: Tensor, count: int) -> list[bool]:
    return [channel in set(map(int, drawn)) for channel in range(count)]


def _additive(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    active = _active(values["apply_to_channel"], shape.channels)
    if values["shift"] is None:
        return {"active": active}
    return {"active": active, "shift": _where(active, values["shift"].tolist())}


def _where(active: list[bool], values: list[float]) -> list[float]:
    return [value if on else math.nan for on, value in zip(active, values, strict=True)]


def _invert(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return {"active": _active(values["apply_to_channel"], shape.channels)}


def _cut_off(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    ends = [(math.nan, math.nan) if pair is None else pair for pair in values["percentiles"]]
    return {
        "active": [pair is not None for pair in values["percentiles"]],
        "lower": [low for low, _ in ends],
        "upper": [high for _, high in ends],
        "retain_std": values["retain_std"],
    }


def _rician(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(values["state"])
        planes = [torch.empty((shape.channels, *shape.spatial)).normal_() for _ in range(2)]
    seed = len(FIELDS)
    FIELDS[seed] = torch.stack(planes)
    return {"sigma": values["variance"], "seed": seed}


def _rectangles(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    count, rank = real.num_rectangles, len(shape.spatial)
    most = count if isinstance(count, int) else count[1] - 1
    value = real.color_fn.rectangle_value
    drawn = isinstance(value, (tuple, list))
    if drawn:
        _COLOUR.set_state(values["state"])
    out: Values = {"active": values["apply_channel"], "count": [], "start": [], "size": [], "value": []}
    for boxes in values["rectangles"]:
        blank = [[0] * rank] * (most - len(boxes))
        out["count"].append(len(boxes))
        out["start"].append([low for low, _ in boxes] + blank)
        out["size"].append([[b - a for a, b in zip(low, high, strict=True)] for low, high in boxes] + blank)
        fill = [_COLOUR.uniform(*value) if drawn else value if np.isscalar(value) else math.nan for _ in boxes]
        out["value"].append(fill + [math.nan] * len(blank))
    return out


def _local(ours: Transform, real: Any, values: Values, shape: Shape, **own: list[float | None]) -> Values:
    """`own`: the transform's own values by channel, None where it was not drawn."""
    nowhere = {"centers": [math.nan] * len(shape.spatial), "widths": [math.nan] * len(shape.spatial)}
    of_channel = [
        next((place for place in values["places"] if place["kernel"] is kernel), nowhere)
        for kernel in values["kernels"]
    ]
    return {
        "active": [kernel is not None for kernel in values["kernels"]],
        "centers": [place["centers"] for place in of_channel],
        "widths": [place["widths"] for place in of_channel],
        **{name: [math.nan if v is None else v for v in of_all] for name, of_all in own.items()},
        **({"strength": [place.get("strength", math.nan) for place in of_channel]} if not own else {}),
    }


def _local_gamma(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return _local(ours, real, values, shape, exponent=values["gammas"])


def _local_contrast(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return _local(ours, real, values, shape, factor=values["contrasts"])


def _local_smoothing(ours: Transform, real: Any, values: Values, shape: Shape) -> Values:
    return _local(ours, real, values, shape, strength=values["strengths"], sigma=[values["sigma"]] * shape.channels)


def _one_of(ours: Any, real: Any, values: Values, shape: Shape) -> Values:
    choice, chosen = values["choice"], values["chosen"]
    out: Values = {"choice": choice}
    for index in range(len(ours.transforms)):
        out[f"{index}.batch_prob"] = float(index == choice and chosen is not None)
    if chosen is not None:
        own = lift_row(ours.transforms[choice], chosen, values["values"], shape)
        out.update({f"{choice}.{name}": value for name, value in own.items()})
    return out


lift._LIFTS.update(
    {
        Rot90Transform: _rot90,
        TransposeAxesTransform: _transpose,
        MedianFilterTransform: _median,
        SharpeningTransform: _sharpen,
        BrightnessAdditiveTransform: _additive,
        InvertImageTransform: _invert,
        CutOffOutliersTransform: _cut_off,
        RicianNoiseTransform: _rician,
        BlankRectangleTransform: _rectangles,
        BrightnessGradientAdditiveTransform: _local,
        LocalGammaTransform: _local_gamma,
        LocalContrastTransform: _local_contrast,
        LocalSmoothingTransform: _local_smoothing,
        OneOfTransform: _one_of,
    }
)
