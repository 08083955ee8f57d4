"""YAML to transforms and settings, with every problem of a file in one error."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from .. import transforms as available
from ..errors import AugmentationError, ConfigError
from ..transforms import OneOf
from ..transforms.base import Transform
from .document import DocumentError, Node, parse, short
from .settings import Settings

MAX_BYTES = 2**20
_KINDS: dict[str, type[Transform]] = {name: getattr(available, name) for name in available.__all__}
_Model = TypeVar("_Model", bound=BaseModel)


class Config(NamedTuple):
    """What a configuration file says."""

    transforms: list[Transform]
    settings: Settings


def read_config(source: str | os.PathLike) -> Config:
    """Read a configuration.

    Args:
        source: the path of a file, or the text itself; a `str` with a line break or a colon followed by a blank is
            text.

    Raises:
        ConfigError: lists all problems, each with file, line, field, value and what is allowed.
    """
    name, text = _text_of(source)
    reader = _Reader()
    try:
        root, reader.problems = parse(text)
    except DocumentError as error:
        raise ConfigError([f"{name}:{error.line}: {error.problem}"]) from None
    config = reader.config(root)
    if reader.problems:
        raise ConfigError([f"{name}:{line}: {problem}" for line, problem in sorted(reader.problems)])
    return config


def _text_of(source: str | os.PathLike) -> tuple[str, str]:
    """Name and content of a source."""
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError([f"{type(source).__name__}: a configuration is a path or YAML text"])
    if isinstance(source, str) and ("\n" in source or ": " in source or not source):
        name, content = "<text>", source
    else:
        name, content = os.fspath(source), _content_of(source)
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{name}: too large; allowed: up to 1 MiB"])
    try:
        return name, content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{name}:{line}: not UTF-8 text ({error.reason})"]) from None


def _content_of(path: str | os.PathLike) -> bytes:
    if not os.path.isfile(path):
        raise ConfigError([f"{os.fspath(path)!r}: there is no such file"])
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{os.fspath(path)!r}: {error.strerror}"]) from None


class _Reader:
    """Walks the document and collects the problems in it.

    Attributes:
        problems: line and text of each.
    """

    def __init__(self) -> None:
        self.problems: list[tuple[int, str]] = []

    def report(self, node: Node, path: str, what: str, allowed: Iterable[str] = (), close: str = "") -> None:
        """Note a problem with the value of `node`."""
        allowed = ", ".join(allowed)
        parts = [f"{path} = {short(node.plain())}: {what}"]
        parts += [f"allowed: {allowed}"] if allowed else []
        parts += [f"did you mean {close}?"] if close else []
        self.problems.append((node.line, "; ".join(parts)))

    def fields(self, node: Node, path: str, known: Iterable[str], of: str) -> dict[str, Node]:
        """The known fields of a mapping; the others are reported."""
        prefix = f"{path}." if path else ""
        known = list(known)
        for name, value in node.value.items():
            if name not in known:
                self.report(value, prefix + short(name), f"no such field in {of}", known, _closest(name, known))
        return {name: value for name, value in node.value.items() if name in known}

    def config(self, root: Node) -> Config:
        if not isinstance(root.value, dict):
            self.report(root, "the file", "not a mapping", ["pipeline: […] and, optionally, settings: {…}"])
            return Config([], Settings())
        fields = self.fields(root, "", ("pipeline", "settings"), "a configuration")
        transforms = []
        if "pipeline" in fields:
            transforms = self.transforms(fields["pipeline"], "pipeline")
        else:
            self.problems.append((root.line, "pipeline: must be given; allowed: a list of transforms"))
        settings = Settings()
        if "settings" in fields:
            node = fields["settings"]
            if isinstance(node.value, dict):
                known = self.fields(node, "settings", Settings.model_fields, "settings")
                settings = self.model(Settings, known, node, "settings") or settings
            else:
                self.report(node, "settings", "not a mapping", ["{" + ", ".join(Settings.model_fields) + "}"])
        return Config(transforms, settings)

    def transforms(self, node: Node, path: str, optional: bool = False) -> list[Transform]:
        if not isinstance(node.value, list):
            self.report(node, path, "not a list", ["a list of transforms, each with its kind"])
            return []
        read = [self.transform(item, f"{path}[{index}]", optional) for index, item in enumerate(node.value)]
        return [transform for transform in read if transform is not None]

    def transform(self, node: Node, path: str, optional: bool) -> Transform | None:
        """One transform; None if something is wrong with it, which is then reported.

        Args:
            optional: it has to be one that can be left out for some rows.
        """
        if not isinstance(node.value, dict):
            self.report(node, path, "not a mapping", ["kind: NAME and the transform's parameters"])
            return None
        if "kind" not in node.value:
            self.problems.append((node.line, f"{path}.kind: must be given; allowed: {', '.join(_KINDS)}"))
            return None
        named = node.value["kind"]
        kind = _KINDS.get(named.value) if isinstance(named.value, str) else None
        if kind is None:
            self.report(named, f"{path}.kind", "no such transform", _KINDS, _closest(named.value, _KINDS))
            return None
        before = len(self.problems)
        if optional and not kind.gated:
            allowed = [name for name, kind in _KINDS.items() if kind.gated]
            self.report(named, f"{path}.kind", "cannot be left out for some rows", allowed)
        values = self.choice(node, path) if kind is OneOf else self.parameters(kind, node, path)
        if len(self.problems) > before:
            return None
        try:
            return kind(**values)
        except AugmentationError as error:
            self.report(node, path, str(error))
            return None

    def choice(self, node: Node, path: str) -> dict[str, Any]:
        fields = self.fields(node, path, ("kind", "transforms"), "OneOf")
        if "transforms" not in fields:
            self.problems.append((node.line, f"{path}.transforms: must be given; allowed: a list of transforms"))
            return {}
        path = f"{path}.transforms"
        if fields["transforms"].value == []:
            self.report(fields["transforms"], path, "empty", ["one transform or more"])
        return {"transforms": self.transforms(fields["transforms"], path, optional=True)}

    def parameters(self, kind: type[Transform], node: Node, path: str) -> dict[str, Any]:
        """The keyword arguments of a transform, checked."""
        gate = ["p"] if "p" in inspect.signature(kind).parameters else []
        fields = self.fields(node, path, ["kind", *gate, *kind.Spec.model_fields], kind.__name__)
        del fields["kind"]
        values = {}
        if p := fields.pop("p", None):
            values["p"] = p.value
            if isinstance(p.value, bool) or not isinstance(p.value, (int, float)) or not 0 <= p.value <= 1:
                self.report(p, f"{path}.p", "not allowed", ["a probability from 0 to 1"])
        self.model(kind.Spec, fields, node, path)
        return {**values, **{name: value.plain() for name, value in fields.items()}}

    def model(self, model: type[_Model], fields: dict[str, Node], node: Node, path: str) -> _Model | None:
        """The validated model; None if it is not valid, which is then reported."""
        try:
            return model.model_validate({name: value.plain() for name, value in fields.items()}, strict=True)
        except ValidationError as error:
            found = error.errors()
        for where, errors in _by_place(fields, found).items():
            self.explain(fields, where, errors, node, path)
        return None

    def explain(self, fields: dict[str, Node], where: tuple, errors: list[Any], node: Node, path: str) -> None:
        """Report pydantic's errors at one place: one, or one for each alternative."""
        if errors[0]["type"] == "missing" and not where:
            self.problems.append((node.line, f"{path}.{errors[0]['loc'][0]}: must be given"))
            return
        what, allowed = [], []
        for error in errors:
            message = error["msg"].removeprefix("Value error, ").replace("tuple", "list").replace("Tuple", "List")
            is_allowed = message.startswith(("Input should be ", "must be "))
            (allowed if is_allowed else what).append(message.removeprefix("Input should be ").removeprefix("must be "))
        value: Any = fields
        for step in where:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
            node = value[step]
            value = node.value
        what = " or ".join(dict.fromkeys(what)).replace("Field required", "too few values") or "not allowed"
        self.report(node, path, what, [" or ".join(dict.fromkeys(allowed))])


