"""Checks of results and of error messages."""

import pytest
import torch

from nnunet_gpuaug import AugmentationError, Batch


def tensors(batch: Batch) -> list[torch.Tensor]:
    """The image and all segmentations of a batch."""
    seg = batch.segmentation
    return [batch.image, *(seg if isinstance(seg, list) else [] if seg is None else [seg])]


def assert_same(got: Batch, expected: Batch, **tolerance: float) -> None:
    """Equal tensors, NaN equal to NaN; bit-equal if no tolerance is given. Segmentations always exactly."""
    a, b = tensors(got), tensors(expected)
    assert len(a) == len(b)
    torch.testing.assert_close(a[0], b[0], **(tolerance or {"rtol": 0, "atol": 0}), equal_nan=True)
    for left, right in zip(a[1:], b[1:], strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


def differ(a: Batch, b: Batch) -> bool:
    """Whether any tensor differs."""
    return any(not torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))


def message_of(call) -> str:
    with pytest.raises(AugmentationError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    text = str(caught.value)
    assert len(text) < 500, text
    return text


def check(call, *parts: str) -> None:
    text = message_of(call)
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in {text!r}"
