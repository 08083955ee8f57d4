"""Checks of error messages."""

import pytest

from nnunet_gpuaug import AugmentationError


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