def _by_place(fields: dict[str, Node], errors: list[Any]) -> dict[tuple, list[Any]]:
    """Pydantic's errors by their place in the document.

    Where a type has alternatives pydantic reports on each, with a tag in the location; the alternatives that fit the
    furthest into the value say best what is wrong with it.
    """
    found = [(*_place(fields, error["loc"]), error) for error in errors]
    reach: dict[tuple, int] = {}
    furthest: dict[tuple, int] = {}
    for place, alternative, _ in found:
        reach[alternative] = max(len(place), reach.get(alternative, 0))
        furthest[alternative[:-1]] = max(reach[alternative], furthest.get(alternative[:-1], 0))
    places: dict[tuple, list[Any]] = {}
    for place, alternative, error in found:
        if reach[alternative] == furthest[alternative[:-1]]:
            places.setdefault(place, []).append(error)
    # a list with wrong items is also said to be too short
    return {p: e for p, e in places.items() if not any(other[: len(p)] == p != other for other in places)}


def _place(fields: dict[str, Node], location: tuple) -> tuple[tuple, tuple]:
    """The part of a pydantic location that is in the document, and its part up to the first tag."""
    place: list[str | int] = []
    alternative = (*location, "")
    value: Any = fields
    for index, step in enumerate(location):
        if step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value)):
            place.append(step)
            value = value[step].value
        elif alternative[-1] == "":
            alternative = location[: index + 1]
    return tuple(place), alternative


def _closest(name: Any, known: Iterable[str]) -> str:
    """Up to three known names like `name`, which may be nnU-Net's name of a class."""
    names = {candidate.lower(): candidate for candidate in known}
    wanted = str(name).lower().removesuffix("transform")
    close = [wanted] if wanted in names else difflib.get_close_matches(wanted, names, n=3)
    return " or ".join(names[found] for found in close)
