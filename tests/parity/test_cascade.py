"""What a cascade does to the one-hot channels of its previous stage: exact in every voxel."""

from __future__ import annotations

import pytest
import torch
from batchgeneratorsv2.transforms.nnunet.random_binary_operator import (
    ApplyRandomBinaryOperatorTransform,
    binary_closing_torch,
    binary_dilation_torch,
    binary_erosion_torch,
    binary_opening_torch,
)
from batchgeneratorsv2.transforms.nnunet.remove_connected_components import (
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
)
from batchgeneratorsv2.transforms.utils.random import RandomTransform

from .data import label_map, unit_image
from .harness import check

OPERATORS = [binary_dilation_torch, binary_erosion_torch, binary_closing_torch, binary_opening_torch]
# int(2r + 1) is the side of the structuring element: 3, 3, 4, 5, 6, 8, 9, 11, 12, 16, 17
RADII = [1, 1.4, 1.5, 2.2, 2.6, 3.5, 4, 5.3, 5.5, 7.9, 8]
SIZES = {2: (37, 30), 3: (17, 22, 19)}


def one_hot(rows, rank, labels=4, smooth=True, seed=0):
    """An image channel and the one-hot channels of all labels but the first."""
    seg = label_map((rows, 1, *SIZES[rank]), range(labels), smooth, seed)
    return torch.cat([unit_image(*seg.shape), *[(seg == label).float() for label in range(1, labels)]], dim=1)


def check_exactly(real, image, device, **options):
    return check(real, image, None, device, tolerance=0, **options)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("rank", [2, 3])
def test_each_operator(operator, radius, rank, device):
    """A block, whose edges show a shift, and blobs that reach the border."""
    image = one_hot(2, rank, seed=1)
    image[0] = 0
    image[(0, 1, *[slice(6, 13)] * rank)] = 1
    image[(0, 2, *[slice(13, 15)] * rank)] = 1
    real = ApplyRandomBinaryOperatorTransform([-3, -2, -1], (operator,), radius, p_per_label=1)
    check_exactly(real, image, device, measured_as=f"{operator.__name__}: ")


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_random_operators(rank, seed, device):
    real = RandomTransform(ApplyRandomBinaryOperatorTransform([-3, -2, -1], strel_size=(1, 8), p_per_label=0.5), 0.7)
    drawn = check_exactly(real, one_hot(5, rank, smooth=bool(seed), seed=seed), device, seed=seed)
    assert any(values and len(values["apply_to_channels"]) > 1 for values in drawn[0])


@pytest.mark.parametrize("channels", [1, (2,), (-1, 1), [3, 1]], ids=str)
def test_operators_on_some_channels(channels, device):
    real = ApplyRandomBinaryOperatorTransform(channels, strel_size=(1, 4))
    check_exactly(real, one_hot(3, 3, seed=4), device)


@pytest.mark.parametrize("fill", [0, 0.5, 1])
@pytest.mark.parametrize("share", [0.002, 0.15, 1])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("smooth", [True, False], ids=["blobs", "noise"])
def test_remove_component(fill, share, rank, smooth, device):
    real = RemoveRandomConnectedComponentFromOneHotEncodingTransform([-3, -2, -1], fill, share, p_per_label=0.8)
    image = one_hot(3, rank, smooth=smooth, seed=5)
    image[0, -1] = 0  # a channel without components
    check_exactly(real, image, device)


def test_remove_component_takes_only_those_smaller_than_the_share(device):
    """8 voxels of 64 are one eighth, which is not less than one eighth: only the single voxel may go."""
    image = torch.zeros((4, 1, 4, 4, 4))
    image[:, :, 0, 0, 0] = 1
    image[:, :, 2:, 2:, 2:] = 1
    real = RemoveRandomConnectedComponentFromOneHotEncodingTransform([0], 0, 1 / 8, 1)
    drawn = check_exactly(real, image, device)
    assert all(len(values["choices"][0][0][0]) == 1 for values in drawn[0])


def test_components_touch_at_corners(device):
    """26 neighbours: two voxels that share a corner are one component."""
    image = torch.zeros((1, 1, 5, 5, 5))
    image[0, 0, 1, 1, 1] = image[0, 0, 2, 2, 2] = 1
    drawn = check_exactly(RemoveRandomConnectedComponentFromOneHotEncodingTransform([0], 0, 1, 1), image, device)
    assert drawn[0][0]["choices"][0][0][0] == [1]


def test_both_with_closed_gates(device):
    steps = [
        RandomTransform(ApplyRandomBinaryOperatorTransform([-3, -2, -1], strel_size=(1, 5), p_per_label=0.5), 0.4),
        RandomTransform(RemoveRandomConnectedComponentFromOneHotEncodingTransform([-3, -2, -1], 0, 0.15, 0.5), 0.5),
    ]
    drawn = check_exactly(steps, one_hot(8, 2, seed=6), device, measured_as="cascade: ")
    for of_step in drawn:
        assert None in of_step and any(values is not None for values in of_step)
