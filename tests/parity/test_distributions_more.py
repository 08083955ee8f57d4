"""20,000 draws of ours against 20,000 of the real objects, for the transforms beyond nnU-Net's default."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.intensity.brightness import BrightnessAdditiveTransform
from batchgeneratorsv2.transforms.intensity.contrast import ContrastTransform
from batchgeneratorsv2.transforms.intensity.inversion import InvertImageTransform
from batchgeneratorsv2.transforms.intensity.random_clip import CutOffOutliersTransform
from batchgeneratorsv2.transforms.noise.blank_rectangle import BlankRectangleTransform
from batchgeneratorsv2.transforms.noise.median_filter import MedianFilterTransform
from batchgeneratorsv2.transforms.noise.rician import RicianNoiseTransform
from batchgeneratorsv2.transforms.noise.sharpen import SharpeningTransform
from batchgeneratorsv2.transforms.spatial.rot90 import Rot90Transform
from batchgeneratorsv2.transforms.spatial.transpose import TransposeAxesTransform
from batchgeneratorsv2.transforms.utils.random import OneOfTransform, RandomTransform
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation import nnUNetTrainerDA5 as da5
from scipy.stats import kstest

from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.sampling import SEED_BITS

from .draws import (
    independent_gates,
    independent_values,
    ours_drawn,
    probability,
    same_categories,
    same_distribution,
)
from .lift_more import real_drawn
from .measure import likely

SHAPE = Shape(2, 1, (2, 3, 2))
CUBE = Shape(2, 1, (3, 3, 3))


def of_da5(kind, nth=0):
    """The nth step of DA5's pipeline for a cube with this transform, or this first one of several, in it."""
    steps = da5.nnUNetTrainerDA5.get_training_transforms((12, 12, 12), (-0.5, 0.5), None, (0, 1, 2), False).transforms
    inner = [getattr(t, "list_of_transforms", [t])[0] for t in steps]
    return [step for step, t in zip(steps, inner, strict=True) if type(getattr(t, "transform", t)) is kind][nth]


def both(real, shape=SHAPE):
    """Ours and theirs, the gate checked."""
    drawn = ours_drawn(real, shape), real_drawn(real, shape)
    for d in drawn:
        probability(d["batch_prob"], getattr(real, "apply_probability", 1), "gate")
    independent_gates(drawn[0]["batch_prob"][:-1], drawn[0]["batch_prob"][1:], "gates of neighbouring rows")
    return drawn


def both_by_channel(real, shape=SHAPE):
    """As `both`, for transforms with one probability for all channels."""
    drawn = both(real, shape)
    for d in drawn:
        probability(d["active"], getattr(real, "transform", real).p_per_channel, "channels")
        independent_gates(*d["active"].T, "channels")
    independent_gates(drawn[0]["batch_prob"], drawn[0]["active"][:, 0], "gate and first channel")
    return drawn


def of_active(d, name, channel):
    return d[name][d["active"][:, channel].astype(bool), channel]


def same_values(drawn, name, about=""):
    """Per channel, where it is active: `name` (B, C) has the same distribution; rows do not depend on each other."""
    for channel in range(2):
        same_distribution(*(of_active(d, name, channel) for d in drawn), f"{name} {about}, channel {channel}")
    independent_values(drawn[0][name][:-1, 0], drawn[0][name][1:, 0], f"{name} of neighbouring rows")


@pytest.mark.parametrize("same, p", [(0, 0.5), (0.3, 0.7)])
def test_median(same, p):
    drawn = both_by_channel(RandomTransform(MedianFilterTransform((2, 8), same, p), 0.2))
    for channel in range(2):
        same_categories(*(of_active(d, "size", channel).tolist() for d in drawn), "sizes")
    for d in drawn:
        assert set(np.unique(d["size"])) == set(range(2, 8))
        probability(d["size"][:, 0] == d["size"][:, 1], same + (1 - same) / 6, "one size for both")
    independent_values(drawn[0]["size"][:-1, 0], drawn[0]["size"][1:, 0], "sizes of neighbouring rows")


@pytest.mark.parametrize("real", [of_da5(SharpeningTransform), SharpeningTransform((0.1, 1), 0.3, 0.7, 0.4)])
def test_sharpening(real):
    inner = getattr(real, "transform", real)
    drawn = both_by_channel(real)
    same_values(drawn, "strength")
    for d in drawn:
        same = d["strength"][:, 0] == d["strength"][:, 1]
        probability(same, inner.p_same_for_each_channel, "one strength for both")
        probability(d["clamp"], inner.p_clamp_intensities, "clamp")
        assert (d["clamp"][same, 0] == d["clamp"][same, 1]).all()
        independent_values(*d["strength"][~same].T, "strengths of both")
        independent_gates(*d["clamp"][~same].T, "clamp of both")


