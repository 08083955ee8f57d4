"""From the transform objects that an nnU-Net trainer builds to the transforms of this package.

A rule is looked up by the exact type and has to account for every attribute of the object, so that an option added
upstream is an error here and never dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from batchgeneratorsv2.transforms.intensity import (
    brightness,
    contrast,
    gamma,
    gaussian_noise,
    inversion,
    random_clip,
)
from batchgeneratorsv2.transforms.local import brightness_gradient, local_contrast, local_gamma, local_smoothing
from batchgeneratorsv2.transforms.nnunet import random_binary_operator, remove_connected_components, seg_to_onehot
from batchgeneratorsv2.transforms.noise import blank_rectangle, gaussian_blur, median_filter, rician, sharpen
from batchgeneratorsv2.transforms.spatial import low_resolution, mirroring, rot90, spatial, transpose
from batchgeneratorsv2.transforms.utils import (
    compose,
    deep_supervision_downsampling,
    nnunet_masking,
    pseudo2d,
    remove_label,
    seg_to_regions,
)
from batchgeneratorsv2.transforms.utils import random as bg_random
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation import nnUNetTrainerDA5 as da5

from .. import transforms as ours
from ..errors import AugmentationError, UnmappedTransformError
from ..sampling import Either, LogUniformOfSize, Uniform
from ..transforms.base import Transform

_WAYS_OUT = (
    "Ways out: remove or replace it in the trainer's get_training_transforms, keep it and everything before it in the "
    "data-loading workers (on_unmapped: host), or open an issue that names it."
)

_OPERATORS = {
    random_binary_operator.binary_dilation_torch: "dilation",
    random_binary_operator.binary_erosion_torch: "erosion",
    random_binary_operator.binary_closing_torch: "closing",
    random_binary_operator.binary_opening_torch: "opening",
}

# the distributions that nnU-Net's DA5 trainer writes as functions
_FUNCTIONS = {
    da5._brightnessadditive_localgamma_transform_scale: LogUniformOfSize(6),
    da5._brightness_gradient_additive_max_strength: Either((Uniform(-5, -1), Uniform(1, 5))),
    da5._local_gamma_gamma: Either((Uniform(0.01, 0.8), Uniform(1.5, 4))),
}


def _value(value: Any) -> Any:
    """batchgeneratorsv2's way to write a value (`RandomScalar`, NumPy, tensors) as this package writes it."""
    if getattr(value, "__func__", None) is contrast.BGContrast.sample_contrast:
        value = value.__self__
    if type(value) is contrast.BGContrast:
        return {"split": _value(_attributes(value, "contrast_range")["contrast_range"])}
    if callable(value):
        return _counterpart(value, _FUNCTIONS)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    return [_value(v) for v in value] if isinstance(value, (list, tuple)) else value


def _attributes(source: Any, *known: str) -> dict[str, Any]:
    """The object's attributes; an error if there are others than the known ones."""
    unknown = vars(source).keys() - set(known)
    if unknown:
        raise UnmappedTransformError(
            f"{type(source).__name__}: the option(s) {', '.join(sorted(unknown))} have no counterpart here. {_WAYS_OUT}"
        )
    return vars(source)


def _counterpart(function: Any, known: dict[Any, Any]) -> Any:
    """What `known` has for the function, else the function itself: it need not be hashable."""
    return next((ours for theirs, ours in known.items() if theirs is function), function)


def _operators(functions: Any) -> list[Any]:
    return [_counterpart(f, _OPERATORS) for f in functions]


def _regions(regions: Any) -> list[list[int]]:
    return [[int(label) for label in region] for region in regions]


def _rectangle_value(source: Any) -> Any:
    if type(source) is not blank_rectangle.ColorFunctionExtractor:
        raise AugmentationError(f"color_fn = {source!r} is not supported, only the one that rectangle_value makes")
    value = _attributes(source, "rectangle_value")["rectangle_value"]
    return "mean" if value is torch.mean else _value(value)


class Rule(NamedTuple):
    """How one class is mapped.

    Attributes:
        target: the class here.
        fixed: options that have one supported value; any other is unmapped.
        ignored: attributes that do not change what is computed.
        read: readers of attributes whose form differs; all others are passed on as they are.
        renamed: attributes that have another name here.
    """

    target: type[Transform]
    fixed: dict[str, Any] = {}
    ignored: tuple[str, ...] = ()
    read: dict[str, Callable[[Any], Any]] = {}
    renamed: dict[str, str] = {}


