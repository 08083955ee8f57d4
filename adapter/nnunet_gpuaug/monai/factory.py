"""Makes the dictionary transform of a transform class."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from typing import Any

from monai.config import KeysCollection

from ..errors import AugmentationError
from ..pipeline import Pipeline
from ..transforms import (
    ApplyRandomBinaryOperator,
    ConvertSegmentationToRegions,
    DownsampleSegForDS,
    OneOf,
    RemoveLabel,
    RemoveRandomConnectedComponent,
)
from ..transforms.base import ImageAugmentation, SpatialAugmentation, Transform
from .dictionary import DictionaryTransform, Holds, RandomDictionaryTransform, SpatialDictionaryTransform

_IMAGES = (ImageAugmentation, ApplyRandomBinaryOperator, RemoveRandomConnectedComponent)
_LABELS = (RemoveLabel, ConvertSegmentationToRegions, DownsampleSegForDS)

_KEYS = {
    "images": "the keys of one image or more, which get the same draw and so must agree in channels and size.",
    "labels": "the keys of one label map or more.",
    "image and label": "the key of the image and, after it, that of the label map, which may be left out where the "
    "transform needs none.",
}
_PROB = "probability for each sample of the batch that the transform is applied."
_BATCHED = "a value is a batch, (B, C, *S), drawn for sample by sample. False: one item, (C, *S), as in a `Compose`."
_MISSING = "leave out a key that the dictionary lacks, instead of raising."

_RAISES = """\
KeyError: a key is missing, and `allow_missing_keys` is False.
AugmentationError: a parameter is not allowed, or a value is not what the transform takes."""


def dictionary_transform(kind: type[Transform]) -> type[DictionaryTransform]:
    """The dictionary transform of a transform class, RandNNUNet…d, or NNUNet…d if nothing is random in it."""
    spatial = issubclass(kind, SpatialAugmentation | OneOf)
    base = SpatialDictionaryTransform if spatial else RandomDictionaryTransform if kind.gated else DictionaryTransform
    prob = {} if kind is OneOf or base is DictionaryTransform else {"prob": 0.1 if kind.gated else 1.0}

    def __init__(
        self: DictionaryTransform,
        keys: KeysCollection,
        *,
        batched: bool = True,
        allow_missing_keys: bool = False,
        **parameters: Any,
    ) -> None:
        if "p" in parameters and prob:
            raise AugmentationError(f"{type(self).__name__}: p = {parameters['p']!r}: it is called prob here")
        gate = {name: parameters.pop(name, default) for name, default in prob.items()}
        transform = kind(**parameters, **({"p": gate["prob"]} if gate else {}))
        base.__init__(self, keys, Pipeline([transform]), batched, allow_missing_keys, **gate)

    shared = {"keys": inspect.Parameter.empty, **prob, "batched": True, "allow_missing_keys": False}
    own = [p for name, p in inspect.signature(kind if kind is OneOf else kind.Spec).parameters.items() if name != "p"]
    holds = _held_by(kind)
    attributes = {
        "__init__": __init__,
        "__doc__": _docstring(kind, holds, bool(prob)),
        "__module__": __package__,
        "__signature__": _signature(shared, own),
        "holds": holds,
    }
    return type(f"{'NNUNet' if base is DictionaryTransform else 'RandNNUNet'}{kind.__name__}d", (base,), attributes)


def _held_by(kind: type[Transform]) -> Holds:
    return "images" if issubclass(kind, _IMAGES) else "labels" if issubclass(kind, _LABELS) else "image and label"


def _signature(shared: dict[str, Any], own: Sequence[inspect.Parameter]) -> inspect.Signature:
    named = inspect.Parameter.KEYWORD_ONLY
    first, *others = shared.items()
    keys = inspect.Parameter(first[0], inspect.Parameter.POSITIONAL_OR_KEYWORD)
    options = [inspect.Parameter(name, named, default=default) for name, default in others]
    return inspect.Signature(
        [keys, *[p.replace(kind=named, annotation=inspect.Parameter.empty) for p in own], *options]
    )


def _docstring(kind: type[Transform], holds: Holds, has_prob: bool) -> str:
    """That of the transform class, with the arguments and errors of a dictionary transform."""
    args, raises, text = [], [], []
    for paragraph in inspect.cleandoc(kind.__doc__).split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        section = {"Args:": args, "Raises:": raises}.get(head, text)
        section.append(textwrap.dedent(rest) if section is not text else paragraph)
    of_transform = [line for part in args for line in part.splitlines() if not line.startswith("p:")]
    prob = [f"prob: {_PROB}"] if has_prob else []
    lines = [f"keys: {_KEYS[holds]}", *of_transform, *prob, f"batched: {_BATCHED}", f"allow_missing_keys: {_MISSING}"]
    return "\n\n".join(
        [
            f"Dictionary transform of `nnunet_gpuaug.{kind.__name__}`.",
            *text,
            "Args:\n" + textwrap.indent("\n".join(lines), "    "),
            "Raises:\n" + textwrap.indent("\n".join([_RAISES, *raises]), "    "),
        ]
    )
