"""The mapping of the transforms beyond nnU-Net's default, and of every class in batchgeneratorsv2."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from dataclasses import dataclass

import batchgeneratorsv2.transforms
import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.base import basic_transform as bases
from batchgeneratorsv2.transforms.intensity import brightness, gamma, inversion, random_clip
from batchgeneratorsv2.transforms.local import brightness_gradient, local_contrast, local_gamma, local_smoothing
from batchgeneratorsv2.transforms.noise import blank_rectangle, median_filter, rician, sharpen
from batchgeneratorsv2.transforms.spatial import channel_misalignment, mirroring, rot90, transpose
from batchgeneratorsv2.transforms.utils import compose, deep_supervision_downsampling, move_channels
from batchgeneratorsv2.transforms.utils import random as bg_random
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation import nnUNetTrainerDA5 as da5

from nnunet_gpuaug import UnmappedTransformError
from nnunet_gpuaug.nnunet.mapping import RULES, map_transforms
from nnunet_gpuaug.sampling import Constant, Either, LogUniformOfSize, Uniform
from nnunet_gpuaug.transforms import OneOf

from .mapped import EXPECTED as DEFAULT

SCALE = da5._brightnessadditive_localgamma_transform_scale
PLACE = {"scale": Uniform(3, 9), "loc": Uniform(0, 1), "same_for_all_channels": False, "p_per_channel": 0.4}


def local(kind, **values):
    return kind(**{"scale": (3, 9), "loc": (0, 1), "same_for_all_channels": False, "p_per_channel": 0.4, **values})


# (object, what our transform's parameters must be): no value is a default of ours
EXPECTED = [
    (
        brightness.BrightnessAdditiveTransform(0.1, 0.6, False, 0.3),
        {"mu": 0.1, "sigma": 0.6, "synchronize_channels": False, "p_per_channel": 0.3},
    ),
    (
        inversion.InvertImageTransform(0.3, 0.4, 0.2),
        {"p_invert_image": 0.3, "p_synchronize_channels": 0.4, "p_per_channel": 0.2},
    ),
    (
        random_clip.CutOffOutliersTransform((0, 3), 97, True, 0.3, 0.6),
        {
            "percentile_lower": Uniform(0, 3),
            "percentile_upper": Constant(97),
            "p_synchronize_channels": True,
            "p_per_channel": 0.3,
            "p_retain_std": 0.6,
        },
    ),
    (rician.RicianNoiseTransform((0.1, 0.3)), {"noise_variance": Uniform(0.1, 0.3)}),
    (
        median_filter.MedianFilterTransform((2, 8), 0.2, 0.6),
        {"filter_size": (2, 8), "p_same_for_each_channel": 0.2, "p_per_channel": 0.6},
    ),
    (
        sharpen.SharpeningTransform((0.1, 1), 0.2, 0.6, 0.7),
        {
            "strength": Uniform(0.1, 1),
            "p_same_for_each_channel": 0.2,
            "p_per_channel": 0.6,
            "p_clamp_intensities": 0.7,
        },
    ),
    (
        blank_rectangle.BlankRectangleTransform([[1, 4], [2, 6]], torch.mean, (1, 5), True, 0.6),
        {
            "rectangle_size": ((1, 4), (2, 6)),
            "rectangle_value": "mean",
            "num_rectangles": (1, 5),
            "force_square": True,
            "p_per_channel": 0.6,
        },
    ),
    (
        local(
            brightness_gradient.BrightnessGradientAdditiveTransform,
            max_strength=da5._brightness_gradient_additive_max_strength,
            mean_centered=False,
        ),
        {**PLACE, "max_strength": Either((Uniform(-5, -1), Uniform(1, 5))), "mean_centered": False},
    ),
    (
        local(local_gamma.LocalGammaTransform, gamma=da5._local_gamma_gamma, scale=SCALE),
        {**PLACE, "gamma": Either((Uniform(0.01, 0.8), Uniform(1.5, 4))), "scale": LogUniformOfSize(6)},
    ),
    (
        local(local_contrast.LocalContrastTransform, new_contrast=(0.6, 1.1)),
        {**PLACE, "new_contrast": Uniform(0.6, 1.1)},
    ),
    (
        local(local_smoothing.LocalSmoothingTransform, smoothing_strength=0.7, kernel_size=(1, 2)),
        {**PLACE, "smoothing_strength": Constant(0.7), "kernel_size": Uniform(1, 2)},
    ),
    (
        rot90.Rot90Transform(2, (0, 3), {0, 2}),
        {"num_axis_combinations": 2, "num_rot_per_combination": (0, 3), "allowed_axes": (0, 2)},
    ),
    (transpose.TransposeAxesTransform({1, 2}), {"allowed_axes": (1, 2)}),
]
each = pytest.mark.parametrize("real, expected", EXPECTED, ids=lambda v: type(v).__name__ if vars_of(v) else "")


def vars_of(value):
    return hasattr(value, "__dict__")


@each
@pytest.mark.parametrize("p", [None, 0.25])
def test_values(real, expected, p):
    (ours,) = map_transforms(real if p is None else bg_random.RandomTransform(real, p))
    assert type(ours) is RULES[type(real)].target
    assert dict(ours.spec) == expected
    assert ours.p == (1 if p is None else p)


@each
@pytest.mark.parametrize("name", ["a_new_option", "p", "same_on_batch", "keepdim"])
def test_an_unknown_attribute_is_an_error(real, expected, name):
    changed = copy.copy(real)
    setattr(changed, name, 0.5)
    with pytest.raises(UnmappedTransformError, match=rf"(?s){type(real).__name__}.*\b{name}\b.*Ways out"):
        map_transforms(changed)


def test_every_rule_is_tested():
    assert {type(real) for real, _ in [*DEFAULT, *EXPECTED]} == set(RULES)


RECTANGLE = {"rectangle_size": 3, "rectangle_value": 0, "num_rectangles": 1}


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"rectangle_size": 4}, {"rectangle_size": 4}),
        ({"rectangle_size": (4, 5)}, {"rectangle_size": (4, 5)}),
        ({"rectangle_size": np.array([[1, 4], [2, 5]])}, {"rectangle_size": ((1, 4), (2, 5))}),
        ({"rectangle_value": -1.5}, {"rectangle_value": -1.5}),
        ({"rectangle_value": [0, 2]}, {"rectangle_value": (0.0, 2.0)}),
        ({"rectangle_value": np.float32(0.5)}, {"rectangle_value": 0.5}),
        ({"num_rectangles": (0, 3)}, {"num_rectangles": (0, 3)}),
        ({"num_rectangles": 0}, {"num_rectangles": 0}),
    ],
    ids=str,
)
def test_the_forms_of_rectangles(options, expected):
    (ours,) = map_transforms(blank_rectangle.BlankRectangleTransform(**{**RECTANGLE, **options}))
    assert dict(ours.spec) == {**dict(ours.spec), **expected}


def test_axes_as_numpy_and_as_sets():
    """DA5 passes a set of NumPy integers."""
    (ours,) = map_transforms(rot90.Rot90Transform(1, (0, 1), set(np.where([True, False, True])[0])))
    assert ours.spec.allowed_axes == (0, 2)


@dataclass
class Unhashable:
    """A value drawn by the user's own object, which cannot be looked up in a dict."""

    value: float = 1.0

    def __call__(self, *args, **kwargs):
        return self.value


