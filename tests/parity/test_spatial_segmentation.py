"""Segmentations through rotation and scaling: every voxel has the label that batchgeneratorsv2 gives it."""

from __future__ import annotations

import itertools
import math
import random
from typing import NamedTuple

import pytest
import torch

from .data import label_map, unit_image
from .harness import check
from .objects import fixed_spatial

LABELS = {
    2: (0, 1),
    3: (0, 1, 2),
    5: (0, 1, 2, 3, 4),
    40: tuple(range(40)),
}


class Case(NamedTuple):
    """Two segmentation channels, one without and one with the label -1, each of `labels` labels."""

    rank: int
    labels: int
    smooth: bool
    rotated: bool
    past_border: bool

    @property
    def patch(self) -> tuple[int, ...]:
        return (29, 30, 31) if self.rank == 3 else (161, 164)

    @property
    def size(self) -> tuple[int, ...]:
        if self.past_border:
            return tuple(n + 1 for n in self.patch)
        reach = {2: 1.75, 3: 2.15}[self.rank] if self.rotated else 1.3
        return tuple(math.ceil(n * reach) for n in self.patch)

    @property
    def voxels(self) -> int:
        return 2 * math.prod(self.patch)


CASES = [Case(*values) for values in itertools.product((2, 3), LABELS, (True, False), (False, True), (False, True))]


def test_the_cases_cover_three_million_voxels():
    assert sum(case.voxels for case in CASES) >= 3_000_000
    for labels in LABELS:
        assert sum(case.voxels for case in CASES if case.labels == labels) >= 750_000


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(f"{k}={v:d}" for k, v in c._asdict().items()))
def test_labels(case, device):
    index = CASES.index(case)
    angles = [(0.3 + index, -0.2 * index, 2 + 0.7 * index)[i] if case.rotated else 0.0 for i in range(case.rank)]
    scales = [1.13 + 0.003 * (index % 16), 0.87, 1.18][: case.rank]
    real, ours = fixed_spatial(angles, scales, case.patch)
    seg = torch.cat(
        [
            label_map((1, 1, *case.size), [label + low for label in LABELS[case.labels]], case.smooth, seed=index)
            for low in (0, -1)
        ],
        dim=1,
    )
    image = torch.zeros((1, 1, *case.size))
    drawn = check(real, image, seg, device, ours=ours, measured_as=f"{case.labels} labels: ")
    assert real._may_reach_outside(drawn[0][0]["grid"], case.size) == case.past_border


# (angles, scales, size, patch) with sampling points exactly between voxels, where labels share the top score
HALF, FULL = math.pi / 2, math.pi
TIES = {
    "90 degrees": ((HALF, 0, 0), (1, 1, 1), (13, 14, 15), (12, 12, 11)),
    "90 degrees about another axis": ((0, -HALF, 0), (1, 1, 1), (13, 14, 15), (12, 12, 13)),
    "180 degrees": ((0, 0, FULL), (1, 1, 1), (13, 14, 12), (12, 13, 12)),
    "three turns": ((HALF, FULL, -HALF), (1, 1, 1), (13, 13, 12), (12, 11, 12)),
    "half a voxel off": ((0, 0, 0), (1, 1, 1), (13, 14, 15), (12, 13, 14)),
    "twice as small": ((0, 0, 0), (2, 2, 2), (13, 14, 16), (12, 9, 11)),
    "twice as large": ((0, 0, 0), (0.5, 0.5, 0.5), (12, 13, 14), (12, 13, 15)),
    "unequal scales": ((0, 0, 0), (1.5, 0.75, 1), (12, 13, 15), (14, 13, 12)),
    "turned and scaled": ((0, 0, HALF), (0.5, 2, 1), (13, 14, 14), (12, 12, 11)),
}
ties = pytest.mark.parametrize("tie", TIES.values(), ids=TIES)
ranks = pytest.mark.parametrize("rank", [2, 3])


def of_rank(tie, rank):
    """In 2D: the first of the turns, and the last two axes."""
    angles, scales, size, patch = tie
    if rank == 2:
        angles = (0, next((angle for angle in angles if angle), 0))
    return angles, scales[-rank:], size[-rank:], patch[-rank:]


@ties
@ranks
@pytest.mark.parametrize("tiebreak", ["nearest", "lowest", "highest"])
def test_ties(tie, rank, tiebreak, device):
    angles, scales, size, patch = of_rank(tie, rank)
    for smooth in (True, False):
        # stock's two ways to sample the segmentation give the same labels
        real, ours = fixed_spatial(angles, scales, patch, seg_tiebreak=tiebreak, bg_style_seg_sampling=smooth)
        channels = [
            label_map((2, 1, *size), [label - smooth for label in labels], smooth) for labels in LABELS.values()
        ]
        check(real, torch.zeros((2, 1, *size)), torch.cat(channels, 1), device, ours=ours, measured_as="ties: ")


