"""What every transform is: a parameter model (`Spec`), a draw on the host, and an application to a batch.

Three kinds share this interface. `ImageAugmentation` and `SpatialAugmentation` are Kornia augmentations, usable alone
and in Kornia containers; `LabelStep` needs image and segmentation together, which no Kornia handler sees.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from kornia.augmentation import IntensityAugmentationBase3D, RigidAffineAugmentationBase3D
from kornia.augmentation.random_generator import RandomGeneratorBase
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from ..batch import Batch, Shape
from ..errors import AugmentationError
from ..sampling import draw_seed, row_streams

Params = dict[str, Tensor]
"""The drawn values of one transform for one batch: CPU tensors with the rows first. `batch_prob` (B,) is 1 for the
rows that the transform was drawn for."""


class Spec(BaseModel):
    """The parameters of a transform, under nnU-Net's names. Unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Transform:
    """Interface of all transforms.

    Attributes:
        spec: the parameters.
        p: probability per row (sample) that the transform is applied: batchgeneratorsv2's `RandomTransform`.
        gated: whether p may be below 1. Not where rows with and without the transform would differ in shape.
    """

    Spec: ClassVar[type[Spec]] = Spec
    gated: ClassVar[bool] = False
    p: float = 1.0

    def _read_spec(self, values: dict[str, Any]) -> Spec:
        try:
            return self.Spec(**values)
        except ValidationError as error:
            found = error.errors()
            # of an error in an item and one of its list, the item's says what is wrong
            deepest = [e for e in found if not any(o["loc"][: len(e["loc"])] == e["loc"] for o in found if o is not e)]
            problems = "; ".join(dict.fromkeys(_describe_error(e, self.Spec) for e in deepest or found))
            raise AugmentationError(f"{type(self).__name__}: {problems}") from None

    def _read_p(self, p: Any) -> float:
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise AugmentationError(f"{type(self).__name__}: p = {p!r}: must be a probability from 0 to 1")
        return float(p)

    def _check_channels(self, field: str, channels: Sequence[int], count: int, of: str) -> None:
        """Raise AugmentationError if `of`, which has `count` channels, lacks one of `channels`."""
        if any(not -count <= channel < count for channel in channels):
            raise AugmentationError(
                f"{type(self).__name__}: {field} = {channels}, but the {of} has {count} channel(s), "
                f"so {-count} to {count - 1} are allowed"
            )

    def shape_after(self, shape: Shape) -> Shape:
        """The shape that a batch of shape `shape` has afterwards; AugmentationError if it cannot be transformed."""
        return shape

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        """The values for one row, drawn whether or not its gate is open."""
        return {}

    def draw(self, streams: Sequence[random.Random], shape: Shape) -> Params:
        """The values for each row, from that row's stream."""
        if not streams:
            raise AugmentationError("the batch has no rows; at least one is needed")
        rows = [{"batch_prob": float(rng.random() < self.p), **self.draw_row(rng, shape)} for rng in streams]
        # doubles keep Python's value, so that a replay or a comparison sees exactly what was drawn
        return {
            name: torch.tensor([row[name] for row in rows], dtype=torch.float64 if _is_real(first) else None)
            for name, first in rows[0].items()
        }

    def apply(self, batch: Batch, params: Params) -> Batch:
        """The transformed batch. Writes into the input's tensors only if the batch owns them."""
        raise NotImplementedError


def _describe_error(error: Any, spec: type[Spec]) -> str:
    # the text parts after the field's name are the types that pydantic tried
    field = ".".join(str(part) for i, part in enumerate(error["loc"]) if i == 0 or isinstance(part, int))
    if not field:
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{field} must be given"
    if error["type"] == "extra_forbidden":
        return f"{field} = {error['input']!r}: no such parameter, there are {', '.join(spec.model_fields)}"
    return f"{field} = {error['input']!r}: {error['msg'].removeprefix('Value error, ')}"


