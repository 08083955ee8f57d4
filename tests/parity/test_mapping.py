"""The mapping accounts for every attribute of every object, or says what it cannot map and what to do."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform
from batchgeneratorsv2.transforms.intensity import brightness, contrast, gamma, gaussian_noise
from batchgeneratorsv2.transforms.nnunet import random_binary_operator
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.spatial import mirroring
from batchgeneratorsv2.transforms.utils import compose
from batchgeneratorsv2.transforms.utils import random as bg_random
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug import Pipeline, UnmappedTransformError
from nnunet_gpuaug.nnunet.mapping import RULES, map_transforms
from nnunet_gpuaug.sampling import Uniform

from .mapped import EXPECTED, real_spatial

BGContrast = contrast.BGContrast
each = pytest.mark.parametrize("real, expected", EXPECTED, ids=lambda v: type(v).__name__ if vars_of(v) else "")
KEYWORDS_OF_OURS = ["p", "same_on_batch", "keepdim"]


def vars_of(value):
    return hasattr(value, "__dict__")


@each
def test_values(real, expected):
    (ours,) = map_transforms(real)
    assert type(ours) is RULES[type(real)].target
    assert dict(ours.spec) == expected
    assert ours.p == 1


def test_all_that_nnunets_trainer_uses_is_tested():
    options = {"is_cascaded": True, "foreground_labels": [1], "regions": [[1]], "use_mask_for_norm": [True]}
    real = nnUNetTrainer.get_training_transforms((4, 5, 6), (0, 1), [1], (0,), True, **options).transforms
    assert {type(getattr(t, "transform", t)) for t in real} == {type(real) for real, _ in EXPECTED}


@each
@pytest.mark.parametrize("name", ["a_new_option", *KEYWORDS_OF_OURS])
def test_an_unknown_attribute_is_an_error(real, expected, name):
    """An option added upstream must not be dropped, whatever it is called."""
    changed = copy.copy(real)
    setattr(changed, name, 0.5)
    with pytest.raises(UnmappedTransformError, match=rf"(?s){type(real).__name__}.*\b{name}\b.*Ways out"):
        map_transforms(changed)


@pytest.mark.parametrize(
    "container",
    [
        compose.ComposeTransforms([EXPECTED[1][0]]),
        bg_random.RandomTransform(EXPECTED[2][0], 0.5),
        bg_random.OneOfTransform([EXPECTED[2][0]]),
        BGContrast((0.7, 1.5)),
    ],
    ids=lambda c: type(c).__name__,
)
def test_an_unknown_attribute_of_a_container_is_an_error(container):
    container = copy.copy(container)
    container.a_new_option = 1
    real = gamma.GammaTransform(container, 0, False, 1, 1) if type(container) is BGContrast else container
    with pytest.raises(UnmappedTransformError, match=r"a_new_option.*Ways out"):
        map_transforms(real)


UNMAPPED = {
    "p_elastic_deform": real_spatial(p_elastic_deform=0.1),
    "random_crop": real_spatial(random_crop=True),
    "align_corners": real_spatial(align_corners=True),
    "mode_image": real_spatial(mode_image="bicubic"),
    "mode_seg": real_spatial(mode_seg="bicubic"),
    "border_mode_seg": real_spatial(border_mode_seg="reflection"),
    "padding_value_seg": real_spatial(padding_value_seg=0.5),
    "rotation": real_spatial(rotation=lambda image, dim: 0.1),
    "scaling": real_spatial(scaling=np.random.uniform),
    "noise_variance": gaussian_noise.GaussianNoiseTransform(lambda image: 0.1),
    "multiplier_range": brightness.MultiplicativeBrightnessTransform(BGContrast(lambda: 1.1), False),
    "contrast_range": contrast.ContrastTransform(lambda image, channel: 1.1, True, False),
    "gamma": gamma.GammaTransform((1.5, 0.7), 0, False, 1, 1),
    "any_of_these": random_binary_operator.ApplyRandomBinaryOperatorTransform([0], (torch.logical_not,)),
    "p_per_channel": GaussianBlurTransform(p_per_channel=1.5),
}


@pytest.mark.parametrize("option", UNMAPPED)
def test_unsupported_values_are_errors(option):
    real = UNMAPPED[option]
    with pytest.raises(UnmappedTransformError, match=rf"(?s){type(real).__name__}.*\b{option}\b.*Ways out"):
        map_transforms(real)


class OfTheUser(BasicTransform):
    pass


class SubclassOfMirror(mirroring.MirrorTransform):
    pass


class SubclassOfContrast(BGContrast):
    pass


UNKNOWN = {
    "OfTheUser": OfTheUser(),
    "SubclassOfMirror": SubclassOfMirror((0,)),
    "TimedComposeTransforms": compose.TimedComposeTransforms([EXPECTED[1][0]]),
    "RandomTransform": bg_random.RandomTransform(bg_random.RandomTransform(EXPECTED[1][0], 0.5), 0.5),
    "SubclassOfContrast": gamma.GammaTransform(SubclassOfContrast((0.7, 1.5)), 0, False, 1, 1),
    "object": object(),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("gate", [None, 0.5, 1])
def test_unknown_classes_are_errors(name, gate):
    """Alone, and in a gate in a pipeline after transforms that are known."""
    real = UNKNOWN[name] if gate is None else bg_random.RandomTransform(UNKNOWN[name], gate)
    with pytest.raises(UnmappedTransformError, match=rf"(?s)\b{name}\b.*Ways out") as raised:
        map_transforms(compose.ComposeTransforms([EXPECTED[1][0], real]))
    for way_out in ("get_training_transforms", "on_unmapped: host", "open an issue"):
        assert way_out in str(raised.value)


@each
@pytest.mark.parametrize("p", [0.25, 0, 1])
def test_gates(real, expected, p):
    """A gate around a transform that changes the form of the sample cannot be: rows would differ in shape."""
    gated = bg_random.RandomTransform(real, p)
    if p < 1 and not RULES[type(real)].target.gated:
        with pytest.raises(UnmappedTransformError, match=rf"(?s)RandomTransform.*{type(real).__name__}.*Ways out"):
            map_transforms(gated)
    else:
        (ours,) = map_transforms(gated)
        assert (ours.p, dict(ours.spec)) == (p, expected)


def test_nested_compositions_are_flattened():
    noise, mirror = EXPECTED[2][0], EXPECTED[1][0]
    inner = compose.ComposeTransforms([noise, compose.ComposeTransforms([mirror])])
    ours = map_transforms(compose.ComposeTransforms([inner, noise]))
    assert [type(t).__name__ for t in ours] == ["GaussianNoise", "Mirror", "GaussianNoise"]


@pytest.mark.parametrize(
    "as_range", [np.array((0.7, 1.4)), [np.float32(0.5), np.float32(1.5)], torch.tensor([1.0, 2.0])]
)
def test_numpy_and_torch_values(as_range):
    (ours,) = map_transforms(real_spatial(scaling=as_range, patch_size=np.array([4, 5, 6])))
    assert ours.spec.scaling == Uniform(*map(float, as_range))
    assert ours.spec.patch_size == (4, 5, 6)


class Trainer(nnUNetTrainer):
    """As much of a trainer as its transforms need."""

    def __init__(self, patch_size, is_cascaded, regions, ignore_label, deep_supervision=True):
        pools = [[1] * len(patch_size), [2] * len(patch_size), [2] * len(patch_size)]
        self.configuration_manager = SimpleNamespace(
            patch_size=patch_size, use_mask_for_norm=[False, True], pool_op_kernel_sizes=pools
        )
        self.label_manager = SimpleNamespace(
            foreground_labels=[1, 2, 3],
            foreground_regions=regions,
            has_regions=regions is not None,
            ignore_label=ignore_label,
        )
        self.is_cascaded, self.enable_deep_supervision = is_cascaded, deep_supervision

    def print_to_log_file(self, *args, **kwargs):
        pass


@pytest.mark.parametrize("patch", [[32, 36, 40], [8, 64, 64], [48, 56]], ids=str)
@pytest.mark.parametrize("cascaded, regions, ignore", [(False, None, None), (True, [(1, 2, 3), 3], 4)])
@pytest.mark.parametrize("deep_supervision", [True, False])
def test_from_a_trainer(patch, cascaded, regions, ignore, deep_supervision):
    """The pipeline is mapped from what the trainer itself builds, with the arguments that its data loaders pass."""
    trainer = Trainer(patch, cascaded, regions, ignore, deep_supervision)
    with mock.patch.object(Trainer, "get_training_transforms", wraps=trainer.get_training_transforms) as build:
        pipeline = Pipeline.from_nnunet(trainer)
    build.assert_called_once()
    expected = map_transforms(nnUNetTrainer.get_training_transforms(*build.call_args.args, **build.call_args.kwargs))
    assert [repr(t) for t in pipeline.transforms] == [repr(t) for t in expected]
    names = [type(t).__name__ for t in pipeline.transforms]
    assert ("Convert3DTo2D" in names) == (patch[0] == 8)
    assert ("MoveSegAsOneHot" in names) == cascaded
    assert ("ConvertSegmentationToRegions" in names) == (regions is not None)
    assert ("DownsampleSegForDS" in names) == deep_supervision
