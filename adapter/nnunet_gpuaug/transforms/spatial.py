"""Spatial augmentations of image and segmentation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from torch import Tensor

from ..batch import Batch, Shape
from ..errors import AugmentationError
from ..ops import geometry as ops
from ..ops._dispatch import warp_image, warp_labels
from ..sampling import Probability, Scalar, Uniform
from .base import Params, SpatialAugmentation, Spec, check_label_fits, drawn_rows, values_of


def _different(axes: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(axes)) != len(axes):
        raise ValueError("each axis only once")
    return axes


Axes = Annotated[tuple[Annotated[int, Field(ge=0, le=2)], ...], AfterValidator(_different)]

_CROP_PADDING = {"zeros": "constant", "constant": "constant", "border": "replicate", "reflection": "reflect"}


class Spatial(SpatialAugmentation):
    """Rotation, scaling and the crop from the initial to the final patch, in one resampling.

    An output voxel at o is read at s = A (o − (P − 1) / 2) + (S − 1) / 2 of the input, in voxels, with
    A = Rz · Ry · Rx · diag(scale) on (d, h, w), initial patch S and final patch P. Rows for which neither rotation
    nor scaling is drawn are sliced, from S // 2 − P // 2 on.

    Image (B, C, *S) to (B, C, *P), linear; segmentation (B, K, *S) to (B, K, *P), the label with the largest
    interpolated share (`ops.geometry.warp_labels`). Outside the input the image is 0 (`padding_mode_image`), the
    segmentation `padding_value_seg` (`border_mode_seg` "constant") or 0 ("zeros").

    Args:
        patch_size: P.
        p_rotation, rotation: probability per row, and the angle about each axis in radians, drawn per row and axis;
            in 2D only the last drawn angle is used.
        p_rot_per_axis: probability per axis that its angle is kept, else it is 0.
        p_scaling, scaling: probability per row, and the factor, drawn per row and axis; above 1 objects shrink.
        p_synchronize_scaling_across_axes: probability per row that all axes share one factor.
        mode_image, mode_seg: "bilinear" (linear in 3D too) or "nearest".
        padding_mode_image, padding_value_image: "zeros", "constant" (the value), "border", "reflection".
        border_mode_seg, padding_value_seg: "zeros" or "constant" (the value).
        seg_tiebreak: whom a voxel goes to if labels share the top score: "nearest", "lowest", "highest".

    Raises:
        AugmentationError: the spatial rank differs from the patch size's, or the patch is larger than the input and
            `padding_mode_image` cannot fill what is missing ("reflection" by more than the input's size − 1).

    Matches batchgeneratorsv2 `SpatialTransform` without elastic deformation and random crop.
    """

    class Spec(Spec):
        patch_size: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=2, max_length=3)
        p_rotation: Probability = 0.0
        rotation: Scalar = Uniform(0, 2 * math.pi)
        p_rot_per_axis: Probability = 1.0
        p_scaling: Probability = 0.0
        scaling: Scalar = Uniform(0.7, 1.3)
        p_synchronize_scaling_across_axes: Probability = 0.0
        mode_image: Literal["bilinear", "nearest"] = "bilinear"
        mode_seg: Literal["bilinear", "nearest"] = "bilinear"
        padding_mode_image: Literal["zeros", "constant", "border", "reflection"] = "zeros"
        padding_value_image: float = 0.0
        border_mode_seg: Literal["zeros", "constant"] = "zeros"
        padding_value_seg: int = 0
        seg_tiebreak: Literal["nearest", "lowest", "highest"] = "nearest"

    def shape_after(self, shape: Shape) -> Shape:
        patch, size = self.spec.patch_size, shape.spatial
        if len(patch) != len(size):
            raise AugmentationError(
                f"Spatial: patch_size = {patch} has {len(patch)} axes, the input has the spatial size {size}"
            )
        reflects = self.spec.padding_mode_image == "reflection"
        if reflects and any(p > 2 * n - 1 for p, n in zip(patch, size, strict=True)):
            raise AugmentationError(
                f"Spatial: patch_size = {patch} is too large for padding_mode_image = 'reflection' on an input of "
                f"{size}: at most twice the input's size minus 1"
            )
        return shape._replace(spatial=patch)

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, rank = self.spec, len(shape.spatial)
        rotate, scale = rng.random() < s.p_rotation, rng.random() < s.p_scaling
        angles = [s.rotation(rng) for _ in range(rank)]
        kept = [rng.random() < s.p_rot_per_axis for _ in range(rank)]
        shared = rng.random() < s.p_synchronize_scaling_across_axes
        scales = [s.scaling(rng)] * rank if shared else [s.scaling(rng) for _ in range(rank)]
        return {
            "warp": rotate or scale,
            "angles": [float(a) if rotate and k else 0.0 for a, k in zip(angles, kept, strict=True)],
            "scales": [float(f) if scale else 1.0 for f in scales],
        }

    @property
    def outside_label(self) -> int:
        """The segmentation's label beyond the border of the input."""
        return self.spec.padding_value_seg if self.spec.border_mode_seg == "constant" else 0

    def apply_to_image(self, batch: Batch, params: Params) -> Batch:
        s = self.spec
        crop = {"padding": _CROP_PADDING[s.padding_mode_image]}
        crop["fill"] = s.padding_value_image if s.padding_mode_image == "constant" else 0.0

        def warp(image: Tensor, matrix: Any) -> Tensor:
            return warp_image(
                image, matrix, s.patch_size, s.mode_image, s.padding_mode_image, s.padding_value_image
            )

        return replace(batch, image=self._each_row(batch.image, params, warp, crop))

    def apply_to_segmentation(self, batch: Batch, params: Params) -> Batch:
        if batch.segmentation is None:
            return batch
        s, seg, outside = self.spec, batch.segmentation, self.outside_label
        check_label_fits(seg, outside, "padding_value_seg")

        def warp(labels: Tensor, matrix: Any) -> Tensor:
            return warp_labels(labels, matrix, s.patch_size, outside, s.mode_seg, s.seg_tiebreak)

        crop = {"padding": "constant", "fill": float(outside)}
        return replace(batch, segmentation=self._each_row(seg, params, warp, crop))

    def _each_row(
        self, x: Tensor, params: Params, warp: Callable[[Tensor, Any], Tensor], crop: dict[str, Any]
    ) -> Tensor:
        patch = self.spec.patch_size
        out = x.new_empty((*x.shape[:2], *patch))
        gates = drawn_rows(params)
        drawn = zip(*(params[name].tolist() for name in ("warp", "angles", "scales")), strict=True)
        for row, (on, angles, scales) in enumerate(drawn):
            if on and row in gates:
                out[row] = warp(x[row], ops.affine_matrix(angles, scales))
            else:
                out[row] = ops.center_crop(x[row][None], patch, **crop)[0]
        return out


def _check_swappable(name: str, axes: tuple[int, ...], size: tuple[int, ...]) -> None:
    if any(axis >= len(size) for axis in axes) or len({size[axis] for axis in axes}) > 1:
        raise AugmentationError(
            f"{name}: allowed_axes = {axes} must be axes of equal length; the input has the spatial size {size}"
        )


class _RowAugmentation(SpatialAugmentation):
    """Moves whole rows without interpolation."""

    gated = True

    class Spec(Spec):
        allowed_axes: Axes

    def shape_after(self, shape: Shape) -> Shape:
        _check_swappable(type(self).__name__, self.spec.allowed_axes, shape.spatial)
        return shape

    def moved(self, x: Tensor, values: dict[str, Any]) -> Tensor:
        """The row (C, *S), moved by the row's drawn values; not a view of x."""
        raise NotImplementedError

    def apply_to_image(self, batch: Batch, params: Params) -> Batch:
        return replace(batch, image=self._move(batch.image, params, batch.owned))

    def apply_to_segmentation(self, batch: Batch, params: Params) -> Batch:
        if batch.segmentation is None:
            return batch
        return replace(batch, segmentation=self._move(batch.segmentation, params, batch.owned))

    def _move(self, x: Tensor, params: Params, owned: bool) -> Tensor:
        rows = drawn_rows(params)
        values = {name: value.tolist() for name, value in values_of(params).items()}
        out = x if owned else x.clone()
        for row in rows:
            out[row] = self.moved(x[row], {name: value[row] for name, value in values.items()})
        return out


class Mirror(_RowAugmentation):
    """Flip along spatial axes, each with probability 1/2 per row.

    Args:
        allowed_axes: the spatial axes (0 is the first) that may be flipped.
        p: probability per row that anything is flipped at all.

    Raises:
        AugmentationError: an axis that the input does not have.

    Matches batchgeneratorsv2 `MirrorTransform`.
    """

    def shape_after(self, shape: Shape) -> Shape:
        if any(axis >= len(shape.spatial) for axis in self.spec.allowed_axes):
            raise AugmentationError(
                f"Mirror: allowed_axes = {self.spec.allowed_axes}; the input has the spatial size {shape.spatial}, "
                f"so axes 0 to {len(shape.spatial) - 1} are allowed"
            )
        return shape

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        flips = [rng.random() < 0.5 for _ in shape.spatial]
        return {"flip": [on and axis in self.spec.allowed_axes for axis, on in enumerate(flips)]}

    def moved(self, x: Tensor, values: dict[str, Any]) -> Tensor:
        axes = [axis + 1 for axis, on in enumerate(values["flip"]) if on]
        return x.flip(axes) if axes else x


class Rot90(_RowAugmentation):
    """Rotate by multiples of 90 degrees in planes of spatial axes.

    Args:
        num_axis_combinations: how many rotations, one after the other.
        num_rot_per_combination: the multiples, one drawn per row and rotation with equal probability.
        allowed_axes: the axes that span the planes; a pair is drawn per row and rotation, all equally probable.
        p: probability per row.

    Raises:
        AugmentationError: the axes differ in length, or there are fewer than two.

    Matches batchgeneratorsv2 `Rot90Transform`.
    """

    class Spec(_RowAugmentation.Spec):
        num_axis_combinations: int = Field(ge=1)
        num_rot_per_combination: tuple[int, ...] = Field((1, 2, 3), min_length=1)
        allowed_axes: Axes = Field((0, 1, 2), min_length=2)

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        s, count = self.spec, range(self.spec.num_axis_combinations)
        return {
            "rotations": [rng.choice(s.num_rot_per_combination) for _ in count],
            "axes": [sorted(rng.sample(s.allowed_axes, 2)) for _ in count],
        }

    def moved(self, x: Tensor, values: dict[str, Any]) -> Tensor:
        for turns, axes in zip(values["rotations"], values["axes"], strict=True):
            x = x.rot90(turns, [axis + 1 for axis in axes])
        return x.clone()


class TransposeAxes(_RowAugmentation):
    """Permute spatial axes, all orders equally probable.

    Args:
        allowed_axes: the axes; with fewer than two nothing happens.
        p: probability per row.

    Raises:
        AugmentationError: the axes differ in length.

    Matches batchgeneratorsv2 `TransposeAxesTransform`.
    """

    def draw_row(self, rng: random.Random, shape: Shape) -> dict[str, Any]:
        order = list(range(len(shape.spatial)))
        allowed = sorted(self.spec.allowed_axes)
        for axis, source in zip(allowed, rng.sample(allowed, len(allowed)), strict=True):
            order[axis] = source
        return {"order": order}

    def moved(self, x: Tensor, values: dict[str, Any]) -> Tensor:
        return x.permute(0, *[axis + 1 for axis in values["order"]]).clone()