def with_attribute(real, name, value):
    setattr(real, name, value)
    return real


def rectangles(**options):
    return blank_rectangle.BlankRectangleTransform(**{**RECTANGLE, **options})


UNSUPPORTED = {
    "clip_intensities": local(brightness_gradient.BrightnessGradientAdditiveTransform, clip_intensities=True),
    "max_strength": local(brightness_gradient.BrightnessGradientAdditiveTransform, max_strength=lambda image, k: 1.0),
    "scale": local(local_gamma.LocalGammaTransform, scale=lambda size, axis: size[axis]),
    "loc": local(local_contrast.LocalContrastTransform, loc=SCALE),
    "gamma": gamma.GammaTransform(Unhashable(), 0, False, 1, 1),
    "rectangle_value": rectangles(rectangle_value=torch.median),
    "color_fn": with_attribute(rectangles(), "color_fn", lambda x: 0.0),
    "a_new_option": with_attribute(rectangles(), "color_fn", with_attribute(rectangles().color_fn, "a_new_option", 1)),
    "rectangle_size": rectangles(rectangle_size=0),
    "num_axis_combinations": rot90.Rot90Transform((1, 3)),
    "percentile_upper": random_clip.CutOffOutliersTransform(0, 101),
    "filter_size": median_filter.MedianFilterTransform(0),
    "mu": brightness.BrightnessAdditiveTransform(0.6, 0.5),
    "sigma": brightness.BrightnessAdditiveTransform(0, -0.5, False),
}


