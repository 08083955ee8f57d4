"""Label steps: exact in every voxel, the image untouched or masked exactly."""

from __future__ import annotations

import pytest
import torch
from batchgeneratorsv2.transforms.nnunet.seg_to_onehot import MoveSegAsOneHotToDataTransform
from batchgeneratorsv2.transforms.utils.deep_supervision_downsampling import DownsampleSegForDSTransform
from batchgeneratorsv2.transforms.utils.nnunet_masking import MaskImageTransform
from batchgeneratorsv2.transforms.utils.remove_label import RemoveLabelTransform
from batchgeneratorsv2.transforms.utils.seg_to_regions import ConvertSegmentationToRegionsTransform

from .data import label_map, unit_image
from .harness import check

SIZES = [(2, (23, 18)), (5, (1, 9)), (1, (11, 14, 9)), (2, (8, 16, 12))]
DTYPES = [torch.int8, torch.int16, torch.int64, torch.float32]
sizes = pytest.mark.parametrize("rows, size", SIZES, ids=str)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def check_exactly(real, rows, size, device, labels, channels=1, seg_channels=1, dtype=torch.int16):
    seg = label_map((rows, seg_channels, *size), labels, smooth=False, dtype=dtype)
    check(real, unit_image(rows, channels, *size), seg, device, tolerance=0)


@sizes
@dtypes
@pytest.mark.parametrize("channels, masked", [(1, [0]), (4, [0, 2]), (4, [-1, 1]), (2, [])], ids=str)
def test_mask_image(rows, size, dtype, channels, masked, device):
    real = MaskImageTransform(masked, channel_idx_in_seg=1, set_outside_to=-0.5)
    check_exactly(real, rows, size, device, (-1, 0, 1), channels, seg_channels=2, dtype=dtype)


@sizes
@dtypes
@pytest.mark.parametrize("channels", [None, 0, [1], (0, 1)], ids=str)
@pytest.mark.parametrize("label, to", [(-1, 0), (2, 5), (9, 0)], ids=str)
def test_remove_label(rows, size, dtype, channels, label, to, device):
    real = RemoveLabelTransform(label, to, channels)
    check_exactly(real, rows, size, device, (-1, 0, 1, 2), seg_channels=2, dtype=dtype)


REGIONS = {
    "nested": [(1, 2, 3), (2, 3), (3,)],
    "overlapping": [(1, 3), (2, 3, 4)],
    "single labels": [2, [1], (4,)],
    "with the ignore label last": [[1, 2, 3, 4], [2, 4], 5],
    "with an absent label": [(1, 99), (77,)],
}


@sizes
@dtypes
@pytest.mark.parametrize("regions", REGIONS.values(), ids=REGIONS)
@pytest.mark.parametrize("channel", [0, 1])
def test_regions(rows, size, dtype, regions, channel, device):
    real = ConvertSegmentationToRegionsTransform(regions, channel)
    check_exactly(real, rows, size, device, range(6), seg_channels=2, dtype=dtype)


SCALES = {
    "halves": [[1, 1, 1], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]],
    "one factor for all axes": [1, 0.5, 0.3],
    "anisotropic": [(1, 0.5, 0.5), (1, 0.25, 0.5)],
    "not integer": [(0.7, 0.41, 0.55), (1 / 3, 0.9, 0.2)],
    "upwards": [[2, 1.5, 1.3]],
}


@sizes
@dtypes
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_deep_supervision(rows, size, dtype, scales, device):
    if 1 in size:
        size = tuple(max(n, 4) for n in size)
    real = DownsampleSegForDSTransform([s if isinstance(s, (int, float)) else s[: len(size)] for s in scales])
    check_exactly(real, rows, size, device, (0, 1, 2, 3, 120), seg_channels=2, dtype=dtype)


def test_deep_supervision_of_regions(device):
    steps = [ConvertSegmentationToRegionsTransform([(1, 2), 2, 3]), DownsampleSegForDSTransform([1, 0.5, 0.35])]
    check_exactly(steps, 2, (13, 9, 10), device, range(4))


def test_deep_supervision_with_every_size(device):
    """Every pair of sizes up to 24: the source index of each voxel is stock's, ties included."""
    for length in range(1, 25):
        real = DownsampleSegForDSTransform([target / length for target in range(1, length + 1)])
        seg = torch.arange(length * length, dtype=torch.int16).view(1, 1, length, length)
        check(real, unit_image(1, 1, length, length), seg, device)


@sizes
@dtypes
@pytest.mark.parametrize("labels", [(1, 3, 7), (1,), (0, 2, -1), (7, 1)], ids=str)
@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("source", [0, 1])
def test_seg_to_one_hot(rows, size, dtype, labels, remove, source, device):
    real = MoveSegAsOneHotToDataTransform(source, labels, remove)
    check_exactly(real, rows, size, device, (-1, 0, 1, 2, 3, 7), channels=2, seg_channels=2, dtype=dtype)
