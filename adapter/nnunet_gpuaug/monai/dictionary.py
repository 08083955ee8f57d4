"""What all dictionary transforms share: from the dictionary to batches, through a pipeline, and back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import MetaTensor, decollate_batch, get_track_meta, list_data_collate, to_affine_nd
from monai.transforms import InvertibleTransform, MapTransform, RandomizableTransform
from monai.utils import TraceKeys, TransformBackends
from torch import Tensor

from ..batch import Batch
from ..errors import AugmentationError
from ..pipeline import Draw, Pipeline
from ..sampling import SEED_BITS
from .moves import Move, matrix_of, moves_of, resizing

FOLDED = "nnunet_folded"
"""The key under which a dictionary says that its first spatial axis is folded into the channels (dummy 2D)."""

Holds = Literal["images", "labels", "image and label"]


class DictionaryTransform(MapTransform):
    """A pipeline for the values under some keys of a dictionary; what is under the others stays as it is.

    Attributes:
        pipeline: what is applied.
        drawn: what the last call drew; `pipeline.apply` repeats it.
    """

    backend = [TransformBackends.TORCH]
    holds: ClassVar[Holds] = "image and label"

    def __init__(self, keys: KeysCollection, pipeline: Pipeline, batched: bool, allow_missing_keys: bool) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys)
        if self.holds == "image and label" and len(self.keys) > 2:
            raise AugmentationError(
                f"{type(self).__name__}: keys = {self.keys}; allowed: the image's key and, after it, the label's. "
                "Several images or several labels are channels of one: concatenate them before"
            )
        self.pipeline = pipeline
        self.batched = batched
        self.drawn = None

    def randomize(self, data: Batch) -> Draw:
        """Draw for a batch, or for one item as a batch of one."""
        self.drawn = drawn = self.pipeline.draw(data)
        return drawn

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The dictionary with new values under the keys.

        Raises:
            KeyError: a key is missing, and `allow_missing_keys` is False.
            AugmentationError: a value is not what the transform takes.
        """
        d = dict(data)
        found = {key: self._batch_of(key, d[key]) for key in self.key_iterator(d)}
        if not found:
            return d
        try:
            batches = self._batches(found, d.pop(FOLDED, None))
            # not from `self`, where another thread's call may have put its own
            drawn = self.randomize(batches[0][0])
            done = [(self.pipeline.apply(batch, drawn), keys) for batch, keys in batches]
        except AugmentationError as error:
            name = type(self).__name__
            raise AugmentationError(f"{name} on keys {tuple(found)}: {error}") from error
        moves = moves_of(self.pipeline.transforms, drawn)
        for batch, keys in done:
            for field, key in keys.items():
                d[key] = self._result(getattr(batch, field), d[key], moves, field, batch.image.shape[2:])
            if batch.folded:
                d[FOLDED] = batch.folded
        return d

    def _batch_of(self, key: Hashable, value: Any) -> Tensor:
        """The plain tensor with a batch axis."""
        if not isinstance(value, Tensor | np.ndarray):
            raise AugmentationError(
                f"{type(self).__name__}: key {key!r} holds a {type(value).__name__}; it must be a tensor"
            )
        x = value.as_tensor() if isinstance(value, MetaTensor) else torch.as_tensor(value)
        if x.ndim - self.batched not in (3, 4):
            what = "a batch, (B, C, H, W) or (B, C, D, H, W)" if self.batched else "an item, (C, H, W) or (C, D, H, W)"
            other = "; for a single item give batched=False" if self.batched else "; for a batch give batched=True"
            raise AugmentationError(
                f"{type(self).__name__}: key {key!r} has shape {tuple(x.shape)}; it must be {what}{other}"
            )
        x = x.to(torch.uint8) if x.dtype == torch.bool else x
        return x if self.batched else x[None]

    def _batches(
        self, found: dict[Hashable, Tensor], folded: tuple[int, int] | None
    ) -> list[tuple[Batch, dict[str, Hashable]]]:
        """What the pipeline is applied to, with the key of each field."""
        if self.holds == "images":
            return [(Batch(x, folded=folded), {"image": key}) for key, x in found.items()]
        if self.holds == "labels":
            return [(Batch(_no_image(x), x, folded), {"segmentation": key}) for key, x in found.items()]
        keys = {f: k for f, k in zip(("image", "segmentation"), self.keys, strict=False) if k in found}
        image, labels = (found.get(keys.get(field)) for field in ("image", "segmentation"))
        return [(Batch(_no_image(labels) if image is None else image, labels, folded), keys)]

    def _result(
        self, x: Tensor | list[Tensor], like: Any, moves: list[list[Move]], field: str, size: Sequence[int]
    ) -> Any:
        """x, or each of the deep-supervision targets of an image of `size`, as it is given back."""
        if isinstance(x, Tensor):
            return self._given_back(x, like, moves, field)
        resized = [[resizing(size, level.shape[2:])] for level in x]
        return [
            self._given_back(level, like, [row + step for row in moves], field)
            for level, step in zip(x, resized, strict=True)
        ]

    def _given_back(self, x: Tensor, like: Any, moves: list[list[Move]], field: str) -> Any:
        """x in the form in which the value came."""
        x = x if self.batched else x[0]
        if like.dtype in (torch.bool, np.bool_):
            x = x > 0
        if not isinstance(like, MetaTensor) or not get_track_meta():
            return x
        x = with_metadata(x, like)
        if any(moves):
            _move_affine(x, [matrix_of(row) for row in moves])
        return x