@pytest.mark.parametrize("option", UNSUPPORTED)
def test_unsupported_values_are_errors(option):
    real = UNSUPPORTED[option]
    with pytest.raises(UnmappedTransformError, match=rf"(?s){type(real).__name__}.*\b{option}\b.*Ways out"):
        map_transforms(real)


MEDIAN, SHARPEN = EXPECTED[4][0], EXPECTED[5][0]


def test_one_of():
    options = [
        MEDIAN,
        bg_random.RandomTransform(SHARPEN, 0.3),
        compose.ComposeTransforms([mirroring.MirrorTransform((0,))]),
    ]
    (ours,) = map_transforms(bg_random.OneOfTransform(options))
    assert type(ours) is OneOf
    assert [(type(t).__name__, t.p) for t in ours.transforms] == [
        ("MedianFilter", 1),
        ("Sharpening", 0.3),
        ("Mirror", 1),
    ]


NOT_ONE = {
    "several": compose.ComposeTransforms([MEDIAN, SHARPEN]),
    "none": compose.ComposeTransforms([]),
    "OneOf": bg_random.OneOfTransform([MEDIAN, SHARPEN]),
    "DownsampleSegForDS": deep_supervision_downsampling.DownsampleSegForDSTransform([1, 0.5]),
}


@pytest.mark.parametrize("name", NOT_ONE)
def test_a_choice_that_is_not_one_gated_transform_is_an_error(name):
    """A composition as a choice is not several choices, each with a smaller probability."""
    with pytest.raises(UnmappedTransformError, match=r"(?s)OneOf.*Ways out"):
        map_transforms(bg_random.OneOfTransform([NOT_ONE[name], MEDIAN]))


CONTAINERS = {compose.ComposeTransforms, bg_random.RandomTransform, bg_random.OneOfTransform}
BASES = {bases.BasicTransform, bases.ImageOnlyTransform, bases.SegOnlyTransform}
UNMAPPED = {
    channel_misalignment.ChannelMisalignmentTransform: "no trainer of nnU-Net uses it; warps each channel on its own",
    move_channels.MoveChannelsTransform: "moves channels to keys that a batch of image and segmentation does not have",
    compose.TimedComposeTransforms: "measures and prints times; use ComposeTransforms",
}


def all_classes():
    package = batchgeneratorsv2.transforms
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    found, queue = set(), [bases.BasicTransform]
    while queue:
        kind = queue.pop()
        found.add(kind)
        queue += kind.__subclasses__()
    return {kind for kind in found if kind.__module__.startswith(package.__name__)}


def test_every_class_of_batchgeneratorsv2_is_accounted_for():
    groups = [set(RULES), CONTAINERS, BASES, set(UNMAPPED)]
    assert sum(map(len, groups)) == len(set().union(*groups)), "no class is in two groups"
    assert all_classes() == set().union(*groups)


@pytest.mark.parametrize("kind", [*UNMAPPED, *BASES], ids=lambda kind: kind.__name__)
def test_unmapped_classes_are_errors(kind):
    real = object.__new__(kind)
    with pytest.raises(UnmappedTransformError, match=rf"(?s){kind.__name__}.*Ways out"):
        map_transforms(real)
