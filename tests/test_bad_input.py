"""Bad input, parameters and draws: one AugmentationError each, which says what was given and what is allowed."""

import os
import re

import pytest
import torch

from cases import CASES, make_batch
from checks import check, message_of
from nnunet_gpuaug import AugmentationError, Batch, Draw, Pipeline
from nnunet_gpuaug import transforms as T

IMAGE = torch.randn(2, 2, 6, 7, 8)
SEG = torch.zeros(2, 1, 6, 7, 8, dtype=torch.int16)


def run(*transforms, image=IMAGE, segmentation=SEG):
    return Pipeline(transforms, seed=0)(image=image, segmentation=segmentation)


BATCHES = {
    "image without a batch axis": (IMAGE[0, 0], SEG, ["image", "(6, 7, 8)", "(B, C, H, W)", "(B, C, D, H, W)"]),
    "image of rank 6": (IMAGE[None], SEG, ["image", "(1, 2, 2, 6, 7, 8)", "(B, C, D, H, W)"]),
    "integer image": (IMAGE.int(), SEG, ["image", "torch.int32", "floating-point"]),
    "bool image": (IMAGE > 0, SEG, ["image", "torch.bool", "floating-point"]),
    "NumPy image": (IMAGE.numpy(), SEG, ["image", "ndarray", "floating-point tensor"]),
    "no image": (None, SEG, ["image", "NoneType", "floating-point tensor"]),
    "no rows": (IMAGE[:0], SEG[:0], ["image", "(0, 2, 6, 7, 8)", "empty"]),
    "no voxels": (IMAGE[..., :0], SEG[..., :0], ["image", "(2, 2, 6, 7, 0)", "empty"]),
    "other size": (IMAGE, SEG[..., 1:], ["segmentation", "(2, 1, 6, 7, 7)", "(2, 2, 6, 7, 8)", "spatial size"]),
    "other batch size": (IMAGE, SEG[:1], ["segmentation", "(1, 1, 6, 7, 8)", "(2, 2, 6, 7, 8)", "batch size"]),
    "other rank": (IMAGE, SEG[:, 0], ["segmentation", "(2, 6, 7, 8)", "rank"]),
    "other device": (IMAGE, SEG.to("meta"), ["segmentation", "meta", "cpu", "one device"]),
    "bool segmentation": (IMAGE, SEG > 0, ["segmentation", "torch.bool", "int16"]),
    "complex segmentation": (IMAGE, SEG.to(torch.complex64), ["segmentation", "torch.complex64", "int16"]),
    "uint16 segmentation": (IMAGE, SEG.to(torch.uint16), ["segmentation", "torch.uint16", "int32"]),
    "list of segmentations": (IMAGE, [SEG], ["segmentation", "list", "tensor of labels"]),
    "label -2": (IMAGE, SEG - 2, ["segmentation", "-2", "-1"]),
    "label -5 in float": (IMAGE, SEG - 5.0, ["segmentation", "-5", "-1"]),
    "fractional labels": (IMAGE, SEG + 0.5, ["segmentation", "whole"]),
    "NaN label": (IMAGE, SEG + torch.nan, ["segmentation", "whole"]),
    "infinite label": (IMAGE, SEG + torch.inf, ["segmentation", "whole"]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name):
    image, segmentation, parts = BATCHES[name]
    check(lambda: run(image=image, segmentation=segmentation), *parts)


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("default")], ids=lambda c: c.name)
def test_default_pipelines_refuse_bad_segmentations(case):
    image, seg = case.batch(2).image, case.batch(2).segmentation
    for bad in (seg[:1], seg[..., 1:], seg - 2, seg + 0.5):
        check(lambda bad=bad: case.pipeline()(image=image, segmentation=bad), "segmentation")


def test_whole_numbers_in_float_are_fine():
    out = run(T.Mirror(allowed_axes=(0,)), segmentation=SEG.float() + 3)["segmentation"]
    assert out.dtype == torch.float32 and (out == 3).all()


def test_keys():
    check(
        lambda: Pipeline([])(image=IMAGE, segmentation=SEG, keypoints=IMAGE),
        "keypoints",
        "`image`",
        "`segmentation`",
    )


