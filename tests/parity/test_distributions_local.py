"""20,000 draws of ours against 20,000 of the real objects: places and values of the local transforms."""

from __future__ import annotations

import itertools
from functools import cache
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from batchgeneratorsv2.transforms.local import local_transform
from batchgeneratorsv2.transforms.local.brightness_gradient import BrightnessGradientAdditiveTransform
from batchgeneratorsv2.transforms.local.local_contrast import LocalContrastTransform
from batchgeneratorsv2.transforms.local.local_gamma import LocalGammaTransform
from batchgeneratorsv2.transforms.local.local_smoothing import LocalSmoothingTransform
from scipy.special import ndtr
from scipy.stats import kstest

from nnunet_gpuaug.batch import Shape

from .draws import independent_gates, independent_values, ours_drawn, probability, same_distribution
from .lift_more import real_drawn
from .measure import likely
from .test_distributions_more import of_da5

SHAPE = Shape(2, 1, (6, 14, 31))
OWN = {
    BrightnessGradientAdditiveTransform: "strength",
    LocalGammaTransform: "exponent",
    LocalContrastTransform: "factor",
    LocalSmoothingTransform: "strength",
}
REALS = {
    "DA5's gradient": of_da5(BrightnessGradientAdditiveTransform),
    "DA5's gamma": of_da5(LocalGammaTransform),
    # far from the patch and narrow, the original's weight would vanish and count as a channel that is left out
    "gradient": BrightnessGradientAdditiveTransform((5, 9), (-0.5, 1.5), (-3, 1), True, True, False, 0.7),
    "contrast": LocalContrastTransform((1, 9), (0, 1), (0.4, 2), False, 0.6),
    "smoothing": LocalSmoothingTransform((1, 9), (0, 1), (0.5, 1), (0.5, 1.5), True, 0.6),
}


@cache
def both(name):
    """Ours and theirs. Without SciPy's distribution objects, which take most of the time and do not matter here."""
    cdf = SimpleNamespace(norm=SimpleNamespace(cdf=lambda x, loc, scale: ndtr((x - loc) / scale)))
    with mock.patch.object(local_transform, "st", cdf):
        return ours_drawn(REALS[name], SHAPE), real_drawn(REALS[name], SHAPE)


@pytest.mark.parametrize("name", REALS)
def test_places_and_values(name):
    real, drawn = REALS[name], both(name)
    inner = getattr(real, "transform", real)
    for d in drawn:
        probability(d["batch_prob"], getattr(real, "apply_probability", 1), "gate")
        probability(d["active"], inner.p_per_channel, "channels")
        independent_gates(*d["active"].T, "channels")
    independent_gates(drawn[0]["batch_prob"], drawn[0]["active"][:, 0], "gate and channel")

    name = OWN[type(inner)]
    for channel in range(2):
        on = [d["active"][:, channel].astype(bool) for d in drawn]
        same_distribution(*(d[name][mask, channel] for d, mask in zip(drawn, on, strict=True)), name)
        for place, axis in itertools.product(("centers", "widths"), range(3)):
            of_both = [d[place][mask, channel, axis] for d, mask in zip(drawn, on, strict=True)]
            same_distribution(*of_both, f"{place}, axis {axis}")
    if type(inner) is LocalSmoothingTransform:
        same_distribution(*(d["sigma"][d["active"].any(1), 0] for d in drawn), "sigma")
        assert (drawn[0]["sigma"][:, 0] == drawn[0]["sigma"][:, 1]).all()

    ours = drawn[0]
    places = np.concatenate([ours["centers"][:, 0], ours["widths"][:, 0], ours[name][:, :1]], axis=1)
    for a, b in itertools.combinations(range(places.shape[1]), 2):
        independent_values(places[:, a], places[:, b], "centres, widths and value of one channel")
    for column in places.T:
        independent_values(column[:-1], column[1:], "neighbouring rows")
    for d in drawn:
        on = d["active"].all(1)
        for values in (d[name], d["centers"][..., 1], d["widths"][..., 2]):
            left, right = values[on].T
            if inner.same_for_all_channels:
                assert (left == right).all()
            else:
                independent_values(left, right, "both channels")


def test_log_uniform_scales():
    """DA5: exp(U(log(n // 6), log n)) for an axis of n voxels."""
    for d in both("DA5's gamma"):
        on = d["active"][:, 0].astype(bool)
        for axis, n in enumerate(SHAPE.spatial):
            low, high = np.log(n // 6), np.log(n)
            widths = np.log(d["widths"][on, 0, axis])
            likely("Kolmogorov-Smirnov", kstest(widths, "uniform", (low, high - low)).pvalue, f"log width, axis {axis}")
            centers = d["centers"][on, 0, axis] / n
            likely("Kolmogorov-Smirnov", kstest(centers, "uniform", (-0.5, 2)).pvalue, f"centre, axis {axis}")


@pytest.mark.parametrize(
    "name, ranges", [("DA5's gradient", [(-5, -1), (1, 5)]), ("DA5's gamma", [(0.01, 0.8), (1.5, 4)])]
)
def test_one_of_two_ranges(name, ranges):
    """Each with probability 1/2, uniform within."""
    value = OWN[type(REALS[name].transform)]
    for d in both(name):
        drawn = d[value][d["active"][:, 0].astype(bool), 0]
        lower = drawn < ranges[1][0]
        probability(lower, 0.5, "lower range")
        for part, (low, high) in zip((drawn[lower], drawn[~lower]), ranges, strict=True):
            likely("Kolmogorov-Smirnov", kstest(part, "uniform", (low, high - low)).pvalue, f"{name}, {low} to {high}")
