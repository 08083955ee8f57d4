"""An ordered list of transforms, applied to a whole batch on its device."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from .batch import Batch, Shape
from .config import Settings, read_config, write_config, write_text
from .errors import AugmentationError
from .ops._dispatch import kernels
from .sampling import SEED_BITS, draw_seed, row_streams
from .transforms import RemoveLabel, Spatial
from .transforms.base import Params, Transform, compute_dtype

_UNSEEDED: weakref.WeakSet[Pipeline] = weakref.WeakSet()


def _reseed() -> None:
    for pipeline in _UNSEEDED:
        pipeline.generator.seed()


if hasattr(os, "register_at_fork"):  # a forked process would draw what its parent draws
    os.register_at_fork(after_in_child=_reseed)


@dataclass(frozen=True)
class Draw:
    """Everything drawn for one batch: one dict of CPU tensors (rows first) for each transform.

    Applying the same draw to the same batch on the same device gives the same bits.

    Attributes:
        names: the transforms.
        params: what was drawn for each.
        shape: of the batch that it was drawn for. None is not compared with a batch.
    """

    names: tuple[str, ...]
    params: tuple[Params, ...]
    shape: Shape | None = None

    def __len__(self) -> int:
        return len(self.params[0]["batch_prob"]) if self.params else 0

    def rows(self, start: int, stop: int) -> Draw:
        """The draw of the rows start..stop-1."""
        return Draw(self.names, tuple({k: v[start:stop] for k, v in p.items()} for p in self.params), self.shape)

    def save(self, path: str | Path) -> None:
        """Write the draw to a file. A file that exists is replaced only once the new one is complete."""
        path = Path(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                shape = None if self.shape is None else tuple(self.shape)
                torch.save({"names": list(self.names), "params": list(self.params), "shape": shape}, file)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: str | Path) -> Draw:
        """Read what `save` wrote. Holds tensors only: nothing in the file is executed."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            names, params, shape = content["names"], content["params"], content["shape"]
            rows = {len(values) for step in params for values in step.values()}
            complete = len(names) == len(params) and len(rows) <= 1 and all("batch_prob" in step for step in params)
            draw = cls(tuple(names), tuple(params), None if shape is None else Shape(*shape))
        except (OSError, MemoryError):
            raise
        except Exception as error:
            # torch's own text would advise to load the file unsafely
            raise AugmentationError(f"{path} is not a saved draw ({type(error).__name__})") from error
        if not complete:
            raise AugmentationError(f"{path} is not a complete draw: transforms {names}, rows {sorted(rows)}")
        return draw


