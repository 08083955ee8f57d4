"""YAML text to plain values that know their lines, and plain values to text. Nothing in the text is ever executed.

Read from the parser's events: no YAML loader constructs anything. Scalars follow YAML 1.2, so that `off` is a word and
`1e-3` a number. Tags, anchors and aliases are refused, and so is what is too large or too deep to be a pipeline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_DEPTH = 16
MAX_ITEMS = 10_000  # in one list or mapping
MAX_VALUES = 50_000  # in all
MAX_INTEGER = 2**63 - 1

_LONGEST = 60  # of a value in a message
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class DocumentError(Exception):
    """The text cannot be read on from here.

    Attributes:
        line: where, from 1 on.
        problem: what is wrong.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line, self.problem = line, problem


@dataclass(frozen=True)
class Node:
    """A value and where it is written.

    Attributes:
        value: None, bool, int, float, str, a list of nodes, or a dict of them.
        line: of the value, or of its key if it has one; from 1 on.
    """

    value: Any
    line: int

    def plain(self) -> Any:
        """The value without lines; lists become tuples."""
        if isinstance(self.value, list):
            return tuple(item.plain() for item in self.value)
        return {k: v.plain() for k, v in self.value.items()} if isinstance(self.value, dict) else self.value


def parse(text: str) -> tuple[Node, list[tuple[int, str]]]:
    """The document in `text`, and the keys that are given twice: line and text of each problem.

    Raises:
        DocumentError: not YAML, or something in it that is refused.
    """
    try:
        composer = _Composer(text)
        return composer.document(), composer.problems
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError(line, f"character #x{error.character:04x}: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise DocumentError(mark.line + 1 if mark else 1, f"not YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the parser's own int() and chr() can fail
        raise DocumentError(1, f"not YAML: {error}") from None


def resolve(text: str) -> None | bool | int | float | str:
    """What a scalar without quotes stands for.

    Raises:
        DocumentError: an integer too large for the pipeline's numbers (line 0).
    """
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        if len(text) > 20 or abs(int(text)) > MAX_INTEGER:
            raise DocumentError(0, f"{text[:20]}… is too large; allowed: integers up to 2**63 - 1")
        return int(text)
    if _REAL.fullmatch(text):
        return float(text)
    return float(text.lower().replace(".", "")) if _NOT_FINITE.fullmatch(text) else text


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float):
        return _real(value)
    if isinstance(value, str):
        is_plain = _WORD.fullmatch(value) and isinstance(resolve(value), str)
        return value if is_plain else json.dumps(value)
    return json.dumps(value)


def _real(value: float) -> str:
    text = repr(value)
    # without the dot, YAML 1.1 readers would take 1e-05 for a word
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def short(value: Any) -> str:
    """`flow`, cut for a message."""
    text = flow(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


class _Composer:
    """Builds nodes from the parser's events, and refuses what a pipeline does not need."""

    def __init__(self, text: str) -> None:
        self.events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.count = 0
        self.problems: list[tuple[int, str]] = []

    def document(self) -> Node:
        next(self.events)  # the start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return Node(None, 1)
        root = self.node(next(self.events), "", 1)
        next(self.events)  # the end of the document
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise DocumentError(after.start_mark.line + 1, "a second document; allowed: one")
        return root

    def node(self, event: Any, path: str, depth: int) -> Node:
        line = event.start_mark.line + 1
        self.refuse(event, line, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(self.items(line, path, depth), line)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self.mapping(line, path, depth), line)
        if not event.implicit[0]:  # in quotes
            return Node(event.value, line)
        try:
            return Node(resolve(event.value), line)
        except DocumentError as error:
            raise DocumentError(line, error.problem) from None

    def refuse(self, event: Any, line: int, depth: int) -> None:
        self.count += 1
        if isinstance(event, yaml.AliasEvent):
            raise DocumentError(line, f"*{event.anchor}: aliases are not allowed; write the value out")
        if event.anchor is not None:
            raise DocumentError(line, f"&{event.anchor}: anchors are not allowed; write the value out")
        if event.tag is not None:
            raise DocumentError(line, f"{event.tag!r}: tags are not allowed; the values are plain")
        if depth > MAX_DEPTH:
            raise DocumentError(line, f"nested too deeply; allowed: {MAX_DEPTH} levels")
        if self.count > MAX_VALUES:
            raise DocumentError(line, f"too many values; allowed: {MAX_VALUES}")

    def items(self, line: int, path: str, depth: int) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, f"{path}[{len(items)}]", depth + 1))
            self.limit(items, line)
        return items

    def mapping(self, line: int, path: str, depth: int) -> dict[str, Node]:
        values: dict[str, Node] = {}
        while not isinstance(key := next(self.events), yaml.MappingEndEvent):
            at = key.start_mark.line + 1
            self.refuse(key, at, depth)
            if not isinstance(key, yaml.ScalarEvent):
                raise DocumentError(at, "a list or mapping as a key; allowed: a name")
            inner = f"{path}.{short(key.value)}" if path else short(key.value)
            value = self.node(next(self.events), inner, depth + 1).value
            if key.value in values:
                self.problems.append((at, f"{inner}: given twice; allowed: once"))
            values.setdefault(key.value, Node(value, at))
            self.limit(values, line)
        return values

    def limit(self, items: Any, line: int) -> None:
        if len(items) > MAX_ITEMS:
            raise DocumentError(line, f"too many entries; allowed: {MAX_ITEMS}")