def test_brightness_additive_with_own_values():
    drawn = both_by_channel(of_da5(BrightnessAdditiveTransform))
    same_values(drawn, "shift")
    for d in drawn:
        likely("Kolmogorov-Smirnov", kstest(of_active(d, "shift", 0), "norm", (0, 0.5)).pvalue, "N(mu, sigma)")
        on = d["active"].all(1)
        independent_values(*d["shift"][on].T, "shifts of both channels")


@pytest.mark.parametrize("mu, sigma", [(-0.2, 0.5), (0.3, 2)])
def test_brightness_additive_synchronised(mu, sigma):
    """Not a normal distribution: U(mu, sigma)."""
    drawn = both_by_channel(BrightnessAdditiveTransform(mu, sigma, True, 0.6))
    same_values(drawn, "shift")
    for d in drawn:
        drawn_shift = of_active(d, "shift", 0)
        likely("Kolmogorov-Smirnov", kstest(drawn_shift, "uniform", (mu, sigma - mu)).pvalue, "U(mu, sigma)")
        assert kstest(drawn_shift, "norm", (mu, sigma)).pvalue < 1e-9
        on = d["active"].all(1)
        assert (d["shift"][on, 0] == d["shift"][on, 1]).all()


@pytest.mark.parametrize("p, synchronize, p_channel", [(0.7, 0.4, 0.5), (1, 0, 0.3), (0.2, 1, 0.5)])
def test_inversion(p, synchronize, p_channel):
    drawn = both(RandomTransform(InvertImageTransform(p, synchronize, p_channel), 0.6))
    same_categories(*([tuple(row) for row in d["active"].tolist()] for d in drawn), "channels")
    for d in drawn:
        probability(d["active"], p * (synchronize + (1 - synchronize) * p_channel), "channel")


@pytest.mark.parametrize("synchronize", [False, True])
def test_cut_off_outliers(synchronize):
    drawn = both_by_channel(CutOffOutliersTransform((0, 20), (75, 100), synchronize, 0.7, 0.4))
    for name in ("lower", "upper"):
        same_values(drawn, name)
    for d in drawn:
        on = d["active"].astype(bool)
        probability(d["retain_std"][on.all(1)], 0.4, "retain_std")
        independent_gates(*d["retain_std"][on.all(1)].T, "retain_std of both channels")
        independent_values(d["lower"][on[:, 0], 0], d["upper"][on[:, 0], 0], "ends")
        for name in ("lower", "upper"):
            left, right = d[name][on.all(1)].T
            assert (left == right).all() == synchronize
            if not synchronize:
                independent_values(left, right, f"{name} of both channels")


def test_rician_noise():
    drawn = both(RandomTransform(RicianNoiseTransform((0.1, 0.4)), 0.3))
    same_distribution(*(d["sigma"] for d in drawn), "sigma")
    seeds = drawn[0]["seed"]
    assert len(np.unique(seeds)) == len(seeds)
    likely("Kolmogorov-Smirnov", kstest(seeds / 2**SEED_BITS, "uniform").pvalue, "seeds")
    independent_values(drawn[0]["sigma"][:-1], drawn[0]["sigma"][1:], "neighbouring rows")
    independent_values(drawn[0]["sigma"], drawn[0]["batch_prob"], "gate and value")


@pytest.mark.parametrize(
    "real",
    [of_da5(Rot90Transform), Rot90Transform(2, (1, 2, 3), {0, 1, 2}), Rot90Transform(1, (0, 1, 1), {0, 2})],
    ids=["DA5", "two", "uneven"],
)
def test_rot90(real):
    drawn = both(real, CUBE)
    inner = getattr(real, "transform", real)
    multiples, pairs = inner.num_rot_per_combination, list(itertools.combinations(sorted(inner.allowed_axes), 2))
    for n in range(inner.num_axis_combinations):
        same_categories(
            *(
                [(k, *axes) for k, axes in zip(d["rotations"][:, n], d["axes"][:, n].tolist(), strict=True)]
                for d in drawn
            ),
            "multiples and pairs of axes",
        )
        for d in drawn:
            for k in set(multiples):
                probability(d["rotations"][:, n] == k, multiples.count(k) / len(multiples), f"{k} quarter turns")
            for pair in pairs:
                probability((d["axes"][:, n] == pair).all(1), 1 / len(pairs), f"axes {pair}")
    ours = drawn[0]
    independent_gates(ours["rotations"][:, 0] == multiples[0], ours["batch_prob"], "gate and multiple")
    independent_gates(ours["rotations"][:-1, 0] == multiples[0], ours["rotations"][1:, 0] == multiples[0], "rows")
    if inner.num_axis_combinations > 1:
        turns = ours["rotations"] == multiples[0]
        independent_gates(*turns.T, "two rotations")
        independent_gates(*(ours["axes"] == pairs[0]).all(2).T, "axes of two rotations")


