"""20,000 draws of ours against 20,000 of the real objects: gates, values, and what depends on what."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
from batchgeneratorsv2.transforms.intensity.contrast import BGContrast, ContrastTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
from batchgeneratorsv2.transforms.nnunet.random_binary_operator import ApplyRandomBinaryOperatorTransform
from batchgeneratorsv2.transforms.nnunet.remove_connected_components import (
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
)
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform
from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from scipy.stats import kstest

from nnunet_gpuaug import Batch
from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.nnunet.mapping import map_transforms
from nnunet_gpuaug.sampling import SEED_BITS, SplitRange, row_streams

from .draws import (
    COUNT,
    independent_gates,
    independent_values,
    ours_drawn,
    probability,
    real_drawn,
    same_categories,
    same_distribution,
)
from .measure import likely

SHAPE_3D, SHAPE_2D = Shape(2, 1, (2, 3, 2)), Shape(2, 1, (3, 2))


def of_the_default_pipeline():
    """The random steps of nnU-Net's cascaded 3D pipeline, by name; there are two of Gamma."""
    real = nnUNetTrainer.get_training_transforms(
        (2, 3, 2), (-0.5, 0.5), None, (0, 1, 2), False, is_cascaded=True, foreground_labels=[1, 2]
    )
    steps = [t for t in real.transforms if type(t) in (RandomTransform, SpatialTransform, MirrorTransform)]
    return {f"{i} {type(getattr(t, 'transform', t)).__name__}": t for i, t in enumerate(steps)}


DEFAULT = of_the_default_pipeline()


def default(kind):
    return [pytest.param(t, id=name) for name, t in DEFAULT.items() if type(getattr(t, "transform", t)) is kind]


# image transforms: the default ones, and each option that they do not use
IMAGE = [
    *default(GaussianNoiseTransform),
    *default(GaussianBlurTransform),
    *default(MultiplicativeBrightnessTransform),
    *default(ContrastTransform),
    *default(SimulateLowResolutionTransform),
    *default(GammaTransform),
    pytest.param(GaussianNoiseTransform((0.1, 0.3), 0.7, False), id="noise, own values"),
    pytest.param(GaussianBlurTransform((0.5, 2), False, True, 0.7), id="blur, shared axes"),
    pytest.param(GaussianBlurTransform((0.5, 2), True, False, 1), id="blur, shared channels"),
    pytest.param(MultiplicativeBrightnessTransform((0.3, 0.9), True, 0.4), id="brightness, shared channels"),
    pytest.param(ContrastTransform(BGContrast((0.5, 3)), False, True, 0.4), id="contrast, shared channels"),
    pytest.param(SimulateLowResolutionTransform((0.2, 1), False, False, None, None, 0.6), id="low-res, own axes"),
    pytest.param(SimulateLowResolutionTransform((0.2, 1), True, True, None, None, 0.6), id="low-res, shared channels"),
    pytest.param(GammaTransform((0.5, 2), 0.3, False, 0.6, 0.8), id="gamma, own gates"),
    pytest.param(GammaTransform((0.5, 2), 0.3, True, 0.6, 0.8), id="gamma, shared channels"),
]
VALUES = {"sigma", "sigmas", "factor", "scales", "exponent"}
CHANNEL_GATES = {"invert": "p_invert_image", "retain_stats": "p_retain_stats"}


@pytest.mark.parametrize("real", IMAGE)
def test_image_transforms(real):
    inner = getattr(real, "transform", real)
    ours, theirs = ours_drawn(real, SHAPE_3D), real_drawn(real, SHAPE_3D)
    for drawn in (ours, theirs):
        probability(drawn["batch_prob"], getattr(real, "apply_probability", 1), "gate")
        probability(drawn["active"], inner.p_per_channel, "channels")
        independent_gates(*drawn["active"].T, "channels")
    independent_gates(ours["batch_prob"], ours["active"][:, 0], "gate and first channel")
    independent_gates(ours["batch_prob"][:-1], ours["batch_prob"][1:], "gates of neighbouring rows")
    for name, p in CHANNEL_GATES.items() if type(inner) is GammaTransform else ():
        for drawn in (ours, theirs):
            probability(drawn[name][drawn["active"].all(1)], getattr(inner, p), name)
        independent_gates(*ours[name].T, f"{name} of the channels")
        independent_gates(ours[name][:, 0], ours["active"][:, 0], f"{name} and channel")

    (name,) = VALUES & ours.keys()
    values = {id(d): d[name].reshape(COUNT, 2, -1) for d in (ours, theirs)}  # channels, axes
    for channel, axis in np.ndindex(values[id(ours)].shape[1:]):
        of_both = [values[id(d)][d["active"][:, channel].astype(bool), channel, axis] for d in (ours, theirs)]
        same_distribution(*of_both, f"{name}, channel {channel}, axis {axis}")
    value = values[id(ours)]
    shared_or_independent(value[:, 0, 0], value[:, 1, 0], inner.synchronize_channels, f"{name} of two channels")
    for a, b in itertools.combinations(range(value.shape[2]), 2):
        shared_or_independent(value[:, 0, a], value[:, 0, b], inner.synchronize_axes, f"{name} of two axes")
    independent_values(value[:-1, 0, 0], value[1:, 0, 0], f"{name} of neighbouring rows")


