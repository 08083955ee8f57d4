"""Runs the real objects row by row, lifts what they drew, runs our pipeline on the batch, compares after each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from torch import Tensor

from nnunet_gpuaug import Batch, Draw, Pipeline
from nnunet_gpuaug.nnunet.mapping import map_transforms
from nnunet_gpuaug.transforms.base import Params, Transform

from .lift import FIELDS, Sample, Values, lift, recorded_noise, run_real
from .measure import TOLERANCE, compare_images, compare_labels

Drawn = list[list[Values | None]]
"""For each step, what was drawn for each row; None where the gate was closed."""


def check(
    real: Any,
    image: Tensor,
    seg: Tensor | None,
    device: str,
    *,
    ours: Sequence[Transform] | None = None,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    measured_as: str = "",
) -> Drawn:
    """Assert that our pipeline does to a batch what the real objects do to its rows, step by step.

    Args:
        real: a transform, several, or ComposeTransforms.
        ours: our transforms, by default mapped from `real`.
        seed: of the real objects' draws.
        tolerance: largest allowed difference of the images; segmentations have to be equal.
        measured_as: prefix of the step's name in the summary.

    Returns:
        What the real objects drew.
    """
    steps = getattr(real, "transforms", real if isinstance(real, list) else [real])
    ours = map_transforms(ComposeTransforms(steps)) if ours is None else ours
    assert len(ours) == len(steps)
    np.random.seed(seed)
    torch.manual_seed(seed)
    rows = [_run_row(steps, image[row], None if seg is None else seg[row]) for row in range(len(image))]
    drawn = [list(of_step) for of_step in zip(*(drawn for drawn, _ in rows), strict=True)]
    expected = [list(of_step) for of_step in zip(*(samples for _, samples in rows), strict=True)]

    batch = Batch(image.to(device, copy=True), None if seg is None else seg.to(device, copy=True))
    pipeline = Pipeline(ours)
    draw = _lift_all(ours, steps, drawn, batch)
    after: list[Batch] = []
    for transform in ours:
        _record(transform, after)
    with recorded_noise():
        final = pipeline.apply(batch, draw)
    FIELDS.clear()

    names = [measured_as + _name(step) for step in steps]
    for name, batch_after, samples in zip(names, after, expected, strict=True):
        _compare(name, batch_after, samples, tolerance)
    if len(steps) > 1:
        _compare(f"{measured_as}the whole pipeline", final, expected[-1], tolerance)
    assert torch.equal(batch.image.cpu(), image), "the input image was changed"
    assert seg is None or torch.equal(batch.segmentation.cpu(), seg), "the input segmentation was changed"
    return drawn


def _name(step: Any) -> str:
    return type(step.transform if type(step) is RandomTransform else step).__name__.removesuffix("Transform")


def _run_row(steps: Sequence[Any], image: Tensor, seg: Tensor | None) -> tuple[list[Values | None], list[Sample]]:
    sample: Sample = {"image": image.clone()} if seg is None else {"image": image.clone(), "segmentation": seg.clone()}
    drawn, samples = [], []
    for step in steps:
        values, sample = run_real(step, sample)
        drawn.append(values)
        samples.append({key: _clone(value) for key, value in sample.items()})
    return drawn, samples


def _clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return [_clone(v) for v in value] if isinstance(value, list) else value


def _lift_all(ours: Sequence[Transform], steps: Sequence[Any], drawn: Drawn, batch: Batch) -> Draw:
    shape, params = batch.shape, []
    for transform, step, of_rows in zip(ours, steps, drawn, strict=True):
        params.append(lift(transform, step, of_rows, shape))
        shape = transform.shape_after(shape)
    return Draw(tuple(type(t).__name__ for t in ours), tuple(params))


def _record(transform: Transform, after: list[Batch]) -> None:
    """Let `transform` leave copies of its results in `after`; a later step may write into the originals."""
    apply = transform.apply

    def recording(batch: Batch, params: Params) -> Batch:
        out = apply(batch, params)
        after.append(Batch(out.image.clone(), _clone(out.segmentation), out.folded))
        return out

    transform.apply = recording


def _compare(name: str, ours: Batch, samples: Sequence[Sample], tolerance: float) -> None:
    compare_images(name, ours.image, torch.stack([s["image"] for s in samples]), tolerance)
    expected = [s.get("segmentation") for s in samples]
    if expected[0] is None:
        assert ours.segmentation is None
    elif isinstance(expected[0], list):
        assert isinstance(ours.segmentation, list)
        for target, targets in zip(ours.segmentation, zip(*expected, strict=True), strict=True):
            compare_labels(name, target, torch.stack(targets))
    else:
        compare_labels(name, ours.segmentation, torch.stack(expected))