@pytest.mark.parametrize("real", [of_da5(TransposeAxesTransform), TransposeAxesTransform({0, 2})], ids=["DA5", "two"])
def test_transpose(real):
    drawn = both(real, CUBE)
    axes = sorted(getattr(real, "transform", real).allowed_axes)
    same_categories(*([tuple(order) for order in d["order"].tolist()] for d in drawn), "orders")
    for d in drawn:
        orders = [tuple(order) for order in d["order"].astype(int)[:, axes].tolist()]
        for order in itertools.permutations(axes):
            probability(np.array([o == order for o in orders]), 1 / math.factorial(len(axes)), f"order {order}")
    moved = drawn[0]["order"][:, axes[0]] != axes[0]
    independent_gates(moved[:-1], moved[1:], "neighbouring rows")


@pytest.mark.parametrize("first, value", [(MedianFilterTransform, "sigmas"), (ContrastTransform, "factor")])
def test_one_of(first, value):
    """The choice, per row, and then the gate of what was chosen; the other one's gate is closed."""
    drawn = both(of_da5(first))
    states = [list(zip(d["choice"], d["0.batch_prob"], d["1.batch_prob"], strict=True)) for d in drawn]
    same_categories(*states, "choice and gates")
    for d in drawn:
        choice = d["choice"]
        probability(choice == 1, 0.5, "choice")
        for index in range(2):
            gate = d[f"{index}.batch_prob"]
            assert not gate[choice != index].any()
            probability(gate[choice == index], 0.2, f"gate of {index}")
            opened = d[f"{index}.active"][gate == 1]
            probability(opened, 0.5, f"channels of {index}")
        independent_gates(choice[:-1], choice[1:], "choices of neighbouring rows")
        independent_gates(choice[:-2], choice[2:], "choices of every second row")
    values = []
    for d in drawn:
        taken = (d["1.batch_prob"] == 1) & (d["1.active"][:, 0] == 1)
        values.append(d[f"1.{value}"][taken, 0].reshape(taken.sum(), -1)[:, 0])
    same_distribution(*values, f"{value} of the rows that chose it")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_one_of_several(count):
    real = OneOfTransform([RandomTransform(BrightnessAdditiveTransform(0, 1), 0.1 * (i + 1)) for i in range(count)])
    drawn = both(real)
    for d in drawn:
        for index in range(count):
            probability(d["choice"] == index, 1 / count, "choice")
            probability(d[f"{index}.batch_prob"], 0.1 * (index + 1) / count, "gate")


RANGES = [[1, 4], [2, 6], [1, 2]]
BOXES = Shape(2, 1, (7, 9, 4))


def test_rectangles():
    """Number, size, and position of the boxes, in the channels that have any."""
    drawn = both_by_channel(
        RandomTransform(BlankRectangleTransform(RANGES, torch.mean, (1, 5), False, 0.5), 0.4), BOXES
    )
    same_categories(*(of_active(d, "count", 1).tolist() for d in drawn), "number")
    boxes = [every_box(d) for d in drawn]
    for axis, (low, high) in enumerate(RANGES):
        same_categories(
            *([tuple(b) for b in box[:, :, axis].tolist()] for box in boxes), f"size and start, axis {axis}"
        )
        assert set(boxes[0][:, 0, axis]) == set(range(low, high))
    for a, b in ((0, 1), (1, 0)):
        independent_values(boxes[0][:, a, 0], boxes[0][:, b, 1], "sizes and starts of two axes")
    ours = drawn[0]
    independent_values(ours["size"][:, 0, 0, 0], ours["size"][:, 0, 1, 0], "sizes of two boxes")
    independent_values(ours["start"][:, 0, 0, 1], ours["start"][:, 1, 0, 1], "starts in two channels")
    independent_values(ours["count"][:, 0], ours["count"][:, 1], "numbers in two channels")
    independent_values(ours["start"][:-1, 0, 0, 0], ours["start"][1:, 0, 0, 0], "starts in neighbouring rows")


def every_box(d):
    """(box, size or start, axis), of all boxes that are filled."""
    count = d["count"] * d["active"].astype(bool)
    filled = np.arange(d["size"].shape[2]) < count[:, :, None]
    return np.stack([d["size"][filled], d["start"][filled]], axis=1).astype(int)


def test_square_rectangles_of_drawn_values():
    drawn = both_by_channel(BlankRectangleTransform([[1, 4]] * 3, (-1, 2.5), 2, True, 0.7), BOXES)
    boxes = [every_box(d) for d in drawn]
    for box in boxes:
        assert (box[:, 0] == box[:, 0, :1]).all()
    same_categories(*([tuple(b) for b in box[:, :, 0].tolist()] for box in boxes), "side and start")
    first = [d["value"][d["active"][:, 0].astype(bool), 0, 0] for d in drawn]
    same_distribution(*first, "value")
    likely("Kolmogorov-Smirnov", kstest(first[0], "uniform", (-1, 3.5)).pvalue, "value")
    independent_values(*drawn[0]["value"][:, 0, :2].T, "values of two boxes")