def shared_or_independent(left, right, shared, about):
    if shared:
        assert (left == right).all(), about
    else:
        independent_values(left, right, about)


def test_noise_seeds():
    """Uniform over their range, and no two of 40,000 planes share one."""
    seeds = ours_drawn(GaussianNoiseTransform(0.1), SHAPE_3D)["seed"].ravel()
    assert len(np.unique(seeds)) == seeds.size
    likely("Kolmogorov-Smirnov", kstest(seeds / 2**SEED_BITS, "uniform").pvalue, "seeds")


SPATIAL = [
    *default(SpatialTransform),
    pytest.param(
        SpatialTransform(
            (2, 3, 2),
            0,
            False,
            p_rotation=0.8,
            rotation=(-math.pi, 1),
            p_rot_per_axis=0.6,
            p_scaling=0.7,
            scaling=(0.5, 3),
            p_synchronize_scaling_across_axes=0.3,
        ),
        id="each axis on its own",
    ),
]


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("real", SPATIAL)
def test_spatial(real, rank):
    real.patch_size, real._grid_cache = (2, 3, 2)[-rank:], {}
    shape = {2: SHAPE_2D, 3: SHAPE_3D}[rank]
    ours, theirs = ours_drawn(real, shape), real_drawn(real, shape)
    still = ~theirs["warp"].astype(bool)
    theirs["angles"][still], theirs["scales"][still] = 0, 1
    axes = range(rank) if rank == 3 else [1]  # in 2D the last angle is used
    p_axis = real.p_rotation * real.p_rot_per_axis
    for drawn in (ours, theirs):
        turned, scaled = (drawn["angles"] != 0)[:, axes], drawn["scales"][:, 0] != 1
        shared = (drawn["scales"] == drawn["scales"][:, :1]).all(1)
        probability(turned, p_axis, "rotation of an axis")
        probability(scaled, real.p_scaling, "scaling")
        probability(shared[scaled], real.p_synchronize_scaling_across_axes, "one scale for all axes")
        p_any = 1 - (1 - real.p_rotation) * (1 - real.p_scaling)
        probability(drawn["warp"], p_any, "either")
        independent_gates(turned.any(1), scaled, "rotation and scaling")
    for axis in axes:
        same_distribution(*(d["angles"][d["angles"][:, axis] != 0, axis] for d in (ours, theirs)), f"angle {axis}")
    for axis in range(rank):
        same_distribution(*(d["scales"][d["scales"][:, axis] != 1, axis] for d in (ours, theirs)), f"scale {axis}")
    turned = ours["angles"][(ours["angles"] != 0)[:, axes].all(1)]
    for a, b in itertools.combinations(axes, 2):
        independent_values(turned[:, a], turned[:, b], "angles of two axes")
    warp = ours["warp"]
    independent_gates(warp[:-1], warp[1:], "neighbouring rows")


@pytest.mark.parametrize("axes", [(0, 1, 2), (1,), (2, 0)], ids=str)
def test_mirror(axes):
    ours, theirs = (drawn(MirrorTransform(axes), SHAPE_3D)["flip"] for drawn in (ours_drawn, real_drawn))
    for flips in (ours, theirs):
        for axis in range(3):
            probability(flips[:, axis], 0.5 if axis in axes else 0, f"axis {axis}")
    same_categories(*([tuple(row) for row in flips.tolist()] for flips in (ours, theirs)), "axes together")
    independent_gates(ours[:-1, axes[0]], ours[1:, axes[0]], "neighbouring rows")


