"""Transforms and settings to YAML."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..transforms import OneOf
from ..transforms.base import Transform
from .document import flow
from .settings import Settings


def write_config(
    transforms: Iterable[Transform],
    settings: Settings | None = None,
    comment: Callable[[Transform], str] | None = None,
) -> str:
    """The YAML text that `read_config` reads back: every parameter, defaults too.

    Args:
        transforms: the pipeline.
        settings: left out of the text if they are the default ones.
        comment: gives a line to write above each transform.
    """
    lines = ["pipeline:"] if (steps := list(transforms)) else ["pipeline: []"]
    lines += _steps(steps, "  ", comment)
    if settings is not None and settings != Settings():
        lines += ["settings:", *_fields(settings.model_dump(), "  ")]
    return "\n".join(lines) + "\n"


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a file. One that exists is replaced only once the new one is complete."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _steps(transforms: Iterable[Transform], indent: str, comment: Callable[[Transform], str] | None) -> Iterator[str]:
    for transform in transforms:
        if comment is not None:
            yield f"{indent}# {comment(transform)}"
        yield f"{indent}- kind: {type(transform).__name__}"
        inner = indent + "  "
        if isinstance(transform, OneOf):
            yield f"{inner}transforms:"
            yield from _steps(transform.transforms, inner + "  ", comment)
            continue
        if transform.gated or transform.p != 1:
            yield from _fields({"p": transform.p}, inner)
        values = transform.spec.model_dump()
        own = [name for name in type(transform.spec).__annotations__ if name in values]
        yield from _fields({**{name: values[name] for name in own}, **values}, inner)  # before what others have, too


def _fields(values: dict[str, Any], indent: str) -> Iterator[str]:
    return (f"{indent}{name}: {flow(value)}" for name, value in values.items())
