"""Bad parameters of transforms, pipelines and nnU-Net's objects: the error names field, value and what is allowed."""

import pytest

from cases import default_compose
from checks import check, message_of
from nnunet_gpuaug import Pipeline, UnmappedTransformError
from nnunet_gpuaug import transforms as T

NAN, INF = float("nan"), float("inf")

PARAMETERS = {
    "p above 1": (lambda: T.Gamma(p=1.5), ["Gamma", "p = 1.5", "0 to 1"]),
    "p below 0": (lambda: T.Mirror(p=-0.1, allowed_axes=(0,)), ["Mirror", "p = -0.1", "0 to 1"]),
    "p NaN": (lambda: T.GaussianBlur(p=NAN), ["GaussianBlur", "p = nan", "0 to 1"]),
    "p text": (lambda: T.GaussianBlur(p="often"), ["GaussianBlur", "p = 'often'", "0 to 1"]),
    "p None": (lambda: T.GaussianBlur(p=None), ["GaussianBlur", "p = None", "0 to 1"]),
    "p of a cascade step": (
        lambda: T.ApplyRandomBinaryOperator(p=1.5, channel_idx=(0,)),
        ["ApplyRandomBinaryOperator", "p = 1.5", "0 to 1"],
    ),
    "p of a label step": (lambda: T.RemoveLabel(p=0.5, label_value=-1, set_to=0), ["RemoveLabel", "p = 0.5"]),
    "p_per_channel": (lambda: T.Gamma(p_per_channel=2), ["Gamma", "p_per_channel = 2", "less than or equal to 1"]),
    "p_rotation": (
        lambda: T.Spatial(patch_size=(3, 3), p_rotation=-1),
        ["p_rotation = -1", "greater than or equal to 0"],
    ),
    "misspelt": (lambda: T.Gamma(gama=(1, 2)), ["Gamma", "gama = (1, 2)", "gamma", "p_invert_image"]),
    "left out": (lambda: T.Mirror(), ["Mirror", "allowed_axes", "must be given"]),
    "reversed range": (lambda: T.SimulateLowResolution(scale=(2, 1)), ["scale = (2, 1)", "low <= high"]),
    "reversed split": (lambda: T.Gamma(gamma={"split": [1.5, 0.7]}), ["gamma", "[1.5, 0.7]", "low <= high"]),
    "misspelt split": (lambda: T.Gamma(gamma={"splt": [0.5, 0.7]}), ["gamma", "splt", "{split: [low, high]}"]),
    "three ends": (lambda: T.Gamma(gamma=(1, 2, 3)), ["gamma = (1, 2, 3)", "[low, high]"]),
    "NaN": (lambda: T.SimulateLowResolution(scale=NAN), ["scale = nan", "a number"]),
    "NaN in a range": (lambda: T.SimulateLowResolution(scale=(0.5, NAN)), ["scale = (0.5, nan)", "a number"]),
    "infinite": (lambda: T.GaussianNoise(noise_variance=INF), ["noise_variance = inf", "a number"]),
    "text": (lambda: T.Contrast(contrast_range="0.5"), ["contrast_range = '0.5'", "a number"]),
    "bool": (lambda: T.Contrast(contrast_range=True), ["contrast_range = True", "a number"]),
    "function": (lambda: T.Contrast(contrast_range=min), ["contrast_range", "min", "a number"]),
    "negative sigma": (lambda: T.GaussianBlur(blur_sigma=(-1, 1)), ["blur_sigma = (-1, 1)", "0 and above"]),
    "negative noise": (lambda: T.GaussianNoise(noise_variance=-0.1), ["noise_variance = -0.1", "0 and above"]),
    "gamma 0": (lambda: T.Gamma(gamma=(0, 1)), ["gamma = (0, 1)", "above 0"]),
    "scale 0": (lambda: T.SimulateLowResolution(scale=0), ["scale = 0", "above 0"]),
    "negative radius": (
        lambda: T.ApplyRandomBinaryOperator(channel_idx=(0,), strel_size=(-3, 3)),
        ["strel_size = (-3, 3)", "0 and above"],
    ),
    "operator": (
        lambda: T.ApplyRandomBinaryOperator(channel_idx=(0,), any_of_these=("dilate",)),
        ["any_of_these.0 = 'dilate'", "'dilation'", "'opening'"],
    ),
    "no operators": (
        lambda: T.ApplyRandomBinaryOperator(channel_idx=(0,), any_of_these=()),
        ["any_of_these = ()", "1"],
    ),
    "share of the patch": (
        lambda: T.RemoveRandomConnectedComponent(channel_idx=(0,), dont_do_if_covers_more_than_x_percent=15),
        ["dont_do_if_covers_more_than_x_percent = 15", "less than or equal to 1"],
    ),
    "patch of 0": (lambda: T.Spatial(patch_size=(0, 3, 3)), ["patch_size.0 = 0", "greater than or equal to 1"]),
    "patch of one axis": (lambda: T.Spatial(patch_size=(3,)), ["patch_size = (3,)", "at least 2"]),
    "interpolation": (
        lambda: T.Spatial(patch_size=(3, 3), mode_image="bicubic"),
        ["mode_image = 'bicubic'", "'bilinear' or 'nearest'"],
    ),
    "padding": (lambda: T.Spatial(patch_size=(3, 3), padding_mode_image="wrap"), ["'wrap'", "'reflection'"]),
    "padding NaN": (
        lambda: T.Spatial(patch_size=(3, 3), padding_value_image=NAN),
        ["padding_value_image = nan", "finite"],
    ),
    "tie break": (lambda: T.Spatial(patch_size=(3, 3), seg_tiebreak="first"), ["'first'", "'lowest'"]),
    "negative mirror axis": (
        lambda: T.Mirror(allowed_axes=(-1,)),
        ["allowed_axes.0 = -1", "greater than or equal to 0"],
    ),
    "negative ignored axis": (lambda: T.SimulateLowResolution(ignore_axes=(-1,)), ["ignore_axes.0 = -1"]),
    "no regions": (lambda: T.ConvertSegmentationToRegions(regions=()), ["regions = ()", "at least 1"]),
    "empty region": (lambda: T.ConvertSegmentationToRegions(regions=((1,), ())), ["regions.1 = ()", "at least 1"]),
    "no scales": (lambda: T.DownsampleSegForDS(ds_scales=()), ["ds_scales = ()", "at least 1"]),
    "NaN scale": (lambda: T.DownsampleSegForDS(ds_scales=(NAN,)), ["ds_scales.0", "nan", "finite"]),
    "percentile": (lambda: T.CutOffOutliers(percentile_upper=150), ["percentile_upper = 150", "0 to 100"]),
    "width of 0": (lambda: T.LocalGamma(scale=0), ["LocalGamma", "scale = 0", "above 0"]),
    "share of the axis": (
        lambda: T.LocalContrast(scale={"log_uniform_of_size": 0}),
        ["scale", "'log_uniform_of_size': 0", "from 1 on"],
    ),
    "local gamma": (lambda: T.LocalGamma(scale=2, gamma=(-1, 1)), ["gamma = (-1, 1)", "above 0"]),
    "either": (lambda: T.Gamma(gamma={"either": [[0.5, 1], [2, 1]]}), ["gamma", "[2, 1]", "low <= high"]),
    "either of nothing": (lambda: T.Gamma(gamma={"either": []}), ["gamma", "{'either': []}", "{either: "]),
    "side of 0": (
        lambda: T.BlankRectangle(rectangle_size=0, rectangle_value=0, num_rectangles=1),
        ["BlankRectangle", "rectangle_size = 0", "greater than or equal to 1"],
    ),
    "value of a box": (
        lambda: T.BlankRectangle(rectangle_size=1, rectangle_value="max", num_rectangles=1),
        ["rectangle_value = 'max'", "'mean'"],
    ),
    "median of nothing": (lambda: T.MedianFilter(filter_size=0), ["filter_size = 0", "greater than or equal to 1"]),
    "mean above deviation": (lambda: T.BrightnessAdditive(mu=2, sigma=1), ["BrightnessAdditive", "U(mu, sigma)"]),
    "axis twice": (
        lambda: T.Rot90(num_axis_combinations=1, allowed_axes=(1, 1)),
        ["allowed_axes = (1, 1)", "each axis only once"],
    ),
    "one axis to rotate": (
        lambda: T.Rot90(num_axis_combinations=1, allowed_axes=(1,)),
        ["allowed_axes = (1,)", "at least 2"],
    ),
    "one of nothing": (lambda: T.OneOf([]), ["OneOf", "transforms", "at least one"]),
    "one of what changes the shape": (
        lambda: T.OneOf([T.Convert3DTo2D()]),
        ["OneOf", "transforms[0]", "Convert3DTo2D"],
    ),
    "not a transform": (lambda: Pipeline([T.Gamma(), len]), ["transforms[1]", "len", "transform of this package"]),
    "a class": (lambda: Pipeline([T.Gamma]), ["transforms[0]", "Gamma", "transform of this package"]),
    "not a list": (lambda: Pipeline(T.Gamma()), ["transforms", "Gamma", "list"]),
    "seed": (lambda: Pipeline([], seed="a"), ["seed = 'a'", "2**63"]),
    "large seed": (lambda: Pipeline([], seed=2**63), [f"seed = {2**63}", "2**63 - 1"]),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name):
    call, parts = PARAMETERS[name]
    check(call, *parts)


class TestNnunetObjects:
    def test_unknown_transforms_are_named(self):
        check(lambda: Pipeline.from_nnunet(len), "builtin_function_or_method", "no counterpart", "on_unmapped")

    def test_unknown_options_are_named(self):
        compose = default_compose((8, 9))
        compose.transforms[0].p_elastic_deform = 0.3
        compose_error = message_of(lambda: Pipeline.from_nnunet(compose))
        assert "SpatialTransform: p_elastic_deform = 0.3" in compose_error and "only 0" in compose_error
        with pytest.raises(UnmappedTransformError):
            Pipeline.from_nnunet(compose)

    def test_new_attributes_are_named(self):
        compose = default_compose((8, 9))
        compose.transforms[-1].new_option = 1
        check(lambda: Pipeline.from_nnunet(compose), "DownsampleSegForDSTransform", "new_option", "no counterpart")