@pytest.mark.parametrize("low, high", [(0.7, 1.5), (1.2, 1.5), (0.5, 0.9), (0.75, 1.25), (0.5, 1)])
def test_split_range(low, high):
    """Half below 1 if the range begins there, even where the other half then runs from 1 down to `high`."""
    np.random.seed(3)
    stock, ours = BGContrast((low, high)), SplitRange(low, high)
    theirs = np.array([stock() for _ in range(COUNT)])
    mine = np.array([ours(rng) for rng in row_streams(3, COUNT)])
    same_distribution(mine, theirs, f"split range {low}, {high}")
    boundary = 1 if high >= 1 else high  # for high < 1, U(low, 1) falls below high with this probability
    p = 0 if low >= 1 else 0.5 * (boundary - low) / (1 - low)
    for sample in (mine, theirs):
        probability(sample < boundary, p, "lower half")


@pytest.mark.parametrize(
    "real",
    [
        *default(ApplyRandomBinaryOperatorTransform),
        pytest.param(ApplyRandomBinaryOperatorTransform([0, 1, 2], strel_size=(2, 2.5), p_per_label=0.7), id="three"),
    ],
)
def test_binary_operator(real):
    shape = Shape(3, 1, (2, 3))
    drawn = ours_drawn(real, shape), real_drawn(real, shape)
    channels, operators, radii = [], [], []
    for d in drawn:
        active = d["active"].astype(bool)
        probability(d["batch_prob"], getattr(real, "apply_probability", 1), "gate")
        channels.append([tuple(order[on].astype(int)) for order, on in zip(d["order"], active, strict=True)])
        operators.append(d["operator"][active].astype(int).tolist())
        radii.append(d["radius"][active])
    same_categories(*channels, "channels, in their order")
    same_categories(*operators, "operators")
    same_distribution(*radii, "radius")
    both = drawn[0]["active"].all(1)
    independent_values(*drawn[0]["radius"][both, :2].T, "radii of two channels")


@pytest.mark.parametrize("fill, share, p", [(0.25, 0.2, 0.5), (0, 0.15, 0.5), (1, 1, 1)])
def test_remove_component(fill, share, p):
    """All outcomes on an image with three small components, a large one, and a channel with two, are as frequent."""
    image = torch.zeros((2, 5, 6))
    image[0, 0, 0] = image[0, 0, 2] = image[0, 4, :2] = image[0, 2:, 3:] = 1
    image[1, 0, 5] = image[1, 2, :2] = 1
    real = RemoveRandomConnectedComponentFromOneHotEncodingTransform([0, 1], fill, share, p)
    (ours,) = map_transforms(real)
    np.random.seed(0)
    torch.manual_seed(0)
    count = COUNT // 5
    theirs = torch.stack([real(image=image.clone())["image"] for _ in range(count)])
    params = ours.draw(row_streams(0, count), Shape(2, 0, (5, 6)))
    mine = ours.apply(Batch(image.expand(count, -1, -1, -1)), params).image
    outcomes = [[row.numpy().tobytes() for row in results] for results in (mine, theirs)]
    same_categories(*outcomes, "results")


def test_remove_component_gate():
    (gated,) = (p.values[0] for p in default(RemoveRandomConnectedComponentFromOneHotEncodingTransform))
    (ours,) = map_transforms(gated)
    drawn = {k: v.numpy() for k, v in ours.draw(row_streams(5, COUNT), Shape(3, 1, (2, 3))).items()}
    probability(drawn["batch_prob"], gated.apply_probability, "gate")
    probability(drawn["active"], gated.transform.p_per_label, "channels")
    independent_gates(drawn["batch_prob"], drawn["active"][:, 0], "gate and channel")
    likely("Kolmogorov-Smirnov", kstest(drawn["component"].ravel(), "uniform").pvalue, "component")


def test_another_seed_draws_other_values():
    """The values of a row under one seed say nothing about those under the next."""
    real = DEFAULT["3 MultiplicativeBrightnessTransform"]
    first, second = (ours_drawn(real, SHAPE_3D, seed) for seed in (10, 11))
    independent_values(first["factor"][:, 0], second["factor"][:, 0], "factors under two seeds")
    independent_gates(first["batch_prob"], second["batch_prob"], "gates under two seeds")
