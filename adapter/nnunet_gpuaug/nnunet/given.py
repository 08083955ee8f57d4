"""A pipeline that a user gives instead of the trainer's own: whether it fits, and what else follows from it."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size

from nnunet_gpuaug import AugmentationError, ConfigError, UnmappedTransformError
from nnunet_gpuaug import transforms as kinds
from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.nnunet.mapping import RULES, map_transforms, training_transforms, validation_transforms
from nnunet_gpuaug.sampling import highest, lowest
from nnunet_gpuaug.transforms.base import SpatialAugmentation, Transform

# The steps that give the targets, and a cascade's image, the form that network and loss are built for.
DEMANDED = (kinds.RemoveLabel, kinds.MoveSegAsOneHot, kinds.ConvertSegmentationToRegions, kinds.DownsampleSegForDS)

# What would find the wrong labels after a step, or none.
TOO_LATE = {
    kinds.RemoveLabel: (kinds.Spatial, kinds.MaskImage),
    kinds.DownsampleSegForDS: (SpatialAugmentation, kinds.Convert3DTo2D, kinds.Convert2DTo3D),
}

# With which nnU-Net's trainers compute the initial patch size, whatever scaling they draw: the default one, DA5.
SCALE_RANGES = ((0.85, 1.25), (0.7, 1.43))


class Configured(NamedTuple):
    """What nnU-Net's `configure_rotation_dummyDA_mirroring_and_inital_patch_size` returns."""

    rotation: Any
    dummy_2d: bool
    initial_patch_size: Sequence[int]
    mirror_axes: tuple[int, ...] | None


class _Reach(NamedTuple):
    """How far a pipeline turns the patch (the largest angle in radians), and whether in slices only (dummy 2D)."""

    angle: float
    in_slices: bool


def follow(transforms: Sequence[Transform], trainer: Any, own: Configured) -> Configured:
    """What a trainer has to use in place of its own values, so that they fit a given pipeline.

    Mirroring at test time takes the axes that the pipeline mirrors. The initial patch is the trainer's if the pipeline
    rotates as the trainer's own does, the final one if it neither rotates nor scales, else what nnU-Net would compute.

    Args:
        transforms: the given pipeline.
        trainer: the wrapped trainer.
        own: the trainer's own values.
    """
    patch, reach = trainer.configuration_manager.patch_size, _reach(transforms)
    try:
        own_reach = _reach(map_transforms(training_transforms(trainer, own)))
        unchanged = reach == own_reach
    except UnmappedTransformError:
        own_reach, unchanged = None, False
    if unchanged:
        size = own.initial_patch_size
    elif reach is None:
        size = patch
    else:
        size = _initial_patch_size(patch, reach, _scale_range(patch, own_reach, own.initial_patch_size))
    angle = 0.0 if reach is None else reach.angle
    dummy_2d = any(isinstance(t, kinds.Convert3DTo2D) for t in transforms)
    return Configured((-angle, angle), dummy_2d, size, _mirror_axes(transforms))


def check_fits(transforms: Sequence[Transform], trainer: Any, initial_patch_size: Sequence[int], source: str) -> None:
    """Raise if a trainer could not train with a given pipeline, or would train on something else than it should.

    Args:
        transforms: the pipeline.
        trainer: the wrapped trainer.
        initial_patch_size: size of the patches that the loaders will give.
        source: where the pipeline comes from, for the message.

    Raises:
        ConfigError: lists all that does not fit: field, value and what is expected.
    """
    problems = [
        *_patch_problems(transforms, trainer),
        *_label_problems(transforms, trainer),
        *_order_problems(transforms),
    ]
    problems = problems or list(_shape_problems(transforms, trainer, tuple(map(int, initial_patch_size))))
    if problems:
        raise ConfigError([f"{source}: {problem}" for problem in problems])


def _each(transforms: Sequence[Transform]) -> Iterator[tuple[Transform, bool]]:
    """Every transform, also those in a `OneOf`, and whether it sees slices (dummy 2D)."""
    in_slices = False
    for transform in transforms:
        if isinstance(transform, (kinds.Convert3DTo2D, kinds.Convert2DTo3D)):
            in_slices = isinstance(transform, kinds.Convert3DTo2D)
        for one in transform.transforms if isinstance(transform, kinds.OneOf) else [transform]:
            yield one, in_slices


def _mirror_axes(transforms: Sequence[Transform]) -> tuple[int, ...] | None:
    axes = {
        axis + in_slices
        for transform, in_slices in _each(transforms)
        if isinstance(transform, kinds.Mirror) and transform.p > 0
        for axis in transform.spec.allowed_axes
    }
    return tuple(sorted(axes)) or None


def _reach(transforms: Sequence[Transform]) -> _Reach | None:
    """The reach of the first spatial step, which gets the initial patch; None if it reads nothing beyond the final."""
    for transform, in_slices in _each(transforms):
        if isinstance(transform, kinds.Spatial):
            s = transform.spec
            if s.p_rotation == 0 and s.p_scaling == 0:
                return None
            turns = s.p_rotation > 0 and s.p_rot_per_axis > 0
            return _Reach(max(abs(lowest(s.rotation)), abs(highest(s.rotation))) if turns else 0.0, in_slices)
    return None


