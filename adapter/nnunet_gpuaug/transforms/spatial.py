"""Spatial augmentations of image and segmentation, and the folding of the first axis for dummy-2D training."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from ..batch import Batch, Shape
from ..errors import AugmentationError
from ..ops import geometry as ops
from ..ops._dispatch import warp_image, warp_labels
from ..sampling import Probability, Scalar, Uniform
from .base import LabelStep, Params, SpatialAugmentation, Spec, check_label_fits, drawn_rows

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
        s, seg = self.spec, batch.segmentation
        outside = s.padding_value_seg if s.border_mode_seg == "constant" else 0
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


class Mirror(SpatialAugmentation):
    """Flip along spatial axes, each with probability 1/2 per row.

    Args:
        allowed_axes: the spatial axes (0 is the first) that may be flipped.
        p: probability per row that anything is flipped at all.

    Raises:
        AugmentationError: an axis that the input does not have.

    Matches batchgeneratorsv2 `MirrorTransform`.
    """

    gated = True

    class Spec(Spec):
        allowed_axes: tuple[Annotated[int, Field(ge=0, le=2)], ...]

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

    def apply_to_image(self, batch: Batch, params: Params) -> Batch:
        return replace(batch, image=self._flip(batch.image, params, batch.owned))

    def apply_to_segmentation(self, batch: Batch, params: Params) -> Batch:
        if batch.segmentation is None:
            return batch
        return replace(batch, segmentation=self._flip(batch.segmentation, params, batch.owned))

    @staticmethod
    def _flip(x: Tensor, params: Params, owned: bool) -> Tensor:
        flips = params["flip"].tolist()
        axes = {row: [axis + 1 for axis, on in enumerate(flips[row]) if on] for row in drawn_rows(params)}
        out = x if owned else x.clone()
        for row, dims in axes.items():
            if dims:
                out[row] = x[row].flip(dims)
        return out


class Convert3DTo2D(LabelStep):
    """Fold the first spatial axis into the channels: (B, C, D, H, W) to (B, C · D, H, W), for dummy-2D augmentation,
    where all slices of a row share one in-plane transform. Matches batchgeneratorsv2 `Convert3DTo2DTransform`."""

    def shape_after(self, shape: Shape) -> Shape:
        if len(shape.spatial) != 3 or shape.folded:
            raise AugmentationError(f"Convert3DTo2D needs a 3D input, got the spatial size {shape.spatial}")
        depth, *plane = shape.spatial
        return Shape(
            shape.channels * depth, shape.seg_channels * depth, tuple(plane), (shape.channels, shape.seg_channels)
        )

    def apply(self, batch: Batch, params: Params) -> Batch:
        folded = batch.shape.channels, batch.shape.seg_channels
        seg = batch.segmentation
        return replace(
            batch,
            image=batch.image.flatten(1, 2),
            segmentation=None if seg is None else seg.flatten(1, 2),
            folded=folded,
        )


class Convert2DTo3D(LabelStep):
    """Undo `Convert3DTo2D`. Matches batchgeneratorsv2 `Convert2DTo3DTransform`."""

    def shape_after(self, shape: Shape) -> Shape:
        if not shape.folded:
            raise AugmentationError("Convert2DTo3D needs a Convert3DTo2D before it")
        channels, seg_channels = shape.folded
        return Shape(channels, seg_channels, (shape.channels // channels, *shape.spatial))

    def apply(self, batch: Batch, params: Params) -> Batch:
        channels, seg_channels = batch.folded
        seg = batch.segmentation
        return replace(
            batch,
            image=batch.image.unflatten(1, (channels, -1)),
            segmentation=None if seg is None else seg.unflatten(1, (seg_channels, -1)),
            folded=None,
        )
