"""One real object of each class of nnU-Net's default pipelines, and what our parameters must be."""

from __future__ import annotations

import numpy as np
from batchgeneratorsv2.transforms.intensity import brightness, contrast, gamma, gaussian_noise
from batchgeneratorsv2.transforms.nnunet import random_binary_operator, remove_connected_components, seg_to_onehot
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.spatial import low_resolution, mirroring, spatial
from batchgeneratorsv2.transforms.utils import (
    deep_supervision_downsampling,
    nnunet_masking,
    pseudo2d,
    remove_label,
    seg_to_regions,
)

from nnunet_gpuaug.sampling import Constant, SplitRange, Uniform

BGContrast = contrast.BGContrast
SPATIAL = {
    "patch_size": (5, 6, 7),
    "p_rotation": 0.11,
    "rotation": (-0.2, 0.4),
    "p_rot_per_axis": 0.61,
    "p_scaling": 0.21,
    "scaling": (0.72, 1.43),
    "p_synchronize_scaling_across_axes": 0.31,
    "mode_image": "nearest",
    "mode_seg": "nearest",
    "padding_mode_image": "constant",
    "padding_value_image": 1.5,
    "border_mode_seg": "constant",
    "padding_value_seg": -1,
    "seg_tiebreak": "highest",
}


def real_spatial(**options):
    return spatial.SpatialTransform(**{**SPATIAL, "patch_center_dist_from_border": 3, "random_crop": False, **options})


# (object, what our transform's parameters must be): no value is a default of ours
EXPECTED = [
    (
        real_spatial(),
        {**SPATIAL, "rotation": Uniform(-0.2, 0.4), "scaling": Uniform(0.72, 1.43)},
    ),
    (mirroring.MirrorTransform([2, 0]), {"allowed_axes": (2, 0)}),
    (
        gaussian_noise.GaussianNoiseTransform((0.1, 0.2), 0.3, True),
        {"noise_variance": Uniform(0.1, 0.2), "p_per_channel": 0.3, "synchronize_channels": True},
    ),
    (
        GaussianBlurTransform((0.6, 0.8), True, True, 0.4, benchmark=True),
        {
            "blur_sigma": Uniform(0.6, 0.8),
            "synchronize_channels": True,
            "synchronize_axes": True,
            "p_per_channel": 0.4,
        },
    ),
    (
        brightness.MultiplicativeBrightnessTransform(BGContrast((0.6, 1.1)), True, 0.2),
        {"multiplier_range": SplitRange(0.6, 1.1), "synchronize_channels": True, "p_per_channel": 0.2},
    ),
    (
        contrast.ContrastTransform(BGContrast((0.6, 1.1)).sample_contrast, False, True, 0.2),
        {
            "contrast_range": SplitRange(0.6, 1.1),
            "preserve_range": False,
            "synchronize_channels": True,
            "p_per_channel": 0.2,
        },
    ),
    (
        low_resolution.SimulateLowResolutionTransform(0.7, True, False, (0, 2), (1, 3), 0.4),
        {
            "scale": Constant(0.7),
            "synchronize_channels": True,
            "synchronize_axes": False,
            "ignore_axes": (0, 2),
            "allowed_channels": (1, 3),
            "p_per_channel": 0.4,
        },
    ),
    (
        gamma.GammaTransform((0.8, 0.8), 0.1, True, 0.2, 0.3),
        {
            "gamma": Uniform(0.8, 0.8),
            "p_invert_image": 0.1,
            "synchronize_channels": True,
            "p_per_channel": 0.2,
            "p_retain_stats": 0.3,
        },
    ),
    (
        nnunet_masking.MaskImageTransform([1, 2], 1, 0.5),
        {"apply_to_channels": (1, 2), "channel_idx_in_seg": 1, "set_outside_to": 0.5},
    ),
    (
        remove_label.RemoveLabelTransform(-1, 3, 1),
        {"label_value": -1, "set_to": 3, "segmentation_channels": (1,)},
    ),
    (
        seg_to_onehot.MoveSegAsOneHotToDataTransform(1, [1, 3, 7], False),
        {"source_channel_idx": 1, "all_labels": (1, 3, 7), "remove_channel_from_source": False},
    ),
    (
        random_binary_operator.ApplyRandomBinaryOperatorTransform(
            (-1, 2),
            (random_binary_operator.binary_opening_torch, random_binary_operator.binary_dilation_torch),
            (2, 3),
            0.6,
        ),
        {
            "channel_idx": (-1, 2),
            "any_of_these": ("opening", "dilation"),
            "strel_size": Uniform(2, 3),
            "p_per_label": 0.6,
        },
    ),
    (
        remove_connected_components.RemoveRandomConnectedComponentFromOneHotEncodingTransform(-1, 0.1, 0.2, 0.3),
        {
            "channel_idx": (-1,),
            "fill_with_other_class_p": 0.1,
            "dont_do_if_covers_more_than_x_percent": 0.2,
            "p_per_label": 0.3,
        },
    ),
    (
        seg_to_regions.ConvertSegmentationToRegionsTransform([(1, 2), 2, [3]], 1),
        {"regions": ((1, 2), (2,), (3,)), "channel_in_seg": 1},
    ),
    (
        deep_supervision_downsampling.DownsampleSegForDSTransform([[1, 0.5, np.float64(0.25)], 0.5]),
        {"ds_scales": ((1.0, 0.5, 0.25), 0.5)},
    ),
    (pseudo2d.Convert3DTo2DTransform(), {}),
    (pseudo2d.Convert2DTo3DTransform(), {}),
]