@ranks
@pytest.mark.parametrize("tiebreak", ["nearest", "lowest", "highest"])
def test_next_to_ties(rank, tiebreak, device):
    """Angles and scales so small that whole rows lie within a rounding of a tie: here stock's last bit decides."""
    size, patch = {2: ((138, 135), (135, 132)), 3: ((38, 35, 36), (35, 34, 35))}[rank]
    draw = random.Random(5)
    for turns, labels in itertools.product((0, 1, 2, 3), LABELS.values()):
        angles = [turns * HALF * (axis == rank - 1) + draw.uniform(-1e-4, 1e-4) for axis in range(rank)]
        scales = [1.0 if draw.random() < 0.5 else 1 + draw.uniform(-1e-4, 1e-4)] * rank
        real, ours = fixed_spatial(angles, scales, patch, seg_tiebreak=tiebreak)
        seg = label_map((1, 1, *size), labels, smooth=False, seed=turns)
        check(real, torch.zeros((1, 1, *size)), seg, device, ours=ours, measured_as="next to ties: ")


@ties
@ranks
def test_the_tie_cases_have_ties(tie, rank):
    """Stock itself gives other labels with another tiebreak: the test above tests something."""
    angles, scales, size, patch = of_rank(tie, rank)
    seg = label_map((1, 1, *size), LABELS[5], smooth=False)[0]
    found = []
    for tiebreak in ("lowest", "highest"):
        real, _ = fixed_spatial(angles, scales, patch, seg_tiebreak=tiebreak)
        values = real.get_parameters(image=torch.zeros((1, *size)))
        found.append(real.apply({"segmentation": seg}, **values)["segmentation"])
    assert (found[0] != found[1]).any()


@ties
@ranks
@pytest.mark.parametrize("border", [("zeros", 0), ("constant", -1)], ids=str)
def test_nearest(tie, rank, border, device):
    """`mode_seg` and `mode_image` nearest, with sampling points half way between voxels."""
    angles, scales, size, patch = of_rank(tie, rank)
    options = {"border_mode_seg": border[0], "padding_value_seg": border[1]}
    real, ours = fixed_spatial(angles, scales, patch, mode_seg="nearest", mode_image="nearest", **options)
    seg = label_map((2, 2, *size), LABELS[5], smooth=False)
    check(real, unit_image(2, 1, *size), seg, device, ours=ours, measured_as="nearest: ")


@pytest.mark.parametrize("border", [("zeros", -1), ("constant", 0), ("constant", 7), ("constant", 2)], ids=str)
@pytest.mark.parametrize("labels", [(3,), (0, 1), (-1, 4), (2, 5, 9)], ids=str)
@ranks
def test_label_outside(border, labels, rank, device):
    """Labels outside of the input that the segmentation has and has not; a channel of one label."""
    size = (12, 15, 13)[-rank:]
    options = {"border_mode_seg": border[0], "padding_value_seg": border[1]}
    real, ours = fixed_spatial((0.4, 1.1, 2.5)[-rank:], (1.2, 0.9, 1.3)[-rank:], size, **options)
    seg = label_map((2, 1, *size), labels)
    check(real, torch.zeros((2, 1, *size)), seg, device, ours=ours, measured_as="outside: ")


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("tiebreak", ["nearest", "lowest", "highest"])
def test_dtypes(dtype, tiebreak, device):
    size = (16, 17, 15)
    real, ours = fixed_spatial((0.4, 1.1, 2.5), (1.2, 0.9, 1.3), (14, 14, 15), seg_tiebreak=tiebreak)
    seg = label_map((2, 2, *size), (-1, 0, 3, 100, 127), dtype=dtype)
    check(real, torch.zeros((2, 1, *size)), seg, device, ours=ours, measured_as="dtypes: ")


@pytest.mark.parametrize("highest", [300, 30_000])
def test_large_labels(highest, device):
    size = (16, 17, 15)
    real, ours = fixed_spatial((0.4, 1.1, 2.5), (1.2, 0.9, 1.3), (14, 14, 15))
    seg = label_map((1, 1, *size), range(0, highest, highest // 30))
    check(real, torch.zeros((1, 1, *size)), seg, device, ours=ours, measured_as="large labels: ")
