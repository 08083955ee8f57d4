"""Every dictionary transform computes, bit by bit, what its transform computes with the same draw."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.transforms import Compose
from twins import CLASSES, class_of, collated, generator_of, twin_of

from cases import CASES
from checks import assert_same
from nnunet_gpuaug import Batch, Pipeline
from nnunet_gpuaug import transforms as T

each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def as_labels(batch: Batch) -> Batch:
    """Regions are bool, which a pipeline does not start from; a dictionary transform does."""
    seg = batch.segmentation
    return replace(batch, segmentation=seg.to(torch.uint8)) if seg.dtype == torch.bool else batch


def assert_equal(data, batch: Batch) -> None:
    got, expected = plain(data["label"]), batch.segmentation
    if isinstance(expected, list):  # of regions
        expected = [level.to(own.dtype) for level, own in zip(expected, got, strict=True)]
    assert_same(Batch(plain(data["image"]), got), Batch(batch.image, expected))


def plain(x):
    return [plain(level) for level in x] if isinstance(x, list) else x.as_tensor() if isinstance(x, MetaTensor) else x


def test_every_transform_has_one():
    assert {class_of(getattr(T, name)) for name in T.__all__} == set(CLASSES.values()) - {CLASSES["NNUNetAugmentd"]}


@each
@pytest.mark.parametrize("metadata", [True, False], ids=["MetaTensor", "Tensor"])
def test_equals_the_pipeline(case, metadata, device):
    batch = case.batch(device=device)
    data = collated(batch) if metadata else {"image": batch.image, "label": batch.segmentation}
    for seed, step in enumerate(case.steps(p=0.6)):
        pipeline = Pipeline([step])
        batch = pipeline.apply(as_labels(batch), pipeline.draw(as_labels(batch), generator_of(seed)))
        data = twin_of(step, seed)(data)
        assert_equal(data, batch)
    assert isinstance(data["image"], MetaTensor) == metadata


@each
def test_items_in_a_compose(case):
    """An item is drawn for as a batch of one."""
    batch = case.batch(rows=1)
    steps = case.steps()
    twins = [twin_of(step, batched=False) for step in steps]
    compose = Compose(twins).set_random_state(3)
    seeds = [int(seed) for seed in next_seeds(twins)]
    out = compose({"image": batch.image[0], "label": batch.segmentation[0]})
    for step, seed in zip(steps, seeds, strict=True):
        pipeline = Pipeline([step])
        batch = pipeline.apply(as_labels(batch), pipeline.draw(as_labels(batch), torch.Generator().manual_seed(seed)))
    seg = batch.segmentation
    first = [level[0] for level in seg] if isinstance(seg, list) else seg[0]
    assert_equal(out, Batch(batch.image[0], first))


def next_seeds(twins):
    """What each will draw first, asked of copies of their states."""
    for twin in twins:
        if not hasattr(twin, "R"):
            yield 0
            continue
        copy = np.random.RandomState()
        copy.set_state(twin.R.get_state())
        yield copy.randint(2**62, dtype=np.int64)