def check_label_fits(seg: Tensor, label: int, field: str) -> None:
    """Raise AugmentationError if the segmentation's dtype cannot hold `label`."""
    if seg.is_floating_point():
        return
    limits = torch.iinfo(seg.dtype)
    if not limits.min <= label <= limits.max:
        raise AugmentationError(
            f"segmentation is {seg.dtype} and cannot hold {field} = {label}, only {limits.min} to {limits.max}; "
            "use a larger signed type, such as int16"
        )


def _is_real(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, float)


def drawn_rows(params: Params) -> list[int]:
    """The rows that the transform was drawn for."""
    return [row for row, on in enumerate(params["batch_prob"].tolist()) if on > 0.5]


def values_of(params: Params) -> Params:
    """The drawn values with more than one axis, without what Kornia and its containers add to them."""
    return {name: value for name, value in params.items() if isinstance(value, Tensor) and value.ndim > 1}


class HostGenerator(RandomGeneratorBase):
    """Kornia's parameter generator: draws on the host from torch's global generator, whatever the device."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._draw = transform.draw  # a bound method: the module itself would become a child of its own child

    def make_samplers(self, device: torch.device, dtype: torch.dtype) -> None:
        """Nothing to build: the draws stay on the host."""

    def forward(self, batch_shape: tuple[int, ...], same_on_batch: bool = False) -> Params:
        shape = Shape(batch_shape[1], 0, tuple(batch_shape[2:]))
        params = self._draw(row_streams(draw_seed(), 1 if same_on_batch else batch_shape[0]), shape)
        return {k: v.expand(batch_shape[0], *v.shape[1:]) for k, v in params.items()} if same_on_batch else params


class _KorniaAugmentation(Transform):
    """What image and spatial augmentations change in Kornia's base class: rank 4 is a 2D batch, rank 5 a 3D one;
    the gate is drawn with the values; only the drawn rows are computed; dtypes below float32 are computed in it."""

    def __init__(self, *, p: float = 1.0, same_on_batch: bool = False, keepdim: bool = False, **spec: Any) -> None:
        super().__init__(p=p, same_on_batch=same_on_batch, keepdim=keepdim)
        self.p = self._read_p(p)
        self.spec = self._read_spec(spec)
        self._param_generator = HostGenerator(self)

    def __repr__(self) -> str:
        return _describe(self)

    def forward_parameters(self, batch_shape: tuple[int, ...]) -> Params:
        params = self.generate_parameters(batch_shape)
        return {**params, "forward_input_shape": torch.tensor(batch_shape)}

    def transform_tensor(self, input: Tensor, *, shape: Tensor | None = None, match_channel: bool = True) -> Tensor:
        if input.ndim not in (4, 5):
            raise AugmentationError(
                f"{type(self).__name__} got shape {tuple(input.shape)}; it takes a batch, (B, C, H, W) or "
                "(B, C, D, H, W)"
            )
        return input

    def apply_func(self, in_tensor: Tensor, params: Params, flags: dict[str, Any] | None = None) -> Tensor:
        batch = Batch(in_tensor)
        batch.check()
        self.shape_after(batch.shape)
        drawn_for = params.get("forward_input_shape", torch.tensor(in_tensor.shape)).tolist()
        if len(params["batch_prob"]) != len(in_tensor) or (drawn_for[:2], len(drawn_for)) != (
            list(in_tensor.shape[:2]), in_tensor.ndim
        ):  # fmt: skip
            raise AugmentationError(
                f"{type(self).__name__}: the parameters are for a batch of shape {drawn_for}, this one has "
                f"{list(in_tensor.shape)}; rank, batch size and channels must be equal"
            )
        self._params = params
        self._transform_matrix = self.compute_transformation(in_tensor, params, flags)
        with torch.no_grad(), torch.autocast(in_tensor.device.type, enabled=False):
            out = self.apply(Batch(in_tensor.to(compute_dtype(in_tensor))), params).image
        return out.to(in_tensor.dtype)

    def compute_transformation(self, input: Tensor, params: Params, flags: dict[str, Any] | None) -> Tensor:
        n = input.ndim - 1
        return torch.eye(n, dtype=input.dtype, device=input.device).expand(len(input), n, n)


def compute_dtype(image: Tensor) -> torch.dtype:
    """Images are computed in float32, or in float64 if they come in it."""
    return torch.promote_types(image.dtype, torch.float32)


class ImageAugmentation(_KorniaAugmentation, IntensityAugmentationBase3D):
    """An augmentation of the image alone, computed plane by plane: a plane is one channel of one row.

    The draw holds `active` (B, C), the channels drawn, and values (B, C) or (B, C, spatial rank); `plane` is the op.
    """

    gated = True

    def plane(self, x: Tensor, **values: Any) -> Tensor:
        """The augmented plane (*S), a new tensor; `values` are this plane's drawn values as Python numbers."""
        raise NotImplementedError

    def apply(self, batch: Batch, params: Params) -> Batch:
        planes = list(self._drawn_planes(params))
        if not planes:
            return batch
        image = batch.image if batch.owned else batch.image.clone()
        for row, channel, values in planes:
            image[row, channel] = self.plane(image[row, channel], **values)
        return replace(batch, image=image)

    @staticmethod
    def _drawn_planes(params: Params) -> Iterator[tuple[int, int, dict[str, Any]]]:
        rows = drawn_rows(params)
        active = params["active"].tolist() if rows else []
        names = values_of(params).keys() - {"active"}
        for row in rows:
            for channel, on in enumerate(active[row]):
                if on:
                    yield row, channel, {name: params[name][row, channel].tolist() for name in names}

    def transform_masks(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return input


class SpatialAugmentation(_KorniaAugmentation, RigidAffineAugmentationBase3D):
    """An augmentation that moves image and segmentation alike."""

    def transform_masks(self, input: Tensor, params: Params, *args: Any, **kwargs: Any) -> Tensor:
        image_shape = tuple(params["forward_input_shape"].tolist())
        if input.ndim != len(image_shape) or (len(input), *input.shape[2:]) != (image_shape[0], *image_shape[2:]):
            raise AugmentationError(
                f"{type(self).__name__}: the mask has shape {tuple(input.shape)}, the image {image_shape}; "
                "rank, batch size and spatial size must be equal"
            )
        batch = Batch(input.new_empty(0), input)
        return self.apply_to_segmentation(batch, params).segmentation

    def apply(self, batch: Batch, params: Params) -> Batch:
        if isinstance(batch.segmentation, list):
            raise AugmentationError(f"{type(self).__name__} has to come before the deep-supervision targets are made")
        batch = self.apply_to_segmentation(self.apply_to_image(batch, params), params)
        return replace(batch, owned=True)

    def apply_to_image(self, batch: Batch, params: Params) -> Batch:
        raise NotImplementedError

    def apply_to_segmentation(self, batch: Batch, params: Params) -> Batch:
        raise NotImplementedError


class LabelStep(Transform, nn.Module):
    """A step that needs image and segmentation together, or changes the segmentation's form. Not a Kornia
    augmentation: no Kornia container shows a child both."""

    def __init__(self, **spec: Any) -> None:
        super().__init__()
        self.spec = self._read_spec(spec)

    def __repr__(self) -> str:
        return _describe(self)

    def segmentation_of(self, batch: Batch) -> Tensor:
        if not isinstance(batch.segmentation, Tensor):
            found = "none" if batch.segmentation is None else "deep-supervision targets"
            raise AugmentationError(f"{type(self).__name__} needs a segmentation tensor, the batch has {found}")
        return batch.segmentation


def _describe(transform: Transform) -> str:
    gate = [f"p={transform.p}"] if transform.p != 1 else []
    values = [f"{name}={value}" for name, value in transform.spec.model_dump().items()]
    return f"{type(transform).__name__}({', '.join(gate + values)})"