def _initial_patch_size(patch: Sequence[int], reach: _Reach, scale_range: tuple[float, float]) -> np.ndarray:
    size = get_patch_size(patch, reach.angle, reach.angle, reach.angle, scale_range)
    if reach.in_slices:
        size[0] = patch[0]
    return size


def _scale_range(patch: Sequence[int], own_reach: _Reach | None, own_size: Sequence[int]) -> tuple[float, float]:
    """The one that the trainer must have used."""
    for scale_range in SCALE_RANGES:
        if own_reach is not None and np.array_equal(_initial_patch_size(patch, own_reach, scale_range), own_size):
            return scale_range
    return SCALE_RANGES[0]


def _patch_problems(transforms: Sequence[Transform], trainer: Any) -> Iterator[str]:
    patch = tuple(trainer.configuration_manager.patch_size)
    in_slices = dict(_each(transforms))
    for index, transform in enumerate(transforms):
        if isinstance(transform, kinds.Spatial):
            expected = patch[1:] if in_slices[transform] else patch
            if transform.spec.patch_size != expected:
                yield _field(index, "patch_size", transform.spec.patch_size, expected)


def _label_problems(transforms: Sequence[Transform], trainer: Any) -> Iterator[str]:
    # The trainer's own validation says what is demanded, of any trainer. It may hold more, which is of no interest.
    validation = validation_transforms(trainer)
    rules = [(t, RULES.get(type(t))) for t in getattr(validation, "transforms", [validation])]
    demanded = [map_transforms(t)[0] for t, rule in rules if rule is not None and rule.target in DEMANDED]
    for kind in DEMANDED:
        expected = [t for t in demanded if type(t) is kind]
        given = [(index, t) for index, t in enumerate(transforms) if type(t) is kind]
        for transform in expected[len(given) :]:
            yield f"pipeline: a step is missing; expected {transform}"
        for index, _ in given[len(expected) :]:
            times = len(expected) or "no"
            yield (
                f"pipeline[{index}].kind = {kind.__name__}: expected {times} such step for "
                f"{trainer.gpuaug_wrapped().__name__}, {trainer.configuration_name}"
            )
        for (index, mine), wanted in zip(given, expected, strict=False):
            for name, value in mine.spec:
                if value != getattr(wanted.spec, name):
                    yield _field(index, name, value, getattr(wanted.spec, name))
    order = [type(t).__name__ for t in transforms if type(t) in DEMANDED]
    expected_order = [type(t).__name__ for t in demanded]
    if order != expected_order and sorted(order) == sorted(expected_order):
        yield f"pipeline: the order of {', '.join(order)}: expected {', '.join(expected_order)}"


def _order_problems(transforms: Sequence[Transform]) -> Iterator[str]:
    for kind, late in TOO_LATE.items():
        first = next((index for index, t in enumerate(transforms) if isinstance(t, kind)), len(transforms))
        for index, transform in enumerate(transforms):
            if index > first and isinstance(transform, late):
                yield f"pipeline[{index}].kind = {type(transform).__name__}: expected before {kind.__name__}"


def _shape_problems(transforms: Sequence[Transform], trainer: Any, size: tuple[int, ...]) -> Iterator[str]:
    dataset, patch = trainer.dataset_json, tuple(trainer.configuration_manager.patch_size)
    channels = len(dataset.get("modality", dataset.get("channel_names")))
    labels = len(trainer.label_manager.foreground_labels) if trainer.is_cascaded else 0
    shape = Shape(channels, 1 + trainer.is_cascaded, size)
    one_hot = range(channels, channels + labels)
    for index, transform in enumerate(transforms):
        if isinstance(transform, (kinds.ApplyRandomBinaryOperator, kinds.RemoveRandomConnectedComponent)):
            chosen = transform.spec.channel_idx
            if any(channel % shape.channels not in one_hot for channel in chosen):
                expected = f"some of {list(range(-labels, 0))}, after MoveSegAsOneHot" if labels else "no such step"
                yield _field(index, "channel_idx", chosen, expected)
        try:
            shape = transform.shape_after(shape)
        except AugmentationError as error:
            yield f"pipeline[{index}]: {error}"
            return
    if shape.folded:
        yield "pipeline: a step is missing; expected Convert2DTo3D after Convert3DTo2D"
    elif shape.spatial != patch:
        yield f"pipeline: it gives patches of {list(shape.spatial)}; expected {list(patch)}"


def _field(index: int, name: str, value: Any, expected: Any) -> str:
    value, expected = (_as_list(v) for v in (value, expected))
    return f"pipeline[{index}].{name} = {value}: expected {expected}"


def _as_list(value: Any) -> Any:
    return [_as_list(item) for item in value] if isinstance(value, tuple) else value