RULES: dict[type, Rule] = {
    spatial.SpatialTransform: Rule(
        ours.Spatial,
        fixed={"p_elastic_deform": 0, "random_crop": False, "align_corners": False},
        # the border distance matters to random crops only, the next four to elastic deformation only;
        # both ways of sampling the segmentation give the same labels
        ignored=(
            "patch_center_dist_from_border",
            "elastic_deform_scale",
            "elastic_deform_magnitude",
            "p_synchronize_def_scale_across_axes",
            "center_deformation",
            "bg_style_seg_sampling",
            "_grid_cache",
        ),
    ),
    mirroring.MirrorTransform: Rule(ours.Mirror),
    gaussian_noise.GaussianNoiseTransform: Rule(ours.GaussianNoise),
    gaussian_blur.GaussianBlurTransform: Rule(
        ours.GaussianBlur, ignored=("benchmark", "benchmark_use_fft", "benchmark_num_runs")
    ),
    brightness.MultiplicativeBrightnessTransform: Rule(ours.MultiplicativeBrightness),
    contrast.ContrastTransform: Rule(ours.Contrast),
    low_resolution.SimulateLowResolutionTransform: Rule(ours.SimulateLowResolution, ignored=("upmodes",)),
    gamma.GammaTransform: Rule(ours.Gamma),
    brightness.BrightnessAdditiveTransform: Rule(ours.BrightnessAdditive),
    inversion.InvertImageTransform: Rule(ours.InvertImage),
    random_clip.CutOffOutliersTransform: Rule(ours.CutOffOutliers),
    rician.RicianNoiseTransform: Rule(ours.RicianNoise),
    median_filter.MedianFilterTransform: Rule(ours.MedianFilter),
    sharpen.SharpeningTransform: Rule(ours.Sharpening),
    blank_rectangle.BlankRectangleTransform: Rule(
        ours.BlankRectangle, read={"color_fn": _rectangle_value}, renamed={"color_fn": "rectangle_value"}
    ),
    brightness_gradient.BrightnessGradientAdditiveTransform: Rule(
        ours.BrightnessGradientAdditive, fixed={"clip_intensities": False}
    ),
    local_gamma.LocalGammaTransform: Rule(ours.LocalGamma),
    local_contrast.LocalContrastTransform: Rule(ours.LocalContrast),
    local_smoothing.LocalSmoothingTransform: Rule(ours.LocalSmoothing),
    rot90.Rot90Transform: Rule(ours.Rot90),
    transpose.TransposeAxesTransform: Rule(ours.TransposeAxes),
    nnunet_masking.MaskImageTransform: Rule(ours.MaskImage),
    remove_label.RemoveLabelTransform: Rule(ours.RemoveLabel),
    seg_to_onehot.MoveSegAsOneHotToDataTransform: Rule(ours.MoveSegAsOneHot),
    random_binary_operator.ApplyRandomBinaryOperatorTransform: Rule(
        ours.ApplyRandomBinaryOperator, read={"any_of_these": _operators}
    ),
    remove_connected_components.RemoveRandomConnectedComponentFromOneHotEncodingTransform: Rule(
        ours.RemoveRandomConnectedComponent
    ),
    seg_to_regions.ConvertSegmentationToRegionsTransform: Rule(
        ours.ConvertSegmentationToRegions, read={"regions": _regions}
    ),
    deep_supervision_downsampling.DownsampleSegForDSTransform: Rule(ours.DownsampleSegForDS),
    pseudo2d.Convert3DTo2DTransform: Rule(ours.Convert3DTo2D),
    pseudo2d.Convert2DTo3DTransform: Rule(ours.Convert2DTo3D),
}


def map_transforms(source: Any) -> list[Transform]:
    """The transforms here for a trainer, a `ComposeTransforms` or a single transform.

    Raises:
        UnmappedTransformError: names the transform or option without a counterpart, and the ways out.
    """
    if hasattr(source, "get_training_transforms"):
        source = training_transforms(source)
    kind = type(source)
    if kind is compose.ComposeTransforms:
        return [mapped for t in _attributes(source, "transforms")["transforms"] for mapped in map_transforms(t)]
    if kind is bg_random.OneOfTransform:
        return [_map_choice(source)]
    if kind is bg_random.RandomTransform:
        return [_map_gated(source)]
    return [_map_one(source)]


