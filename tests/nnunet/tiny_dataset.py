"""A dataset small enough to train on in seconds, preprocessed by nnU-Net's own preprocessor."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

NAME = "Dataset901_Tiny"
CASES = [f"case_{i}" for i in range(6)]
TRAIN, VAL = CASES[:4], CASES[4:]
SHAPE = (10, 24, 26)
LABELS = {"background": 0, "outer": 1, "inner": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": 2, "ignore": 3}


def build(root: Path, channels: int = 1, regions: bool = False, mask_norm: bool = False) -> None:
    """Write raw and preprocessed data for 2d, 3d_fullres, 3d_lowres and 3d_cascade_fullres below `root`."""
    raw, pre = root / "nnUNet_raw" / NAME, root / "nnUNet_preprocessed" / NAME
    for folder in (raw / "imagesTr", raw / "labelsTr", pre / "gt_segmentations", root / "nnUNet_results"):
        folder.mkdir(parents=True)
    dataset = {
        "channel_names": {str(c): "MRI" for c in range(channels)},
        "labels": REGIONS if regions else LABELS,
        "numTraining": len(CASES),
        "file_ending": ".nii.gz",
    }
    if regions:
        dataset["regions_class_order"] = [1, 2]
    plans = _plans(channels, mask_norm)
    for folder in (raw, pre):
        (folder / "dataset.json").write_text(json.dumps(dataset))
    (pre / "nnUNetPlans.json").write_text(json.dumps(plans))
    (pre / "dataset_fingerprint.json").write_text("{}")
    (pre / "splits_final.json").write_text(json.dumps([{"train": TRAIN, "val": VAL}]))
    rng = np.random.default_rng(0)
    for case in CASES:
        _write_case(raw, case, channels, regions, rng)
        shutil.copy(raw / "labelsTr" / f"{case}.nii.gz", pre / "gt_segmentations")
    manager = PlansManager(plans)
    for name in ("2d", "3d_fullres", "3d_lowres"):
        configuration = manager.get_configuration(name)
        out = pre / configuration.data_identifier
        out.mkdir()
        for case in CASES:
            images = [str(raw / "imagesTr" / f"{case}_{c:04d}.nii.gz") for c in range(channels)]
            configuration.preprocessor_class(verbose=False).run_case_save(
                str(out / case), images, str(raw / "labelsTr" / f"{case}.nii.gz"), manager, configuration, dataset
            )


def write_previous_stage(root: Path, preprocessed: str, trainer: str) -> Path:
    """Pretend that `trainer` predicted all cases in 3d_lowres, with results below `root`; return where."""
    folder = root / "nnUNet_results" / NAME / f"{trainer}__nnUNetPlans__3d_lowres"
    folder = folder / "predicted_next_stage" / "3d_cascade_fullres"
    folder.mkdir(parents=True)
    source = nnUNetDatasetBlosc2(os.path.join(preprocessed, NAME, "nnUNetPlans_3d_fullres"))
    for case in CASES:
        _, seg, _, _ = source.load_case(case)
        nnUNetDatasetBlosc2.save_seg(np.clip(seg[0], 0, 2).astype(np.int8), str(folder / case))
    return folder


def environment(root: Path, workers: int = 0) -> dict[str, str]:
    """The environment variables of a training on this dataset."""
    names = ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results")
    return {
        **{name: os.fspath(root / name) for name in names},
        "nnUNet_n_proc_DA": str(workers),
        "nnUNet_def_n_proc": "1",
        "nnUNet_compile": "f",
    }


def _write_case(raw: Path, case: str, channels: int, regions: bool, rng: np.random.Generator) -> None:
    grid = np.stack(np.meshgrid(*(np.arange(s) for s in SHAPE), indexing="ij"), -1).astype(float)
    centre = np.array(SHAPE) / 2 + rng.uniform(-2, 2, 3)
    distance = np.linalg.norm((grid - centre) / (0.8, 1.6, 1.6), axis=-1)
    seg = (distance < 5).astype(np.uint8) + (distance < 2.5)
    image = seg * 2.0 + rng.normal(0, 0.5, (channels, *SHAPE))
    image += 5  # keeps the nonzero crop from cutting into the object
    image[:, :, :2] = 0  # and leaves it something to cut
    if regions:
        seg[:2] = 3
    for c in range(channels):
        sitk.WriteImage(sitk.GetImageFromArray(image[c].astype(np.float32)),
                        raw / "imagesTr" / f"{case}_{c:04d}.nii.gz")
    sitk.WriteImage(sitk.GetImageFromArray(seg), raw / "labelsTr" / f"{case}.nii.gz")


def _plans(channels: int, mask_norm: bool) -> dict:
    statistics = {"max": 10.0, "min": 0.0, "mean": 5.0, "median": 5.0, "std": 1.0,
                  "percentile_00_5": 0.0, "percentile_99_5": 10.0}
    return {
        "dataset_name": NAME,
        "plans_name": "nnUNetPlans",
        "original_median_spacing_after_transp": [1.0, 1.0, 1.0],
        "original_median_shape_after_transp": list(SHAPE),
        "image_reader_writer": "SimpleITKIO",
        "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2],
        "experiment_planner_used": "ExperimentPlanner",
        "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {str(c): statistics for c in range(channels)},
        "configurations": {
            "2d": _configuration("2d", [24, 20], [1.0, 1.0], channels, mask_norm),
            "3d_fullres": _configuration("3d_fullres", [8, 20, 16], [1.0] * 3, channels, mask_norm),
            "3d_lowres": {**_configuration("3d_lowres", [8, 16, 16], [1.5] * 3, channels, mask_norm),
                          "next_stage": "3d_cascade_fullres"},
            # shares the data of 3d_fullres; flat enough for nnU-Net to augment it slice by slice
            "3d_flat": _configuration("3d_fullres", [4, 20, 16], [1.0] * 3, channels, mask_norm, flat=True),
            "3d_resenc": _configuration("3d_fullres", [8, 20, 16], [1.0] * 3, channels, mask_norm, residual=True),
            "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"},
        },
    }


def _configuration(name: str, patch: list[int], spacing: list[float], channels: int, mask_norm: bool,
                   flat: bool = False, residual: bool = False) -> dict:
    rank, stages = len(patch), 3
    strides = [[1] * rank] + [[1, 2, 2] if flat else [2] * rank] * (stages - 1)
    unet = "ResidualEncoderUNet" if residual else "PlainConvUNet"
    resampling = {
        f"resampling_fn_{what}": "resample_data_or_seg_to_shape" for what in ("data", "seg", "probabilities")
    }
    kwargs = {
        f"resampling_fn_{what}_kwargs": {"is_seg": what == "seg", "order": 1, "order_z": 0, "force_separate_z": None}
        for what in ("data", "seg", "probabilities")
    }
    return {
        "data_identifier": f"nnUNetPlans_{name}",
        "preprocessor_name": "DefaultPreprocessor",
        "batch_size": 2,
        "patch_size": patch,
        "median_image_size_in_voxels": [float(s) for s in SHAPE[-rank:]],
        "spacing": spacing,
        "normalization_schemes": ["ZScoreNormalization"] * channels,
        "use_mask_for_norm": [mask_norm] * channels,
        **resampling,
        **kwargs,
        "batch_dice": False,
        "architecture": {
            "network_class_name": f"dynamic_network_architectures.architectures.unet.{unet}",
            "arch_kwargs": {
                "n_stages": stages,
                "features_per_stage": [4, 8, 8],
                "conv_op": f"torch.nn.modules.conv.Conv{rank}d",
                "kernel_sizes": [[3] * rank] * stages,
                "strides": strides,
                "n_blocks_per_stage" if residual else "n_conv_per_stage": [1] * stages,
                "n_conv_per_stage_decoder": [1] * (stages - 1),
                "conv_bias": True,
                "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{rank}d",
                "norm_op_kwargs": {"eps": 1e-5, "affine": True},
                "dropout_op": None,
                "dropout_op_kwargs": None,
                "nonlin": "torch.nn.LeakyReLU",
                "nonlin_kwargs": {"inplace": True},
            },
            "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
        },
    }
