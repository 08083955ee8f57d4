"""The image and spatial augmentations, alone and in containers, behave as Kornia's own do."""

import copy
import pickle

import pytest
import torch
from kornia.augmentation import AugmentationSequential, ImageSequential
from torch import nn

from cases import patch_of
from checks import check
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.transforms.base import ImageAugmentation, SpatialAugmentation

SIZES = {2: (10, 10), 3: (8, 10, 10)}
NEAREST = {"mode_image": "nearest", "mode_seg": "nearest"}
ROTATION = {"p_rotation": 1, "rotation": (-1, 1), "p_scaling": 1}

BUILD = {
    "noise": lambda rank, **k: T.GaussianNoise(**k),
    "blur": lambda rank, **k: T.GaussianBlur(**k),
    "brightness": lambda rank, **k: T.MultiplicativeBrightness(**k),
    "contrast": lambda rank, **k: T.Contrast(**k),
    "low resolution": lambda rank, **k: T.SimulateLowResolution(scale=(0.3, 0.8), **k),
    "gamma": lambda rank, **k: T.Gamma(**k),
    "additive brightness": lambda rank, **k: T.BrightnessAdditive(mu=0, sigma=1, synchronize_channels=False, **k),
    "inversion": lambda rank, **k: T.InvertImage(p_invert_image=0.5, **k),
    "outliers": lambda rank, **k: T.CutOffOutliers(percentile_lower=(1, 20), **k),
    "rician noise": lambda rank, **k: T.RicianNoise(**k),
    "median": lambda rank, **k: T.MedianFilter(filter_size=(2, 5), **k),
    "sharpening": lambda rank, **k: T.Sharpening(strength=(0.1, 1), **k),
    "gradient": lambda rank, **k: T.BrightnessGradientAdditive(scale=(2, 5), **k),
    "local gamma": lambda rank, **k: T.LocalGamma(scale=(2, 5), loc=(0, 1), **k),
    "local contrast": lambda rank, **k: T.LocalContrast(scale=(2, 5), loc=(0, 1), **k),
    "local smoothing": lambda rank, **k: T.LocalSmoothing(scale=(2, 5), loc=(0, 1), **k),
    "rectangles": lambda rank, **k: T.BlankRectangle(
        rectangle_size=((2, 5),) * rank, rectangle_value="mean", num_rectangles=(1, 4), **k
    ),
    "rot90": lambda rank, **k: T.Rot90(num_axis_combinations=1, allowed_axes=(rank - 2, rank - 1), **k),
    "transposition": lambda rank, **k: T.TransposeAxes(allowed_axes=(rank - 2, rank - 1), **k),
    "mirror": lambda rank, **k: T.Mirror(allowed_axes=tuple(range(rank)), **k),
    "spatial": lambda rank, **k: T.Spatial(patch_size=SIZES[rank], **ROTATION, **k),
}
MAY_KEEP_A_ROW = {"mirror", "inversion", "transposition"}
each = pytest.mark.parametrize("name", BUILD)
ranks = pytest.mark.parametrize("rank", [2, 3])


def images(rank: int, device: str, rows: int = 6) -> torch.Tensor:
    return torch.randn((rows, 2, *SIZES[rank]), generator=torch.Generator().manual_seed(0)).to(device)


def test_all_augmentations_are_here():
    kinds = {type(build(3)) for build in BUILD.values()}
    classes = [getattr(T, name) for name in T.__all__]
    assert kinds == {c for c in classes if issubclass(c, (ImageAugmentation, SpatialAugmentation))}


@each
@ranks
def test_changes_every_row_and_replays(name, rank, device):
    x = images(rank, device)
    before = x.clone()
    torch.manual_seed(2)  # changes several rows, whatever is drawn
    aug = BUILD[name](rank)
    y = aug(x)
    assert y.shape == x.shape and y.dtype == x.dtype and y.device == x.device
    assert torch.equal(x, before)
    changed = [not torch.equal(a, b) for a, b in zip(x, y, strict=True)]
    assert all(changed) or (name in MAY_KEEP_A_ROW and any(changed))
    assert torch.equal(aug(x, params=aug._params), y)
    assert torch.equal(BUILD[name](rank)(x, params=aug._params), y)


@each
@ranks
def test_global_seed(name, rank, device):
    x, aug = images(rank, device), BUILD[name](rank)
    torch.manual_seed(3)
    first, second = aug(x), aug(x)
    torch.manual_seed(3)
    assert torch.equal(aug(x), first) and torch.equal(aug(x), second)
    assert not torch.equal(first, second)


@each
@ranks
def test_same_on_batch(name, rank, device):
    x = images(rank, device)[:1].repeat_interleave(8, 0)
    torch.manual_seed(0)
    shared = BUILD[name](rank, same_on_batch=True)(x)
    assert all(torch.equal(row, shared[0]) for row in shared)
    own = BUILD[name](rank)(x)
    assert not all(torch.equal(row, own[0]) for row in own)


@pytest.mark.parametrize("name", [n for n in BUILD if n != "spatial"])
@ranks
def test_probability(name, rank, device):
    x = images(rank, device)
    assert torch.equal(BUILD[name](rank, p=0.0)(x), x)
    torch.manual_seed(0)
    aug = BUILD[name](rank, p=0.5)
    y = aug(x)
    gates = aug._params["batch_prob"].tolist()
    assert {0, 1} == set(gates)
    assert all(torch.equal(a, b) for a, b, gate in zip(x, y, gates, strict=True) if not gate)


