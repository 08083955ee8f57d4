"""Metadata follows the voxels, and voxels go back."""

import pytest
import torch
from monai.data import MetaTensor, decollate_batch, set_track_meta
from monai.transforms import Compose, Invertd
from twins import AFFINE, BOTH, collated, twin_of

from cases import CASES, SIZES, make_batch
from nnunet_gpuaug import Batch, Pipeline
from nnunet_gpuaug import monai as M
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.monai.dictionary import SpatialDictionaryTransform

WARP = {"p_rotation": 1, "rotation": (-0.5, 0.5), "p_scaling": 1, "scaling": (0.8, 1.2)}
TURNS = {
    "mirror": lambda rank: T.Mirror(allowed_axes=tuple(range(rank))),
    "rot90": lambda rank: T.Rot90(num_axis_combinations=2, allowed_axes=tuple(range(rank))),
    "transpose": lambda rank: T.TransposeAxes(allowed_axes=tuple(range(rank))),
}
SPATIAL = {
    **TURNS,
    "crop": lambda rank: T.Spatial(patch_size=(9, 8, 12)[:rank]),
    "padding": lambda rank: T.Spatial(patch_size=(14, 15, 16)[:rank]),
    "warp": lambda rank: T.Spatial(patch_size=(9, 8, 12)[:rank], **WARP),
    "one of": lambda rank: T.OneOf([build(rank) for build in TURNS.values()]),
}
ranks = pytest.mark.parametrize("rank", [2, 3])


def positions(size, rows=4):
    """A batch whose image holds each voxel's index, one channel for each axis."""
    index = torch.stack(torch.meshgrid(*[torch.arange(float(n)) for n in size], indexing="ij"))
    return Batch(index.repeat(rows, *[1] * index.ndim), torch.ones(rows, 1, *size, dtype=torch.int16))


def world(affine, index):
    """(3, …) world positions of voxel indices (rank, …)."""
    rank = len(index)
    return torch.einsum("ij,j...->i...", affine[:3, :rank], index.double()) + affine[:3, 3].view(3, *[1] * rank)


def assert_world_is_kept(before, after, tolerance=1e-4):
    """Voxels hold the index that they came from: both have to be at the same place in the world."""
    for row, (old, new) in enumerate(zip(before["image"].affine, after["image"].affine, strict=True)):
        held = after["image"].as_tensor()[row]
        inside = after["label"].as_tensor()[row, 0] == 1  # away from the border, where there is padding
        index = positions(held.shape[1:], 1).image[0]
        far = (world(old, held) - world(new, index)).abs()[:, inside]
        assert inside.any() and far.max() < tolerance
        assert torch.equal(new, after["label"].affine[row])


@pytest.mark.parametrize("name", SPATIAL)
@ranks
def test_affine(name, rank):
    before = collated(positions((11,) * rank))
    if name == "warp":  # a margin, so that no voxel counts that is interpolated with the padding
        before["label"][:, :, 0] = before["label"][:, :, -1] = 0
        before["label"][..., 0] = before["label"][..., -1] = 0
        before["label"][..., 0, :] = before["label"][..., -1, :] = 0
    after = twin_of(SPATIAL[name](rank))(before)
    assert_world_is_kept(before, after)
    assert after["image"].meta["name"] == list("0123") == before["image"].meta["name"]
    assert not torch.equal(after["image"].affine, before["image"].affine)
    assert torch.equal(before["image"].affine[0], AFFINE)


def test_affine_of_a_dummy_2d_pipeline():
    steps = [T.Convert3DTo2D(), T.Spatial(patch_size=(9, 8), **WARP), T.Convert2DTo3D(), T.Mirror(allowed_axes=(0, 2))]
    before = collated(positions((6, 11, 12)))
    before["label"][..., 0] = before["label"][..., -1] = 0
    before["label"][..., 0, :] = before["label"][..., -1, :] = 0
    assert_world_is_kept(before, M.NNUNetAugmentd(BOTH, Pipeline(steps, seed=1))(before))
    twins = Compose([twin_of(step) for step in steps]).set_random_state(1)
    after = twins(before)
    assert_world_is_kept(before, after)
    assert M.dictionary.FOLDED not in after


def test_affine_of_deep_supervision_targets():
    before = collated(positions((8, 12)))
    targets = M.NNUNetDownsampleSegForDSd("label", ds_scales=(1, 0.5))(before)["label"]
    assert torch.equal(targets[0].affine, before["label"].affine)
    first, centre = torch.zeros(2, 1, 1), torch.full((2, 1, 1), 0.5)
    for old, new in zip(targets[0].affine, targets[1].affine, strict=True):
        assert torch.equal(world(new, first), world(old, centre))


def test_one_affine_for_a_batch():
    x = MetaTensor(positions((5, 6, 7)).image, affine=AFFINE)
    mirror = M.RandNNUNetMirrord("image", prob=1, allowed_axes=(0, 1, 2)).set_random_state(0)
    assert mirror({"image": x})["image"].affine.shape == (4, 4, 4)
    assert mirror({"image": x[:1]})["image"].affine.shape == (4, 4)
    gamma = M.RandNNUNetGammad("image", prob=1)
    assert torch.equal(gamma({"image": x})["image"].affine, AFFINE)


def test_without_metadata():
    data = collated(make_batch(2, 2, SIZES[3]))
    tracked = twin_of(T.Mirror(allowed_axes=(0, 1)))(data)
    set_track_meta(False)
    try:
        out = twin_of(T.Mirror(allowed_axes=(0, 1)))(data)
        assert type(out["image"]) is type(out["label"]) is torch.Tensor
    finally:
        set_track_meta(True)
    assert torch.equal(out["image"], tracked["image"].as_tensor())


