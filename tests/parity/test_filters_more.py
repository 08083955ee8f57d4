"""Median, sharpening and boxes: the same values in, the same image out."""

from __future__ import annotations

import pytest
import torch
from batchgeneratorsv2.transforms.noise.blank_rectangle import BlankRectangleTransform
from batchgeneratorsv2.transforms.noise.median_filter import MedianFilterTransform
from batchgeneratorsv2.transforms.noise.sharpen import SharpeningTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform

from .data import FORMS, label_map, unit_image
from .lift_more import check

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
shared = pytest.mark.parametrize("shared", [0, 1, 0.5], ids=lambda p: f"shared={p}")


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize("shape", [(9, 11), (7, 10, 9)], ids=str)
def test_median(size, shape, device):
    """Not one voxel may differ; even sizes reach one voxel further back than ahead."""
    check(MedianFilterTransform(size), unit_image(2, 2, *shape), None, device, tolerance=0)


@pytest.mark.parametrize("size", [2, 5, 6, 7])
@pytest.mark.parametrize("shape", [(1, 3), (2, 1, 4), (3, 3, 3)], ids=str)
def test_median_of_axes_shorter_than_the_filter(size, shape, device):
    check(MedianFilterTransform(size), unit_image(1, 1, *shape), None, device, tolerance=0)


@forms
@shared
def test_median_of_drawn_sizes(form, shared, device):
    real = MedianFilterTransform((2, 5 if len(form) == 5 else 8), p_same_for_each_channel=shared, p_per_channel=0.6)
    check(real, unit_image(*form), None, device, tolerance=0)


def test_median_in_float64_and_with_ties(device):
    image = unit_image(2, 2, 9, 8, 7).mul(2).round().double()
    check(MedianFilterTransform((2, 6)), image, None, device, tolerance=0)


@forms
@shared
@pytest.mark.parametrize("clamp", [0, 1, 0.5], ids=lambda p: f"clamp={p}")
def test_sharpening(form, shared, clamp, device):
    real = SharpeningTransform((0.1, 1), shared, 0.7, clamp)
    check(real, unit_image(*form), None, device)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (1, 6, 5)], ids=str)
def test_sharpening_of_a_first_axis_of_one_voxel(shape, device):
    check(SharpeningTransform(0.8), unit_image(1, 2, *shape), None, device)


def ranges_of(form):
    return [[max(1, n // 10), n // 3] for n in form[2:]]


@forms
@pytest.mark.parametrize("value", [torch.mean, 0, -1.5, (-2, 3)], ids=["mean", "0", "-1.5", "drawn"])
@pytest.mark.parametrize("number", [2, (1, 5)], ids=str)
@pytest.mark.parametrize("square", [False, True], ids=["any", "square"])
def test_rectangles(form, value, number, square, device):
    ranges = [[1, min(form[2:]) // 2]] * (len(form) - 2) if square else ranges_of(form)
    real = BlankRectangleTransform(ranges, value, number, square, p_per_channel=0.7)
    # means of overlapping boxes follow from each other
    check(real, unit_image(*form), None, device, tolerance=1e-5 if value is torch.mean else 0)


@forms
@pytest.mark.parametrize("size", ["one side", "a side for each axis"])
@pytest.mark.parametrize("square", [False, True], ids=["any", "square"])
def test_rectangles_of_fixed_size(form, size, square, device):
    """`force_square` says something about ranges only."""
    sides = 3 if size == "one side" else tuple(n // 3 for n in form[2:])
    check(BlankRectangleTransform(sides, torch.mean, (1, 4), square), unit_image(*form), None, device)


def test_rectangles_as_large_as_the_patch(device):
    check(BlankRectangleTransform((6, 5, 7), torch.mean, 2), unit_image(2, 2, 6, 5, 7), None, device)


@pytest.mark.parametrize(
    "real",
    [
        MedianFilterTransform((2, 6)),
        SharpeningTransform((0.1, 1)),
        BlankRectangleTransform(3, torch.mean, (1, 4)),
    ],
    ids=lambda t: type(t).__name__,
)
def test_a_closed_gate_leaves_the_row_alone(real, device):
    form = (6, 2, 9, 11, 7)
    drawn = check(RandomTransform(real, 0.5), unit_image(*form), label_map((6, 1, 9, 11, 7), [0, 1]), device)
    assert 0 < sum(values is None for values in drawn[0]) < 6