def _map_choice(choice: Any) -> Transform:
    options = _attributes(choice, "list_of_transforms")["list_of_transforms"]
    mapped = [map_transforms(t) for t in options]
    for option, of_option in zip(options, mapped, strict=True):
        if len(of_option) != 1:
            raise UnmappedTransformError(
                f"OneOfTransform: a choice that is a {type(option).__name__} of {len(of_option)} transforms has no "
                f"counterpart here, only one of a single transform. {_WAYS_OUT}"
            )
    try:
        return ours.OneOf([transform for (transform,) in mapped])
    except AugmentationError as error:
        raise UnmappedTransformError(f"OneOfTransform cannot be mapped: {error}. {_WAYS_OUT}") from error


def _map_gated(gate: Any) -> Transform:
    known = _attributes(gate, "transform", "apply_probability")
    inner, p = known["transform"], known["apply_probability"]
    target = RULES[type(inner)].target if type(inner) in RULES else None
    if p == 1 or target is None:
        return _map_one(inner)
    if not target.gated:
        raise UnmappedTransformError(
            f"RandomTransform with apply_probability = {p} around {type(inner).__name__}, which changes the form of "
            f"the sample: the rows of a batch would differ in shape. {_WAYS_OUT}"
        )
    return _map_one(inner, p=p)


def _map_one(transform: Any, **gate: float) -> Transform:
    name = type(transform).__name__
    rule = RULES.get(type(transform))
    if rule is None:
        raise UnmappedTransformError(f"{name} ({type(transform).__module__}) has no counterpart here. {_WAYS_OUT}")
    fields = [name for name in rule.target.Spec.model_fields if name not in rule.renamed.values()]
    known = [*fields, *rule.renamed, *rule.fixed, *rule.ignored]
    values = {k: v for k, v in _attributes(transform, *known).items() if k not in rule.ignored}
    for option, supported in rule.fixed.items():
        if option in values and values.pop(option) != supported:
            raise UnmappedTransformError(
                f"{name}: {option} = {getattr(transform, option)!r} is not supported, only {supported!r}. {_WAYS_OUT}"
            )
    try:
        read = {rule.renamed.get(k, k): rule.read.get(k, _value)(v) for k, v in values.items()}
        return rule.target(**read, **gate)
    except AugmentationError as error:
        raise UnmappedTransformError(f"{name} cannot be mapped: {error}. {_WAYS_OUT}") from error


def training_transforms(trainer: Any, configured: tuple | None = None) -> Any:
    """The training transforms of an nnU-Net trainer, asked for as its `get_dataloaders` does.

    Args:
        trainer: the trainer; of a wrapped one, what the wrapped class trains with.
        configured: what its `configure_rotation_dummyDA_mirroring_and_inital_patch_size` returned, if that is known.
    """
    configured = configured or trainer.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
    rotation, dummy_2d, _, mirror_axes = configured
    # a wrapped trainer keeps its own transforms from the loaders
    own = getattr(trainer, "gpuaug_own_training_transforms", trainer.get_training_transforms)
    return own(
        trainer.configuration_manager.patch_size,
        rotation,
        trainer._get_deep_supervision_scales(),
        mirror_axes,
        dummy_2d,
        use_mask_for_norm=trainer.configuration_manager.use_mask_for_norm,
        **_label_arguments(trainer),
    )


def validation_transforms(trainer: Any) -> Any:
    """The validation transforms of an nnU-Net trainer, asked for as its `get_dataloaders` does."""
    own = getattr(trainer, "gpuaug_own_validation_transforms", trainer.get_validation_transforms)
    return own(trainer._get_deep_supervision_scales(), **_label_arguments(trainer))


def _label_arguments(trainer: Any) -> dict[str, Any]:
    labels = trainer.label_manager
    return {
        "is_cascaded": trainer.is_cascaded,
        "foreground_labels": labels.foreground_labels,
        "regions": labels.foreground_regions if labels.has_regions else None,
        "ignore_label": labels.ignore_label,
    }
