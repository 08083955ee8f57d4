"""Random shapes, dtypes, labels and parameters for every transform: what has to hold for all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import make_batch, tensors
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


def shared() -> dict[str, Any]:
    return {"p": PROBABILITY, "p_per_channel": PROBABILITY, "synchronize_channels": st.booleans()}


def axes(rank: int) -> st.SearchStrategy:
    """Some of the axes; sometimes one that does not exist."""
    return st.lists(st.integers(0, rank), unique=True, max_size=3).map(tuple)


def channels(highest: int) -> st.SearchStrategy:
    return st.lists(st.integers(-highest, highest - 1), unique=True, min_size=1, max_size=3).map(tuple)


LABELS = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4).map(tuple)
BEFORE_CASCADE = [T.MoveSegAsOneHot(source_channel_idx=0, all_labels=(1, 2), remove_channel_from_source=False)]

# name: (steps before it, parameters for a spatial rank)
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
    size = draw(st.tuples(*[st.integers(1, 20 if rank == 2 else 9)] * rank))
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
    spec = transform.spec.model_dump()
    return {0, spec.get("padding_value_seg", 0), spec.get("set_to", 0)}


def check(transform: Transform, batch: Batch) -> bool:
    """Whether the batch could be transformed; all promises are asserted if so."""
    steps = [transform]
    if type(transform).__name__ == "Convert2DTo3D":
        steps.insert(0, T.Convert3DTo2D())
    elif "channel_idx" in type(transform.spec).model_fields:
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
        assert (
            type(steps[0]).__name__ in str(error)
            or type(transform).__name__ in str(error)
            or "cannot hold" in str(error)
        )
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
