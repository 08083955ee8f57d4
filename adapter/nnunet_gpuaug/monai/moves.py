"""Where a draw moved the voxels of each row, for the affine and for the inverse."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..batch import Shape
from ..ops import geometry
from ..pipeline import Draw
from ..transforms import Mirror, OneOf, Rot90, Spatial, TransposeAxes
from ..transforms.base import Params, Transform, compute_dtype, drawn_rows, values_of


class Move(NamedTuple):
    """One step of one row. The output voxel at o was read at s of the input, in voxels, where

        s - (before - 1) / 2 = linear · (o - (after - 1) / 2)      turn, warp
        s = o + before // 2 - after // 2                           crop

    Attributes:
        kind: "turn" (flips and swapped axes, exact), "crop" (a slice, or padding) or "warp" (interpolated).
        linear: the matrix, one list for each row of it.
        before, after: spatial size of input and output.
    """

    kind: Literal["turn", "crop", "warp"]
    linear: list[list[float]]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def matrix(self) -> np.ndarray:
        """Output to input voxels, homogeneous."""
        before, after = np.array(self.before), np.array(self.after)
        rank = len(before)
        matrix = np.eye(rank + 1)
        matrix[:rank, :rank] = self.linear
        shift = before // 2 - after // 2
        if self.kind != "crop":
            shift = (before - 1) / 2 - matrix[:rank, :rank] @ ((after - 1) / 2)
        matrix[:rank, rank] = shift
        return matrix

    def undone(self, x: Tensor, mode: str) -> Tensor:
        """x (C, *after) where it came from, (C, *before); 0 where nothing is known.

        Args:
            mode: of a warp, "bilinear" or "nearest". Integers are always nearest.
        """
        if self.kind == "crop":
            return geometry.center_crop(x, self.before)
        linear = np.linalg.inv(self.linear)
        if self.kind == "turn":
            order = np.abs(linear).argmax(axis=0)
            flipped = [axis + 1 for axis, source in enumerate(order) if linear[source, axis] < 0]
            return x.permute(0, *(order + 1).tolist()).flip(flipped)
        if not x.is_floating_point():
            return geometry.warp_labels(x, linear, self.before, 0, "nearest")
        return geometry.warp_image(x.to(compute_dtype(x)), linear, self.before, mode).to(x.dtype)


def matrix_of(moves: Sequence[Move]) -> np.ndarray:
    """Output to input voxels of the moves one after the other."""
    return functools.reduce(np.matmul, [move.matrix for move in moves]) if moves else np.eye(4)


def resizing(before: Sequence[int], after: Sequence[int]) -> Move:
    """The same field of view in other voxels."""
    linear = np.diag(np.array(before) / np.array(after)).tolist()
    return Move("warp", linear, tuple(before), tuple(after))


def moves_of(transforms: Sequence[Transform], draw: Draw) -> list[list[Move]]:
    """The moves of each row."""
    rows: list[list[Move]] = [[] for _ in range(len(draw))]
    shape = draw.shape
    for transform, params in zip(transforms, draw.params, strict=True):
        _add(rows, transform, params, shape)
        shape = transform.shape_after(shape)
    return rows


def _add(rows: list[list[Move]], transform: Transform, params: Params, shape: Shape) -> None:
    if isinstance(transform, OneOf):
        for option, own in zip(transform.transforms, _params_of_options(transform, params), strict=True):
            _add(rows, option, own, shape)
    elif isinstance(transform, Spatial):
        after = transform.shape_after(shape)
        warped = [row for row in drawn_rows(params) if params["warp"][row]]
        for row, moves in enumerate(rows):
            if row in warped:
                matrix = geometry.affine_matrix(params["angles"][row].tolist(), params["scales"][row].tolist())
                moves.append(_move("warp", matrix, shape, after))
            elif after != shape:
                moves.append(_move("crop", np.eye(len(shape.spatial)), shape, after))
    elif isinstance(transform, Mirror | Rot90 | TransposeAxes):
        for row in drawn_rows(params):
            values = {name: value[row].tolist() for name, value in values_of(params).items()}
            rows[row].append(_move("turn", _turn(transform, values, len(shape.spatial)), shape, shape))


def _params_of_options(choice: OneOf, params: Params) -> list[Params]:
    prefixes = [f"{index}." for index in range(len(choice.transforms))]
    return [{k.removeprefix(p): v for k, v in params.items() if k.startswith(p)} for p in prefixes]


def _turn(transform: Mirror | Rot90 | TransposeAxes, values: dict[str, Any], rank: int) -> np.ndarray:
    """The matrix, read off a cube of three voxels a side that holds each voxel's offset from the centre."""
    offsets = torch.stack(torch.meshgrid(*[torch.arange(-1.0, 2)] * rank, indexing="ij"))
    moved = transform.moved(offsets, values)
    columns = [moved[(slice(None), *[1 + (other == axis) for other in range(rank)])] for axis in range(rank)]
    return torch.stack(columns, dim=1).double().numpy()


def _move(kind: str, linear: np.ndarray, before: Shape, after: Shape) -> Move:
    sizes = before.spatial, after.spatial
    if before.folded:  # the first axis is among the channels, and stays as it is
        depth = before.channels // before.folded[0]
        whole = np.eye(len(linear) + 1)
        whole[1:, 1:] = linear
        linear, sizes = whole, ((depth, *sizes[0]), (depth, *sizes[1]))
    return Move(kind, linear.tolist(), *(tuple(size) for size in sizes))