class Pipeline:
    """nnU-Net's augmentation of a batch, callable as its `ComposeTransforms` is, but batched:

        out = pipeline(image=image, segmentation=segmentation)

    image (B, C, *S) float, segmentation (B, K, *S) labels, on one device; the result is a dict with the same keys,
    `segmentation` a list, finest first, if the pipeline makes deep-supervision targets. Inputs are not changed.

    Everything random is drawn on the host, for each row from a stream of its own: the same seed and batch size give
    the same result, and a row's draw does not depend on the other rows. Images are computed in float32 (float64 if
    they come in it) and returned in their dtype. An unsigned segmentation is computed as int16, as uint8 has no −1;
    it comes back as uint8 if the pipeline's labels fit, else as int16.

    Attributes:
        transforms: the transforms, in order.
        seed: the seed of `generator`.
        generator: the CPU generator that each call takes its seed from; its state can be saved and restored.
        settings: what a configuration file says besides the transforms. `kernels` is the pipeline's own business,
            `prefetch` and `on_unmapped` are for the training that it is part of.
    """

    def __init__(
        self, transforms: Iterable[Transform], seed: int | None = None, settings: Settings | None = None
    ) -> None:
        if isinstance(transforms, Transform) or not isinstance(transforms, Iterable):
            raise AugmentationError(f"transforms is {transforms!r}; it must be a list of transforms")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63):
            raise AugmentationError(f"seed = {seed!r}; it must be a whole number from 0 to 2**63 - 1")
        transforms = tuple(transforms)
        for index, transform in enumerate(transforms):
            if not isinstance(transform, Transform):
                raise AugmentationError(f"transforms[{index}] is {transform!r}; it must be a transform of this package")
        settings = settings or Settings()
        self.settings = settings if seed is None else settings.model_copy(update={"seed": seed})
        seed = self.settings.seed
        self.transforms = transforms
        self.generator = torch.Generator()
        self.seed = self.generator.seed() % 2**SEED_BITS if seed is None else seed
        self.generator.manual_seed(self.seed)
        if seed is None:
            _UNSEEDED.add(self)

    @classmethod
    def from_nnunet(cls, source: Any, seed: int | None = None) -> Pipeline:
        """The pipeline that an nnU-Net trainer trains with, or that a batchgeneratorsv2 transform list stands for.

        Args:
            source: an nnU-Net trainer (its training transforms are taken), `ComposeTransforms`, or one transform.
            seed: of the draws; by default from the system's entropy.

        Raises:
            UnmappedTransformError: a transform, or an option of one, that has no counterpart; names it.
        """
        from .nnunet.mapping import map_transforms  # the one import upwards: nnunetv2 is needed only here

        return cls(map_transforms(source), seed)

    @classmethod
    def from_yaml(cls, source: str | Path) -> Pipeline:
        """The pipeline that a YAML file describes: `pipeline:`, a list of transforms with nnU-Net's own parameter
        names, and `settings:`. Values that are left out have their defaults.

        Args:
            source: the path of a file, or the text itself.

        Raises:
            ConfigError: lists all problems at once, each with its line, the value and what is allowed.
        """
        config = read_config(source)
        return cls(config.transforms, settings=config.settings)

    def to_yaml(self, path: str | Path | None = None) -> str:
        """The text that `from_yaml` reads back, every value written out; also to a file if a path is given."""
        text = write_config(self.transforms, self.settings)
        if path is not None:
            write_text(path, text)
        return text

    def __repr__(self) -> str:
        return "\n".join(["Pipeline(", *(f"  {t!r}," for t in self.transforms), f"  seed={self.seed})"])

    def draw(self, batch: Batch, generator: torch.Generator | None = None) -> Draw:
        """Draw for a batch; only its shape is looked at, so its tensors may be on the `meta` device.

        Args:
            generator: where the seed of this draw comes from; the pipeline's own by default.

        Raises:
            AugmentationError: the pipeline cannot be applied to a batch of this shape.
        """
        shape = batch.shape
        streams = row_streams(self._next_seed() if generator is None else draw_seed(generator), len(batch))
        params = []
        for transform in self.transforms:
            after = transform.shape_after(shape)
            params.append(transform.draw(streams, shape))
            shape = after
        return Draw(self._names(), tuple(params), batch.shape)

    def apply(self, batch: Batch, draw: Draw) -> Batch:
        """Apply a draw to a batch, outside of autocast and without gradients.

        Raises:
            AugmentationError: the draw is of another pipeline or batch size, or the batch is malformed.
        """
        batch.check()
        names = self._names()
        if draw.names != names:
            raise AugmentationError(f"the draw is for {list(draw.names)}, the pipeline has {list(names)}")
        if draw.params and len(draw) != len(batch):
            raise AugmentationError(f"the draw is for {len(draw)} row(s), the batch has {len(batch)}")
        if draw.shape is not None and draw.shape._replace(seg_channels=batch.shape.seg_channels) != batch.shape:
            raise AugmentationError(
                f"the draw is for {draw.shape.channels} channel(s) of the spatial size {draw.shape.spatial}, "
                f"the batch has {batch.shape.channels} of {batch.shape.spatial}"
            )
        return self._run(batch, draw)

    @torch.no_grad()
    def _run(self, batch: Batch, draw: Draw) -> Batch:
        """Apply a draw that is known to fit a batch that is known to be well-formed."""
        image, seg = batch.image, batch.segmentation
        narrow = seg is not None and seg.dtype == torch.uint8
        work = replace(batch, image=image.to(compute_dtype(image)), segmentation=seg.to(torch.int16) if narrow else seg)
        with torch.autocast(image.device.type, enabled=False), kernels(self.settings.kernels == "auto"):
            for transform, params in zip(self.transforms, draw.params, strict=True):
                work = transform.apply(work, params)
        if narrow and self._fits_uint8():
            work = replace(work, segmentation=_cast_labels(work.segmentation, torch.uint8))
        return replace(work, image=work.image.to(image.dtype), owned=False)

    def _names(self) -> tuple[str, ...]:
        return tuple(type(t).__name__ for t in self.transforms)

    def _fits_uint8(self) -> bool:
        """Whether labels that come as uint8 leave within its range, followed step by step."""
        low, high = 0, 255
        for transform in self.transforms:
            if isinstance(transform, Spatial):
                written = transform.outside_label
            elif isinstance(transform, RemoveLabel):
                spec = transform.spec
                written = spec.set_to
                if spec.label_value == low < 0 and spec.segmentation_channels is None:
                    low = 0
            else:
                continue
            low, high = min(low, written), max(high, written)
        return low >= 0 and high <= 255

    def _next_seed(self) -> int:
        """The seed of the next draw. In a worker of a `DataLoader` it differs from the other workers'."""
        seed, worker = draw_seed(self.generator), get_worker_info()
        if worker is not None:  # torch gives each worker a seed, new in each epoch; the pipeline came as a copy
            return (seed + worker.seed) % 2**SEED_BITS
        return seed

    def __call__(
        self, *, image: Tensor, segmentation: Tensor | None = None, **others: Any
    ) -> dict[str, Tensor | list[Tensor]]:
        """Draw and apply. Returns a dict with the keys given."""
        if others:
            raise AugmentationError(f"unknown key(s) {sorted(others)}; a batch has `image` and `segmentation`")
        batch = Batch(image, segmentation)
        batch.check()
        out = self._run(batch, self.draw(batch))
        return {"image": out.image} if segmentation is None else {"image": out.image, "segmentation": out.segmentation}


def _cast_labels(seg: Tensor | list[Tensor], dtype: torch.dtype) -> Tensor | list[Tensor]:
    if isinstance(seg, list):
        return [_cast_labels(s, dtype) for s in seg]
    return seg if seg.dtype == torch.bool else seg.to(dtype)