STEPS = {
    "patch of another rank": ([T.Spatial(patch_size=(3, 3))], ["patch_size = (3, 3)", "(6, 7, 8)"]),
    "patch too large to reflect": (
        [T.Spatial(patch_size=(6, 14, 8), padding_mode_image="reflection")],
        ["patch_size = (6, 14, 8)", "'reflection'", "(6, 7, 8)", "at most twice the input's size minus 1"],
    ),
    "mirror axis that is folded away": (
        [T.Convert3DTo2D(), T.Mirror(allowed_axes=(0, 2))],
        ["allowed_axes = (0, 2)", "(7, 8)", "0 to 1"],
    ),
    "ignored axis": (
        [T.Convert3DTo2D(), T.SimulateLowResolution(ignore_axes=(2,))],
        ["ignore_axes = (2,)", "(7, 8)", "0 to 1"],
    ),
    "axes of different length": (
        [T.TransposeAxes(allowed_axes=(0, 1))],
        ["TransposeAxes", "allowed_axes = (0, 1)", "equal length", "(6, 7, 8)"],
    ),
    "one of several": ([T.OneOf([T.Gamma(), T.Rot90(num_axis_combinations=1)])], ["Rot90", "equal length"]),
    "box larger than the patch": (
        [T.BlankRectangle(rectangle_size=7, rectangle_value=0, num_rectangles=1)],
        ["rectangle_size = 7", "(6, 7, 8)"],
    ),
    "allowed channel": (
        [T.SimulateLowResolution(allowed_channels=(2,))],
        ["allowed_channels = (2,)", "image", "2 channel"],
    ),
    "unfolded twice": (
        [T.Convert3DTo2D(), T.Convert2DTo3D(), T.Convert2DTo3D()],
        ["Convert2DTo3D needs a Convert3DTo2D"],
    ),
    "never folded": ([T.Convert2DTo3D()], ["Convert2DTo3D needs a Convert3DTo2D"]),
    "folded twice": ([T.Convert3DTo2D(), T.Convert3DTo2D()], ["Convert3DTo2D needs a 3D input", "(7, 8)"]),
    "masked channel": ([T.MaskImage(apply_to_channels=(2,))], ["apply_to_channels = (2,)", "image", "-2 to 1"]),
    "mask channel": (
        [T.MaskImage(apply_to_channels=(0,), channel_idx_in_seg=1)],
        ["channel_idx_in_seg = (1,)", "segmentation", "-1 to 0"],
    ),
    "label channel": (
        [T.RemoveLabel(label_value=1, set_to=0, segmentation_channels=(3,))],
        ["segmentation_channels = (3,)", "-1 to 0"],
    ),
    "region channel": (
        [T.ConvertSegmentationToRegions(regions=(1,), channel_in_seg=1)],
        ["channel_in_seg = (1,)", "-1 to 0"],
    ),
    "cascade without a second channel": (
        [T.MoveSegAsOneHot(source_channel_idx=1, all_labels=(1,))],
        ["source_channel_idx = 1", "1 channel", "previous stage"],
    ),
    "cascade channel": ([T.RemoveRandomConnectedComponent(channel_idx=(-3,))], ["channel_idx = (-3,)", "-2 to 1"]),
    "scales of another rank": ([T.DownsampleSegForDS(ds_scales=((1, 1),))], ["ds_scales", "(1.0, 1.0)", "(6, 7, 8)"]),
    "scale that leaves nothing": (
        [T.DownsampleSegForDS(ds_scales=(1, 0.05))],
        ["ds_scales", "0.05", "at least one voxel"],
    ),
    "labels after deep supervision": (
        [T.DownsampleSegForDS(ds_scales=(1, 0.5)), T.RemoveLabel(label_value=-1, set_to=0)],
        ["RemoveLabel", "deep-supervision targets"],
    ),
    "mirror after deep supervision": (
        [T.DownsampleSegForDS(ds_scales=(1, 0.5)), T.Mirror(allowed_axes=(0,))],
        ["Mirror", "before", "deep-supervision"],
    ),
    "label that int16 cannot hold": (
        [T.RemoveLabel(label_value=0, set_to=40000)],
        ["int16", "set_to = 40000", "32767"],
    ),
    "padding that int16 cannot hold": (
        [T.Spatial(patch_size=(9, 9, 9), border_mode_seg="constant", padding_value_seg=-40000)],
        ["int16", "padding_value_seg = -40000", "-32768"],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_do_not_fit_the_batch(name):
    transforms, parts = STEPS[name]
    check(lambda: run(*transforms), *parts)


@pytest.mark.parametrize("case", [c for c in CASES if c.needs_seg], ids=lambda case: case.name)
def test_label_steps_need_a_segmentation(case):
    text = message_of(lambda: case.pipeline()(image=case.batch().image))
    assert "segmentation" in text and any(type(step).__name__ in text for step in case.steps())


def test_one_label_step_names_itself():
    text = message_of(lambda: run(T.RemoveLabel(label_value=-1, set_to=0), segmentation=None))
    assert text == "RemoveLabel needs a segmentation tensor, the batch has none"


class TestDraws:
    gamma, contrast, batch = Pipeline([T.Gamma()]), Pipeline([T.Contrast()]), Batch(IMAGE, SEG)

    def test_of_another_pipeline(self):
        check(lambda: self.gamma.apply(self.batch, self.contrast.draw(self.batch)), "['Contrast']", "['Gamma']")

    def test_of_another_batch_size(self):
        check(lambda: self.gamma.apply(self.batch, self.gamma.draw(self.batch).rows(0, 1)), "1 row", "has 2")

    @pytest.mark.parametrize("other", [IMAGE[:, :1], IMAGE[..., 0], IMAGE[..., 1:]], ids=["channels", "rank", "size"])
    def test_of_another_shape(self, other):
        draw = self.gamma.draw(self.batch)
        shape = str(tuple(other.shape[2:]))
        check(lambda: self.gamma.apply(Batch(other), draw), "2 channel", "(6, 7, 8)", str(other.shape[1]), shape)

    def test_for_no_rows(self):
        check(lambda: self.gamma.draw(Batch(IMAGE[:0])), "no rows")

    @pytest.mark.parametrize("content", [b"", b"not a draw", b"PK\x03\x04 half a zip"], ids=["empty", "text", "half"])
    def test_from_a_broken_file(self, content, tmp_path):
        (tmp_path / "draw.pt").write_bytes(content)
        check(lambda: Draw.load(tmp_path / "draw.pt"), str(tmp_path / "draw.pt"), "not a saved draw")

    def test_from_half_a_file(self, tmp_path):
        path = tmp_path / "draw.pt"
        self.gamma.draw(self.batch).save(path)
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(AugmentationError, match=re.escape(str(path)) + " is not a saved draw"):
            Draw.load(path)

    @pytest.mark.parametrize(
        "content",
        [
            [1],
            {"a": 1},
            {"names": ["Gamma"], "params": [3], "shape": None},
            {"names": ["Gamma"], "params": [], "shape": None},
            {"names": ["Gamma"], "params": [{"active": torch.ones(2)}], "shape": None},
            {"names": ["Gamma"], "params": [{"batch_prob": torch.ones(2), "active": torch.ones(3)}], "shape": None},
        ],
        ids=["list", "keys", "no tensors", "too few", "no gate", "rows"],
    )
    def test_from_another_file_of_torch(self, content, tmp_path):
        torch.save(content, tmp_path / "draw.pt")
        check(lambda: Draw.load(tmp_path / "draw.pt"), str(tmp_path / "draw.pt"), "draw")

    def test_a_file_is_never_executed(self, tmp_path):
        class Bad:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "executed"),)

        torch.save(Bad(), tmp_path / "draw.pt")
        with pytest.raises(AugmentationError, match="not a saved draw"):
            Draw.load(tmp_path / "draw.pt")
        assert not (tmp_path / "executed").exists()

    def test_a_failed_save_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "draw.pt"
        self.gamma.draw(self.batch).save(path)
        before = path.read_bytes()
        broken = Draw(("Gamma",), ({"batch_prob": lambda: None},))  # cannot be pickled
        with pytest.raises(Exception, match="lambda"):
            broken.save(path)
        assert path.read_bytes() == before and os.listdir(tmp_path) == ["draw.pt"]

    def test_a_missing_file_is_the_usual_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Draw.load(tmp_path / "none.pt")


class TestKorniaUse:
    def test_integer_images(self):
        check(lambda: T.Mirror(allowed_axes=(0,))(IMAGE.int()), "image", "torch.int32", "floating-point")

    def test_a_single_image(self):
        check(lambda: T.Gamma()(IMAGE[0, 0]), "Gamma", "(6, 7, 8)", "(B, C, D, H, W)")

    def test_no_rows(self):
        check(lambda: T.Gamma()(IMAGE[:0]), "no rows")

    def test_mirror_axis_that_does_not_exist(self):
        check(lambda: T.Mirror(allowed_axes=(2,))(IMAGE[..., 0]), "allowed_axes = (2,)", "(6, 7)", "0 to 1")


def test_good_batches_pass():
    batch = make_batch(2, 2, (6, 7, 8))
    assert set(run(image=batch.image, segmentation=batch.segmentation)) == {"image", "segmentation"}