class RandomDictionaryTransform(RandomizableTransform, DictionaryTransform):
    """One that draws. All it draws comes from `R`, from which each call takes one seed.

    A new instance has a state of its own, taken from NumPy's global one, so that `set_determinism` covers it.
    """

    def __init__(
        self, keys: KeysCollection, pipeline: Pipeline, batched: bool, allow_missing_keys: bool, prob: float = 1.0
    ) -> None:
        DictionaryTransform.__init__(self, keys, pipeline, batched, allow_missing_keys)
        RandomizableTransform.__init__(self, prob)
        self.set_random_state(seed=np.random.randint(2**32, dtype=np.uint32))

    def randomize(self, data: Batch) -> Draw:
        """Draw for a batch, or for one item as a batch of one."""
        seed = int(self.R.randint(2**SEED_BITS, dtype=np.int64))
        self.drawn = drawn = self.pipeline.draw(data, torch.Generator().manual_seed(seed))
        return drawn


class SpatialDictionaryTransform(RandomDictionaryTransform, InvertibleTransform):
    """One that moves voxels. `inverse` moves them back, if they came as MetaTensors: in collated batches or as items,
    also as items of a batch that was decollated since. What else the pipeline did stays."""

    def inverse(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The dictionary with the values under the keys moved back.

        Flips, rotations by 90 degrees and swapped axes come back exactly, a crop without what was cut off, a warp
        interpolated once more: images linearly, labels by their nearest neighbour.
        """
        d = dict(data)
        for key in self.key_iterator(d):
            d[key] = self._moved_back(d[key])
        return d

    def _moved_back(self, x: MetaTensor) -> MetaTensor:
        if not isinstance(x, MetaTensor):
            raise AugmentationError(
                f"{type(self).__name__}: only a MetaTensor says what was done to it, this is a {type(x).__name__}"
            )
        if x.is_batch:
            return list_data_collate([self._moved_back(item) for item in decollate_batch(x)])
        x = with_metadata(x.as_tensor(), x)  # whose trace is changed next
        applied = self.pop_transform(x)[TraceKeys.EXTRA_INFO]
        moves = [Move(**move) for move in applied["moves"]]
        back = x.as_tensor()
        for move in reversed(moves):
            back = move.undone(back, applied["mode"])
        back = with_metadata(back, x)
        _move_affine(back, [np.linalg.inv(matrix_of(moves))])
        return back

    def _given_back(self, x: Tensor, like: Any, moves: list[list[Move]], field: str) -> Any:
        out = super()._given_back(x, like, moves, field)
        if isinstance(out, MetaTensor) and self.tracing and (out.is_batch or not self.batched):
            applied = out.applied_operations if out.is_batch else [out.applied_operations]
            applied = [[] if row == TraceKeys.NONE else list(row) for row in applied]
            mode = "bilinear" if field == "image" else "nearest"
            for row, moved in zip(applied, moves, strict=True):
                info = {"moves": [move._asdict() for move in moved], "mode": mode}
                row.append({**self.get_transform_info(), TraceKeys.LAZY: False, TraceKeys.EXTRA_INFO: info})
            out.applied_operations = applied if out.is_batch else applied[0]
        return out


def with_metadata(x: Tensor, like: MetaTensor) -> MetaTensor:
    """x as a MetaTensor with a copy of `like`'s metadata."""
    return x.as_subclass(MetaTensor).copy_meta_from(like)


def _no_image(labels: Tensor) -> Tensor:
    """Stands for the image where there is none."""
    return labels.new_zeros((), dtype=torch.float32).expand(len(labels), 1, *labels.shape[2:])


def _move_affine(x: MetaTensor, matrices: Sequence[np.ndarray]) -> None:
    """Follow the moved voxels in the affine: one for each row, or one for all while they moved alike."""
    affine = x.affine
    rank = affine.shape[-1] - 1
    moved = torch.stack([torch.from_numpy(to_affine_nd(rank, matrix)) for matrix in matrices]).to(affine)
    if affine.ndim == 2 and bool((moved == moved[0]).all()):
        moved = moved[0]
    x.affine = affine @ moved
