"""Random shapes, dtypes, labels and parameters for every transform: what has to hold for all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import make_batch
from checks import tensors
from nnunet_gpuaug import AugmentationError, Batch, Pipeline
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.transforms.base import Transform

PROBABILITY = st.sampled_from([0.0, 0.3, 1.0])
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def ranges(low: float, high: float) -> st.SearchStrategy:
    """A number, a range or a split range within [low, high]."""
    number = st.floats(low, high, allow_nan=False)
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(number, pair, st.fixed_dictionaries({"split": pair}))


def local() -> dict[str, Any]:
    scale = ranges(0.01, 30) | st.fixed_dictionaries({"log_uniform_of_size": st.integers(1, 10)})
    return {"p": PROBABILITY, "scale": scale, "loc": ranges(-3, 3), "same_for_all_channels": st.booleans()}


def sizes(highest: int) -> st.SearchStrategy:
    """A whole number or a range of them."""
    number = st.integers(1, highest)
    return number | st.tuples(number, number)


def shared() -> dict[str, Any]:
    return {"p": PROBABILITY, "p_per_channel": PROBABILITY, "synchronize_channels": st.booleans()}


def axes(rank: int) -> st.SearchStrategy:
    """Some of the axes; sometimes one that does not exist."""
    return st.lists(st.integers(0, min(rank, 2)), unique=True, max_size=3).map(tuple)


def channels(highest: int) -> st.SearchStrategy:
    return st.lists(st.integers(-highest, highest - 1), unique=True, min_size=1, max_size=3).map(tuple)


LABELS = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4).map(tuple)
BEFORE_CASCADE = [T.MoveSegAsOneHot(source_channel_idx=0, all_labels=(1, 2), remove_channel_from_source=False)]

SIDES = st.tuples(st.integers(1, 5), st.integers(1, 5))
CHOICES = [T.Gamma(), T.GaussianBlur(p=0.5), T.Mirror(allowed_axes=(1,)), T.TransposeAxes(allowed_axes=(0, 1))]

# name: parameters for a spatial rank
PARAMETERS: dict[str, Any] = {
    "GaussianNoise": lambda rank: {**shared(), "noise_variance": ranges(0, 2)},
    "MultiplicativeBrightness": lambda rank: {**shared(), "multiplier_range": ranges(-2, 2)},
    "Contrast": lambda rank: {**shared(), "contrast_range": ranges(-2, 2), "preserve_range": st.booleans()},
    "Gamma": lambda rank: {
        **shared(),
        "gamma": ranges(0.1, 5),
        "p_invert_image": PROBABILITY,
        "p_retain_stats": PROBABILITY,
    },
    "GaussianBlur": lambda rank: {**shared(), "blur_sigma": ranges(0, 3), "synchronize_axes": st.booleans()},
    "SimulateLowResolution": lambda rank: {
        **shared(),
        "scale": ranges(0.01, 2),
        "synchronize_axes": st.booleans(),
        "ignore_axes": st.none() | axes(rank),
        "allowed_channels": st.none() | st.lists(st.integers(0, 2), unique=True).map(tuple),
    },
    "Spatial": lambda rank: {
        "p": PROBABILITY,
        "patch_size": st.tuples(*[st.integers(1, 20)] * rank),
        "p_rotation": PROBABILITY,
        "rotation": ranges(-4, 4),
        "p_rot_per_axis": PROBABILITY,
        "p_scaling": PROBABILITY,
        "scaling": ranges(0.1, 3),
        "p_synchronize_scaling_across_axes": PROBABILITY,
        "mode_image": st.sampled_from(["bilinear", "nearest"]),
        "mode_seg": st.sampled_from(["bilinear", "nearest"]),
        "padding_mode_image": st.sampled_from(["zeros", "constant", "border", "reflection"]),
        "padding_value_image": st.floats(-3, 3),
        "border_mode_seg": st.sampled_from(["zeros", "constant"]),
        "padding_value_seg": st.integers(-1, 5),
        "seg_tiebreak": st.sampled_from(["nearest", "lowest", "highest"]),
    },
    "Mirror": lambda rank: {"p": PROBABILITY, "allowed_axes": axes(rank)},
    "Rot90": lambda rank: {
        "p": PROBABILITY,
        "num_axis_combinations": st.integers(1, 3),
        "num_rot_per_combination": st.lists(st.integers(0, 5), min_size=1, max_size=3),
        "allowed_axes": st.lists(st.integers(0, rank - 1), unique=True, min_size=2),
    },
    "TransposeAxes": lambda rank: {"p": PROBABILITY, "allowed_axes": axes(rank)},
    "BrightnessAdditive": lambda rank: {**shared(), "mu": st.floats(-2, 0), "sigma": st.floats(0, 2)},
    "InvertImage": lambda rank: {
        "p": PROBABILITY,
        "p_invert_image": PROBABILITY,
        "p_synchronize_channels": PROBABILITY,
    },
    "CutOffOutliers": lambda rank: {
        "p": PROBABILITY,
        "percentile_lower": ranges(1, 49),
        "percentile_upper": ranges(50, 100),
        "p_synchronize_channels": st.booleans(),
        "p_retain_std": PROBABILITY,
    },
    "RicianNoise": lambda rank: {"p": PROBABILITY, "noise_variance": ranges(0, 2)},
    "MedianFilter": lambda rank: {
        "p": PROBABILITY,
        "filter_size": sizes(6),
        "p_same_for_each_channel": PROBABILITY,
        "p_per_channel": PROBABILITY,
    },
    "Sharpening": lambda rank: {
        "p": PROBABILITY,
        "strength": ranges(-1, 1),
        "p_clamp_intensities": PROBABILITY,
        "p_per_channel": PROBABILITY,
    },
    "BrightnessGradientAdditive": lambda rank: {
        **local(),
        "max_strength": ranges(-5, 5),
        "mean_centered": st.booleans(),
    },
    "LocalGamma": lambda rank: {**local(), "gamma": ranges(0.1, 5)},
    "LocalContrast": lambda rank: {**local(), "new_contrast": ranges(-2, 2)},
    "LocalSmoothing": lambda rank: {**local(), "smoothing_strength": ranges(0, 1), "kernel_size": ranges(0, 3)},
    "BlankRectangle": lambda rank: {
        "p": PROBABILITY,
        "rectangle_size": st.integers(1, 5) | st.tuples(*[st.integers(1, 5)] * rank) | st.tuples(*[SIDES] * rank),
        "rectangle_value": st.just("mean") | st.floats(-2, 2) | st.tuples(st.floats(-2, 0), st.floats(0, 2)),
        "num_rectangles": sizes(4),
        "force_square": st.booleans(),
        "p_per_channel": PROBABILITY,
    },
    "OneOf": lambda rank: {"transforms": st.lists(st.sampled_from(CHOICES), min_size=1, max_size=3)},
    "Convert3DTo2D": lambda rank: {},
    "Convert2DTo3D": lambda rank: {},
    "MaskImage": lambda rank: {
        "apply_to_channels": channels(3),
        "channel_idx_in_seg": st.integers(-1, 1),
        "set_outside_to": st.floats(-1, 1),
    },
    "RemoveLabel": lambda rank: {
        "label_value": st.integers(-1, 3),
        "set_to": st.integers(0, 5),
        "segmentation_channels": st.none() | channels(2),
    },
    "ConvertSegmentationToRegions": lambda rank: {
        "regions": st.lists(st.integers(0, 9) | LABELS, min_size=1, max_size=4),
        "channel_in_seg": st.integers(-1, 1),
    },
    "DownsampleSegForDS": lambda rank: {
        "ds_scales": st.lists(st.floats(0.05, 1.5) | st.tuples(*[st.floats(0.05, 1.5)] * rank), min_size=1, max_size=3)
    },
    "MoveSegAsOneHot": lambda rank: {
        "source_channel_idx": st.integers(0, 1),
        "all_labels": LABELS,
        "remove_channel_from_source": st.booleans(),
    },
    "ApplyRandomBinaryOperator": lambda rank: {
        "p": PROBABILITY,
        "channel_idx": st.just((-1, -2)) | channels(3),
        "strel_size": ranges(0, 4),
        "p_per_label": PROBABILITY,
    },
    "RemoveRandomConnectedComponent": lambda rank: {
        "p": PROBABILITY,
        "channel_idx": st.just((-1, -2)) | channels(3),
        "fill_with_other_class_p": PROBABILITY,
        "dont_do_if_covers_more_than_x_percent": PROBABILITY,
        "p_per_label": PROBABILITY,
    },
}


@st.composite
def batches(draw, rank: int) -> Batch:
    number = st.integers(1, 20 if rank == 2 else 9)
    size = draw(st.tuples(*[number] * rank) | number.map(lambda n: (n,) * rank))
    seg_dtype = draw(st.sampled_from([*INTEGERS, torch.float32]))
    lowest = 0 if seg_dtype == torch.uint8 else -1
    labels = draw(st.lists(st.integers(lowest, 120), unique=True, min_size=1, max_size=5))
    batch = make_batch(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        size,
        draw(st.integers(1, 2)),
        dtype=draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])),
        seg_dtype=seg_dtype,
        labels=tuple(labels),
    )
    if draw(st.booleans()):  # constant, also far from 0
        batch = Batch(torch.full_like(batch.image, draw(st.sampled_from([0.0, 5.0, -300.0]))), batch.segmentation)
    return batch


def new_labels(transform: Transform) -> set[float]:
    """The labels that a transform may bring in: its padding label, 0, and what it is told to write."""
    spec = {} if isinstance(transform, T.OneOf) else transform.spec.model_dump()
    return {0, spec.get("padding_value_seg", 0), spec.get("set_to", 0)}


def check(transform: Transform, batch: Batch) -> bool:
    """Whether the batch could be transformed; all promises are asserted if so."""
    steps = [transform]
    if type(transform).__name__ == "Convert2DTo3D":
        steps.insert(0, T.Convert3DTo2D())
    elif "channel_idx" in type(transform).Spec.model_fields:
        steps = [*BEFORE_CASCADE, transform]
    image, seg = batch.image.clone(), batch.segmentation.clone()
    pipeline = Pipeline(steps, seed=0)
    try:
        draw = pipeline.draw(batch)
        shape = batch.shape
        for step in steps:
            shape = step.shape_after(shape)
        out = pipeline.apply(batch, draw)
    except AugmentationError as error:
        assert any(name in str(error) for name in (*T.__all__, "cannot hold")), error
        return False
    assert torch.equal(batch.image, image) and torch.equal(batch.segmentation, seg)
    assert out.image.shape == (len(batch), shape.channels, *shape.spatial) and out.image.dtype == image.dtype
    assert bool(out.image.isfinite().all())
    before = set(seg.unique().tolist()) | new_labels(transform)
    targets = tensors(out)[1:]
    for target in targets:
        assert target.shape[:2] == (len(batch), shape.seg_channels)
        assert target.dtype == torch.bool or set(target.unique().tolist()) <= before
    if isinstance(out.segmentation, torch.Tensor):
        assert out.segmentation.shape[2:] == shape.spatial
    return True


def test_every_transform_is_here():
    assert set(PARAMETERS) == set(T.__all__)


@pytest.mark.parametrize("name", PARAMETERS)
def test_properties(name):
    done = []

    @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), rank=st.sampled_from([2, 3]))
    def run(data: Any, rank: int) -> None:
        values = data.draw(st.fixed_dictionaries(PARAMETERS[name](rank)))
        done.append(check(getattr(T, name)(**values), data.draw(batches(rank))))

    run()
    assert sum(done) >= len(done) / 5, "nearly all examples were refused, so nothing was tested"
