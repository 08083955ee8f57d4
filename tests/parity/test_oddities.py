"""Where the originals surprise or fail: what was decided, each with its reason in the docstring it belongs to."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.intensity.brightness import BrightnessAdditiveTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.local.brightness_gradient import BrightnessGradientAdditiveTransform
from batchgeneratorsv2.transforms.local.local_gamma import LocalGammaTransform
from batchgeneratorsv2.transforms.noise.blank_rectangle import BlankRectangleTransform
from batchgeneratorsv2.transforms.noise.median_filter import MedianFilterTransform
from batchgeneratorsv2.transforms.noise.sharpen import SharpeningTransform
from batchgeneratorsv2.transforms.spatial.rot90 import Rot90Transform
from batchgeneratorsv2.transforms.spatial.transpose import TransposeAxesTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation import nnUNetTrainerDA5 as da5

from nnunet_gpuaug import AugmentationError, Batch, Pipeline, UnmappedTransformError
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.nnunet.mapping import map_transforms
from nnunet_gpuaug.ops.filters import median, sharpen
from nnunet_gpuaug.sampling import row_streams

from .data import label_map, unit_image
from .lift_more import check
from .test_mapping_more import EXPECTED


def da5_transforms(patch, **options):
    scales = options.pop("scales", None)
    return da5.nnUNetTrainerDA5.get_training_transforms(patch, (-0.5, 0.5), scales, (0, 1, 2), False, **options)


def test_synchronised_brightness_is_uniform_and_wants_mu_below_sigma():
    """The name says N(mu, sigma); shared by the channels it is U(mu, sigma), and mu > sigma fails: at the first draw in
    the original, where it is made here."""
    real = BrightnessAdditiveTransform(0.6, 0.5)
    with pytest.raises(AssertionError):
        real.get_parameters(image=torch.zeros((1, 2, 2)))
    with pytest.raises(UnmappedTransformError, match="mu must not exceed sigma"):
        map_transforms(real)
    with pytest.raises(AugmentationError, match="mu must not exceed sigma"):
        T.BrightnessAdditive(mu=0.6, sigma=0.5)
    T.BrightnessAdditive(mu=0.6, sigma=0.5, synchronize_channels=False)
    same = T.BrightnessAdditive(mu=0.5, sigma=0.5).draw(row_streams(0, 50), Shape(2, 0, (2, 2)))["shift"]
    assert (same == 0.5).all()
    assert "U(mu, sigma)" in T.BrightnessAdditive.__doc__


def test_even_medians_look_back_and_take_the_upper_middle():
    """Of two voxels a size of 2 takes the larger, this one or the one before: not their mean, not the smaller."""
    falling = torch.tensor([[4.0, 3, 2, 1, 0]])
    assert median(falling, 2).tolist() == [[4, 4, 3, 2, 1]]
    assert median(falling.flip(1), 2).tolist() == [[0, 1, 2, 3, 4]]
    for image in (falling, falling.flip(1)):
        assert torch.equal(MedianFilterTransform(2)(image=image[None].clone())["image"][0], median(image, 2))
    assert "Even sides" in T.MedianFilter.__doc__


def test_da5_inverts_in_both_gammas():
    """One of the two is meant to be without; it is not, so neither is ours."""
    real = [t.transform for t in da5_transforms((12, 12, 12)).transforms if hasattr(t, "transform")]
    assert [t.p_invert_image for t in real if type(t) is GammaTransform] == [1, 1]
    ours = map_transforms(da5_transforms((12, 12, 12)))
    assert [t.spec.p_invert_image for t in ours if type(t) is T.Gamma] == [1, 1]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_empty_ranges_of_rectangles_give_their_low_end(size):
    """DA5's range [max(1, n // 10), n // 3) has nothing in it for axes up to 5 voxels, and the original fails there."""
    ranges = [[max(1, size // 10), size // 3]] * 3
    real = BlankRectangleTransform(ranges, torch.mean, (1, 5))
    with pytest.raises(ValueError, match="low >= high"):
        real.get_parameters(image=torch.zeros((1, size, size, size)))
    (ours,) = map_transforms(real)
    drawn = ours.draw(row_streams(0, 50), Shape(1, 0, (size,) * 3))
    assert (drawn["size"] == 1).all() and set(drawn["start"].unique().tolist()) <= set(range(size))
    assert "empty range" in T.BlankRectangle.__doc__


def test_fixed_sides_of_rectangles_stay_with_force_square():
    """`force_square` is about ranges: of fixed sides the original makes no cube."""
    real = BlankRectangleTransform((2, 5, 3), torch.mean, 2, force_square=True)
    (ours,) = map_transforms(real)
    shape = Shape(1, 0, (4, 6, 5))
    values = ours.draw(row_streams(0, 20), shape)
    assert (values["size"] == torch.tensor([2, 5, 3])).all()
    (low, high), *_ = real.get_parameters(image=torch.zeros((1, *shape.spatial)))["rectangles"][0]
    assert [b - a for a, b in zip(low, high, strict=True)] == [2, 5, 3]


def test_no_rectangles():
    """A number drawn from [0, high) may be 0, and the number may be."""
    shape, image = Shape(2, 0, (5, 6)), unit_image(50, 2, 5, 6)
    ours = T.BlankRectangle(rectangle_size=2, rectangle_value=9, num_rectangles=(0, 2))
    params = ours.draw(row_streams(0, 50), shape)
    filled = (ours.apply(Batch(image), params).image == 9).flatten(2).sum(2)
    assert torch.equal(filled, 4 * params["count"]) and set(filled.unique().tolist()) == {0, 4}
    never = Pipeline([T.BlankRectangle(rectangle_size=2, rectangle_value=9, num_rectangles=0)])
    assert torch.equal(never(image=image)["image"], image)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_scales_for_small_axes_begin_at_one_voxel(size):
    """DA5 draws from log(n // 6) on; for n < 6 that is log(0), and the original fails."""
    real = LocalGammaTransform(da5._brightnessadditive_localgamma_transform_scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises((OverflowError, ValueError)):
            real.get_parameters(image=torch.zeros((1, size, size)))
    (ours,) = map_transforms(real)
    widths = ours.draw(row_streams(0, 500), Shape(1, 0, (size, 40)))["widths"][:, 0]
    assert ((widths >= 1) & (widths <= torch.tensor([size, 40.0]))).all()
    assert size == 1 or widths[:, 0].std() > 0.1


@pytest.mark.parametrize("patch", [(3, 12, 12), (1, 12, 10), (2, 2, 2)], ids=str)
def test_da5_of_small_axes(patch):
    """Where the original fails, ours goes through: every step, in every row."""
    real = da5_transforms(patch)
    for step in real.transforms:
        for inner in getattr(step, "list_of_transforms", [step]):
            if type(inner) is RandomTransform:
                inner.apply_probability = 1
    image, seg = unit_image(8, 2, *(n + 3 for n in patch)), label_map((8, 1, *(n + 3 for n in patch)), (-1, 0, 1))
    out = Pipeline.from_nnunet(real, seed=0)(image=image, segmentation=seg)
    assert out["image"].shape == (8, 2, *patch) and out["image"].isfinite().all()


def test_clipping_of_the_gradient_is_refused():
    real = BrightnessGradientAdditiveTransform(scale=3, clip_intensities=True)
    with pytest.raises(UnmappedTransformError, match=r"clip_intensities = True is not supported, only False.*Ways out"):
        map_transforms(real)
    assert "without `clip_intensities`" in T.BrightnessGradientAdditive.__doc__


def test_sharpening_in_float64_and_of_a_single_column():
    """The original has float32 weights, and drops axes of one voxel on the way."""
    image = unit_image(1, 6, 1, 1).double()
    for broken in (image[0][None], image[0][None].float()):
        with pytest.raises(RuntimeError):
            SharpeningTransform(0.5)(image=broken.clone())
    column = image[0, :, 0, 0].tolist()
    padded = [column[0], *column, column[-1]]
    expected = [x + 0.5 * (2 * x - padded[i] - padded[i + 2]) for i, x in enumerate(column)]
    np.testing.assert_allclose(sharpen(image[0], 0.5, False)[:, 0, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("real", [Rot90Transform(1, (1,), {0, 1, 2}), TransposeAxesTransform({0, 1, 2})])
def test_moves_of_unequal_axes_are_refused(real):
    """The original Rot90 would give rows of a batch different shapes; both are errors before anything is computed."""
    (ours,) = map_transforms(real)
    with pytest.raises(AugmentationError, match="equal length"):
        Pipeline([ours])(image=unit_image(2, 1, 5, 6, 6))


@pytest.mark.parametrize("real", [real for real, _ in EXPECTED], ids=lambda t: type(t).__name__)
def test_inputs_are_never_changed(real, device):
    """Most originals write into the image that they are given, some into the caller's array."""
    size = (7, 7, 7)[: 2 if type(real) is BlankRectangleTransform else 3]  # the range of the box has two axes
    image, seg = unit_image(20, 4, *size), label_map((20, 1, *size), (0, 1))
    before, seg_before = image.to(device, copy=True), seg.to(device, copy=True)
    passed, seg_passed = before.clone(), seg_before.clone()
    out = Pipeline.from_nnunet(real, seed=1)(image=passed, segmentation=seg_passed)
    assert torch.equal(passed, before) and torch.equal(seg_passed, seg_before)
    assert not torch.equal(out["image"], before)


def test_a_row_that_is_left_alone_is_not_written_to_by_the_next_step():
    """Steps that move nothing may pass the caller's tensor on; the step after them has to know."""
    steps = [Rot90Transform(1, (0,), {0, 1}), TransposeAxesTransform({0}), EXPECTED[0][0], EXPECTED[4][0]]
    check(steps, unit_image(4, 2, 9, 9), label_map((4, 1, 9, 9), (0, 1)), "cpu", measured_as="oddities: ")
