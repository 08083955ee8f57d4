"""Every transform of the package, and nnU-Net's default pipelines: the one list that the contract tests go through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import interpolate

from nnunet_gpuaug import Batch, Pipeline
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.transforms.base import Transform

torch.set_num_threads(1)  # the tensors are small: a second thread would only wait

Size = tuple[int, ...]
SIZES: dict[int, Size] = {2: (11, 14), 3: (9, 10, 12)}  # odd and even, all different


@dataclass(frozen=True)
class Case:
    """A transform, as the last step of the steps that it needs before it, and the input that it takes.

    Attributes:
        build: the steps for an input size and the gate p of the last one, if that has a gate.
        needs_seg: fails without a segmentation.
        random: the last step draws something that shows in the result.
        cubic: needs axes of equal length.
        shares_statistics: one channel's values change another's.
        noisy: the result has noise in it, so that it depends on the dtype that it is computed in.
        keeps_constants: a constant image comes back as it is.
    """

    name: str
    build: Callable[[Size, float], list[Transform]]
    rank: int
    channels: int = 2
    seg_channels: int = 1
    needs_seg: bool = False
    random: bool = True
    cubic: bool = False
    shares_statistics: bool = False
    noisy: bool = False
    keeps_constants: bool = True

    @property
    def size(self) -> Size:
        return (11,) * self.rank if self.cubic else SIZES[self.rank]

    def steps(self, size: Size | None = None, p: float = 1.0) -> list[Transform]:
        return self.build(size or self.size, p)

    def pipeline(self, size: Size | None = None, p: float = 1.0, seed: int = 0) -> Pipeline:
        return Pipeline(self.steps(size, p), seed=seed)

    def batch(self, rows: int = 3, size: Size | None = None, **options: Any) -> Batch:
        return make_batch(rows, self.channels, size or self.size, self.seg_channels, **options)


def make_batch(
    rows: int,
    channels: int,
    size: Size,
    seg_channels: int = 1,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seg_dtype: torch.dtype = torch.int16,
    labels: tuple[int, ...] = (0, 1, 2, 3),
    seed: int = 0,
) -> Batch:
    """Normal noise of unit standard deviation, and a segmentation of blocks; the same values on every device."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn((rows, channels, *size), generator=generator)
    coarse = torch.randint(len(labels), (rows, seg_channels, *[(n + 2) // 3 for n in size]), generator=generator)
    index = interpolate(coarse.double(), size, mode="nearest").long()
    return Batch(image.to(device, dtype), torch.tensor(labels, dtype=seg_dtype)[index].to(device))


def patch_of(size: Size) -> Size:
    """A final patch for an initial one."""
    return tuple(max(1, round(0.75 * n)) for n in size)


def half_where_possible(size: Size) -> list[float]:
    return [0.5 if n > 1 else 1.0 for n in size]


def default_compose(
    size: Size,
    channels: int = 1,
    *,
    dummy_2d: bool = False,
    masked: bool = False,
    deep_supervision: bool = True,
    gates: float | None = None,
    **options: Any,
) -> Any:
    """What nnUNetTrainer.get_training_transforms returns for an initial patch of `size`.

    Args:
        gates: a probability for all random steps, so that a few rows have seen each; nnU-Net's own by default.
        options: is_cascaded, foreground_labels, regions, ignore_label.
    """
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    patch = patch_of(size)
    if dummy_2d:
        patch = (size[0], *patch[1:])
    degree = torch.pi / 180
    wide = dummy_2d or len(size) == 2
    compose = nnUNetTrainer.get_training_transforms(
        patch,
        (-180 * degree, 180 * degree) if wide else (-30 * degree, 30 * degree),
        [[1.0] * len(size), half_where_possible(patch)] if deep_supervision else None,
        tuple(range(len(size))),
        dummy_2d,
        use_mask_for_norm=[True] + [False] * (channels - 1) if masked else None,
        **options,
    )
    for step in compose.transforms if gates is not None else ():
        for name in ("apply_probability", "p_rotation", "p_scaling"):
            if hasattr(step, name):
                setattr(step, name, gates)
    return compose


def _image_only(name: str, kind: type[Transform], rank: int, **spec: Any) -> Case:
    rician = kind is T.RicianNoise
    noisy = rician or kind is T.GaussianNoise
    brightens = kind in (T.MultiplicativeBrightness, T.BrightnessAdditive, T.BrightnessGradientAdditive)
    return Case(
        f"{name}_{rank}d",
        lambda size, p: [kind(p=p, **spec)],
        rank,
        shares_statistics=rician,
        noisy=noisy,
        keeps_constants=not noisy and not brightens,
    )


def _local(kind: type[Transform], rank: int, **spec: Any) -> Case:
    spec = {"scale": {"log_uniform_of_size": 6}, "same_for_all_channels": False, **spec}
    return _image_only(kind.__name__.lower(), kind, rank, **spec)


def _rectangles(name: str, rank: int, value: Any, **spec: Any) -> Case:
    def build(size: Size, p: float) -> list[Transform]:
        sides = [(1, max(2, n // 2)) for n in size]
        return [T.BlankRectangle(p=p, rectangle_size=sides, rectangle_value=value, num_rectangles=(1, 4), **spec)]

    return Case(f"rectangles_{name}_{rank}d", build, rank, keeps_constants=value == "mean")


def _one_of(rank: int) -> Case:
    choices = [T.GaussianBlur(), T.Gamma(p=0.5), T.Mirror(allowed_axes=(0,)), T.MedianFilter(filter_size=2)]
    return Case(f"one_of_{rank}d", lambda size, p: [T.OneOf(choices)], rank)


def _spatial(name: str, rank: int, **spec: Any) -> Case:
    spec = {"p_rotation": 1, "rotation": (-3, 3), "p_scaling": 1, **spec}
    keeps = spec.get("padding_mode_image") in ("border", "reflection")
    return Case(
        f"spatial_{name}_{rank}d",
        lambda size, p: [T.Spatial(patch_size=patch_of(size), **spec)],
        rank,
        seg_channels=2,
        random=spec["p_rotation"] > 0,
        keeps_constants=keeps,
    )


def _label(name: str, rank: int, build: Callable[[Size, float], list[Transform]], **flags: Any) -> Case:
    return Case(f"{name}_{rank}d", build, rank, needs_seg=True, **{"random": False, **flags})


def _cascade(name: str, rank: int, kind: type[Transform], **spec: Any) -> Case:
    def build(size: Size, p: float) -> list[Transform]:
        return [T.MoveSegAsOneHot(source_channel_idx=1, all_labels=(1, 3)), kind(p=p, channel_idx=(-2, -1), **spec)]

    return _label(name, rank, build, channels=1, seg_channels=2, random=True)


def _default(name: str, rank: int, channels: int, seg_channels: int = 1, **options: Any) -> Case:
    def build(size: Size, p: float) -> list[Transform]:
        return list(Pipeline.from_nnunet(default_compose(size, channels, gates=0.7, **options)).transforms)

    return Case(
        f"default_{name}",
        build,
        rank,
        channels,
        seg_channels,
        needs_seg=True,
        noisy=True,
        keeps_constants=False,
    )


def _of_rank(rank: int) -> list[Case]:
    last = rank - 1
    return [
        _image_only("noise", T.GaussianNoise, rank),
        _image_only("noise_shared", T.GaussianNoise, rank, synchronize_channels=True),
        _image_only("blur", T.GaussianBlur, rank),
        _image_only("blur_shared", T.GaussianBlur, rank, synchronize_channels=True, synchronize_axes=True),
        _image_only("brightness", T.MultiplicativeBrightness, rank, synchronize_channels=True),
        _image_only("brightness_split", T.MultiplicativeBrightness, rank, p_per_channel=0.5),
        _image_only("contrast", T.Contrast, rank),
        _image_only("contrast_free", T.Contrast, rank, preserve_range=False, synchronize_channels=True),
        _image_only("low_resolution", T.SimulateLowResolution, rank),
        _image_only(
            "low_resolution_axes",
            T.SimulateLowResolution,
            rank,
            scale=(0.2, 0.9),
            synchronize_axes=False,
            ignore_axes=(0,),
            allowed_channels=(1,),
        ),
        _image_only("gamma", T.Gamma, rank),
        _image_only("gamma_inverted", T.Gamma, rank, p_invert_image=1, p_retain_stats=0),
        _image_only("additive", T.BrightnessAdditive, rank, mu=0, sigma=0.5, synchronize_channels=False),
        _image_only("invert", T.InvertImage, rank, p_invert_image=0.6, p_synchronize_channels=0.5, p_per_channel=0.5),
        _image_only("outliers", T.CutOffOutliers, rank, percentile_lower=(0, 20), percentile_upper=(80, 100)),
        _image_only("rician", T.RicianNoise, rank),
        _image_only("median", T.MedianFilter, rank, filter_size=(2, 5)),
        _image_only("sharpen", T.Sharpening, rank, strength=(0.1, 1), p_clamp_intensities=0.5),
        _local(T.BrightnessGradientAdditive, rank),
        _local(T.LocalGamma, rank, gamma={"either": [[0.3, 0.8], [1.2, 3]]}),
        _local(T.LocalContrast, rank, scale=(1, 4)),
        _local(T.LocalSmoothing, rank),
        _rectangles("mean", rank, "mean"),
        _rectangles("filled", rank, (-2, 2), p_per_channel=0.5),
        _one_of(rank),
        _spatial("linear", rank, border_mode_seg="constant", padding_value_seg=-1),
        _spatial("nearest", rank, mode_image="nearest", mode_seg="nearest"),
        _spatial("border", rank, padding_mode_image="border", seg_tiebreak="lowest"),
        _spatial("reflected", rank, padding_mode_image="reflection", seg_tiebreak="highest"),
        _spatial("filled", rank, padding_mode_image="constant", padding_value_image=-2.5),
        _spatial("cropped", rank, p_rotation=0, p_scaling=0, padding_mode_image="border"),
        Case(f"mirror_{rank}d", lambda size, p: [T.Mirror(p=p, allowed_axes=tuple(range(rank)))], rank, seg_channels=2),
        Case(f"mirror_last_{rank}d", lambda size, p: [T.Mirror(p=p, allowed_axes=(last,))], rank),
        Case(
            f"rot90_{rank}d",
            lambda size, p: [T.Rot90(p=p, num_axis_combinations=2, allowed_axes=tuple(range(rank)))],
            rank,
            seg_channels=2,
            cubic=True,
        ),
        Case(
            f"transpose_{rank}d",
            lambda size, p: [T.TransposeAxes(p=p, allowed_axes=tuple(range(rank)))],
            rank,
            seg_channels=2,
            cubic=True,
        ),
        _label("mask", rank, lambda size, p: [T.MaskImage(apply_to_channels=(0,))]),
        _label("remove_label", rank, lambda size, p: [T.RemoveLabel(label_value=2, set_to=1)], seg_channels=2),
        _label("regions", rank, lambda size, p: [T.ConvertSegmentationToRegions(regions=((1, 2, 3), 2, (2, 3)))]),
        _label(
            "deep_supervision",
            rank,
            lambda size, p: [T.DownsampleSegForDS(ds_scales=([1.0] * rank, half_where_possible(size)))],
        ),
        _label(
            "one_hot",
            rank,
            lambda size, p: [T.MoveSegAsOneHot(source_channel_idx=1, all_labels=(1, 3, 7))],
            seg_channels=2,
        ),
        _cascade("binary_operator", rank, T.ApplyRandomBinaryOperator, strel_size=(1, 3), p_per_label=0.7),
        _cascade(
            "connected_component",
            rank,
            T.RemoveRandomConnectedComponent,
            fill_with_other_class_p=0.5,
            dont_do_if_covers_more_than_x_percent=0.9,
        ),
    ]


CASES: list[Case] = [
    *_of_rank(3),
    *_of_rank(2),
    Case("fold_3d", lambda size, p: [T.Convert3DTo2D()], 3, random=False),
    Case("fold_unfold_3d", lambda size, p: [T.Convert3DTo2D(), T.Convert2DTo3D()], 3, random=False),
    _default("3d", 3, 1),
    _default("3d_4_channels", 3, 4, masked=True),
    _default("2d", 2, 2),
    _default("dummy_2d", 3, 2, dummy_2d=True),
    _default("cascade", 3, 1, 2, is_cascaded=True, foreground_labels=(1, 2, 3)),
    _default("regions", 3, 1, regions=[(1, 2, 3), 2, (3,)], ignore_label=4),
    _default("no_deep_supervision", 2, 1, deep_supervision=False),
]