@ranks
def test_spatial_without_its_gate_only_crops(rank, device):
    patch = patch_of(SIZES[rank])
    x = images(rank, device)
    y = T.Spatial(patch_size=patch, **ROTATION, p=0.0)(x)
    starts = [n // 2 - p // 2 for n, p in zip(SIZES[rank], patch, strict=True)]
    window = tuple(slice(s, s + p) for s, p in zip(starts, patch, strict=True))
    assert torch.equal(y, x[(..., *window)])


@each
@ranks
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_dtypes_and_autocast(name, rank, dtype, device):
    x, aug = images(rank, device).to(dtype), BUILD[name](rank)
    y = aug(x)
    assert y.dtype == dtype and bool(y.isfinite().all())
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(aug(x, params=aug._params), y)


@each
def test_other_values_can_be_given(name, device):
    x, aug = images(3, device), BUILD[name](3)
    aug(x)
    closed = {**aug._params, "batch_prob": torch.zeros(len(x))}
    assert torch.equal(aug(x, params=closed), x)


def test_a_value_can_be_given_by_name(device):
    x = images(3, device)
    y = T.MultiplicativeBrightness()(x, factor=torch.full((6, 2), 2.0))
    assert torch.equal(y, 2 * x)


@each
def test_copies(name):
    x, aug = images(3, "cpu"), BUILD[name](3)
    y = aug(x)
    for other in (copy.deepcopy(aug), pickle.loads(pickle.dumps(aug))):
        assert torch.equal(other(x, params=aug._params), y)
        other.p = 0.0  # the copy draws by its own p, not by the original's
        assert torch.equal(other(x), x)
    assert not torch.equal(aug(x), x)
    assert repr(aug).startswith(type(aug).__name__ + "(")


@ranks
def test_sequential(rank, device):
    chain = nn.Sequential(*[build(rank) for build in BUILD.values()]).to(device)
    x = images(rank, device)
    torch.manual_seed(1)
    y = chain(x)
    assert y.shape == x.shape and not torch.equal(x, y)
    torch.manual_seed(1)
    assert torch.equal(chain(x), y)
    assert not chain.state_dict()


def test_image_sequential_in_2d(device):
    chain = ImageSequential(BUILD["mirror"](2), BUILD["gamma"](2))
    x = images(2, device)
    y = chain(x)
    assert y.shape == x.shape and torch.equal(chain(x, params=chain._params), y)


class TestAugmentationSequential:
    """3D only: Kornia takes a rank of 4 for a volume without channels as soon as a 3D augmentation is in it."""

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float32, torch.bool], ids=str)
    def test_mask_and_image_agree(self, dtype, device):
        """A label that is the thresholded image stays that, so both moved alike."""
        x = (images(3, device) > 0.3).float()
        mask = x.to(dtype)
        chain = AugmentationSequential(
            T.Mirror(allowed_axes=(0, 1, 2)),
            T.Spatial(patch_size=(6, 8, 7), **ROTATION, **NEAREST),
            data_keys=["input", "mask"],
        )
        image, moved = chain(x, mask)
        assert moved.dtype == dtype and image.shape == moved.shape == (6, 2, 6, 8, 7)
        assert torch.equal(image, moved.to(image.dtype)) and 0 < moved.float().mean() < 1
        again = chain(x, mask, params=chain._params)
        assert torch.equal(again[0], image) and torch.equal(again[1], moved)

    @each
    @pytest.mark.parametrize("same_on_batch", [True, False])
    def test_each_augmentation(self, name, same_on_batch, device):
        x = images(3, device)
        mask = (x[:, :1] > 0).to(torch.int16)
        chain = AugmentationSequential(BUILD[name](3), data_keys=["input", "mask"], same_on_batch=same_on_batch)
        torch.manual_seed(2)
        image, moved = chain(x, mask)
        assert not torch.equal(image, x) and moved.dtype == mask.dtype and moved.shape == mask.shape
        assert isinstance(BUILD[name](3), SpatialAugmentation) != torch.equal(moved, mask)
        assert set(moved.unique().tolist()) <= {0, 1}

    def test_a_dictionary(self, device):
        x = (images(3, device) > 0).float()
        chain = AugmentationSequential(T.Mirror(allowed_axes=(0, 1, 2)), T.Gamma(), data_keys=None)
        out = chain({"image": x, "mask": x.to(torch.int64), "mask-before": x[:, :1]})
        assert torch.equal(out["image"].round(), out["mask"].float())
        assert torch.equal(out["mask-before"], out["mask"][:, :1].float())

    def test_one_of_several(self, device):
        chain = AugmentationSequential(
            *[build(3) for build in BUILD.values()], data_keys=["input", "mask"], random_apply=2
        )
        x = images(3, device)
        image, mask = chain(x, x)
        assert image.shape == mask.shape == x.shape

    def test_masks_of_another_shape_are_refused(self, device):
        x = images(3, device)
        chain = AugmentationSequential(T.Mirror(allowed_axes=(0, 1, 2)), data_keys=["input", "mask"])
        check(lambda: chain(x, x[:, 0]), "Mirror", "mask", "(6, 8, 10, 10)", "(6, 2, 8, 10, 10)", "rank")
        check(lambda: chain(x, x[..., 1:]), "Mirror", "mask", "(6, 2, 8, 10, 9)", "spatial size")

    @pytest.mark.parametrize("key", ["keypoints", "bbox_xyxy"])
    def test_points_and_boxes_are_refused(self, key, device):
        chain = AugmentationSequential(T.Mirror(allowed_axes=(0,)), data_keys=["input", key])
        width = 3 if key == "keypoints" else 6
        with pytest.raises(NotImplementedError, match="3D"):
            chain(images(3, device), torch.rand(6, 2, width, device=device))

    def test_2d_is_refused(self, device):
        chain = AugmentationSequential(T.Mirror(allowed_axes=(0,)), data_keys=["input", "mask"])
        with pytest.raises(RuntimeError, match="B, C, D, H, W"):
            chain(images(2, device), images(2, device))