@pytest.mark.parametrize("case", [c for c in CASES if "default" in c.name], ids=lambda c: c.name)
def test_whole_pipelines_keep_the_metadata(case):
    data = collated(case.batch())
    out = M.NNUNetAugmentd(BOTH, case.pipeline())(data)
    labels = out["label"] if isinstance(out["label"], list) else [out["label"]]
    assert all(x.meta["name"] == list("012") and x.affine.shape == (3, 4, 4) for x in [out["image"], *labels])


class TestInverse:
    @pytest.mark.parametrize("name", TURNS)
    @ranks
    def test_turns_come_back_exactly(self, name, rank):
        data = collated(make_batch(4, 2, (10,) * rank))
        turn = twin_of(TURNS[name](rank))
        out = turn(data)
        assert not torch.equal(out["image"], data["image"])
        back = turn.inverse(out)
        for key in BOTH:
            assert torch.equal(back[key].as_tensor(), data[key].as_tensor())
            assert torch.allclose(back[key].affine, data[key].affine) and back[key].dtype == data[key].dtype
            assert [len(row) for row in out[key].applied_operations] == [1] * 4
            assert back[key].applied_operations == ["none"] * 4

    @ranks
    @pytest.mark.parametrize("dtype", [torch.int16, torch.float32], ids=str)
    def test_warp(self, rank, dtype):
        size = (24,) * rank
        smooth = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, n) for n in size], indexing="ij")).cos()
        labels = (smooth.prod(0, keepdim=True) > 0.5).to(dtype)
        data = collated(Batch(smooth.repeat(3, *[1] * (rank + 1)), labels.repeat(3, *[1] * (rank + 1))))
        warp = twin_of(T.Spatial(patch_size=(23,) * rank, **WARP))
        back = warp.inverse(warp(data))
        middle = (..., *[slice(8, 16)] * rank)
        assert (back["image"] - data["image"])[middle].abs().max() < 0.02
        assert (back["label"] != data["label"])[middle].float().mean() < 0.05
        assert set(back["label"].unique().tolist()) == {0, 1}
        assert torch.allclose(back["image"].affine, data["image"].affine)

    @pytest.mark.parametrize(("size", "patch"), [((9, 10), (6, 7)), ((8, 7), (5, 6)), ((5, 6), (8, 9))])
    def test_crop_and_padding(self, size, patch):
        data = collated(make_batch(2, 1, size))
        crop = twin_of(T.Spatial(patch_size=patch))
        back = crop.inverse(crop(data))
        kept = crop.inverse(crop({key: data[key] * 0 + 1 for key in BOTH}))
        assert torch.equal(back["image"].as_tensor(), (data["image"] * kept["image"]).as_tensor())
        assert kept["image"].sum() == 2 * min(size[0], patch[0]) * min(size[1], patch[1])

    def test_items_of_a_decollated_batch(self):
        data = collated(make_batch(3, 2, SIZES[3]))
        mirror = twin_of(T.Mirror(allowed_axes=(0, 1, 2)))
        compose = Compose([mirror, M.RandNNUNetMirrord(BOTH, prob=1, allowed_axes=(0,))])
        out = compose(data)
        for item, before in zip(decollate_batch(out), decollate_batch(data), strict=True):
            assert torch.equal(compose.inverse(item)["image"].as_tensor(), before["image"].as_tensor())
        assert torch.equal(compose.inverse(out)["label"].as_tensor(), data["label"].as_tensor())

    def test_a_prediction_takes_the_way_of_its_image(self):
        compose = Compose(M.RandNNUNetMirrord("image", prob=1, allowed_axes=(0, 1), batched=False)).set_random_state(2)
        before = MetaTensor(torch.randn(1, 6, 7))
        item = compose({"image": before})
        item["pred"] = item["image"] * 2
        undo = Invertd("pred", compose, orig_keys="image", nearest_interp=True)
        assert torch.equal(undo(item)["pred"].as_tensor(), before.as_tensor() * 2)

    def test_a_whole_pipeline(self):
        steps = [T.Convert3DTo2D(), T.Spatial(patch_size=(9, 8)), T.Convert2DTo3D(), T.Mirror(allowed_axes=(0, 1, 2))]
        augment = M.NNUNetAugmentd(BOTH, Pipeline(steps))
        data = collated(make_batch(2, 2, (5, 9, 8)))
        assert torch.equal(augment.inverse(augment(data))["image"].as_tensor(), data["image"].as_tensor())

    def test_tracing_can_be_off(self):
        mirror = twin_of(T.Mirror(allowed_axes=(0, 1)))
        with mirror.trace_transform(False):
            out = mirror(collated(make_batch(2, 1, SIZES[2])))
        assert out["image"].applied_operations == ["none", "none"]

    def test_only_what_moves_voxels_has_one(self):
        moving = {T.Mirror, T.Rot90, T.TransposeAxes, T.Spatial, T.OneOf}
        for name in T.__all__:
            kind = getattr(T, name)
            twin = getattr(M, f"RandNNUNet{name}d", None)
            assert (twin is not None and issubclass(twin, SpatialDictionaryTransform)) == (kind in moving)

    def test_plain_tensors_say_so(self):
        mirror = twin_of(T.Mirror(allowed_axes=(0, 1)))
        batch = make_batch(2, 1, SIZES[2])
        out = mirror({"image": batch.image, "label": batch.segmentation})
        with pytest.raises(ValueError, match="RandNNUNetMirrord.*MetaTensor"):
            mirror.inverse(out)
