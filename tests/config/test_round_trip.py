"""YAML to object to YAML is the identity, and so is object to YAML to object, for every transform."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import make_batch
from nnunet_gpuaug import Pipeline, Settings
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.config import read_config, write_config
from nnunet_gpuaug.sampling import Constant, Either, LogUniformOfSize, SplitRange, Uniform

PLACE = {"scale": {"log_uniform_of_size": 6}, "loc": (-0.5, 1.5), "same_for_all_channels": False, "p_per_channel": 0.4}
CASCADE = {"channel_idx": (-2, -1), "p_per_label": 0.6}

# every parameter that a YAML file can write in more than one form appears in each of them
EXAMPLES = [
    T.Spatial(patch_size=(4, 5)),
    T.Spatial(
        p=0.5,
        patch_size=(4, 5, 6),
        p_rotation=0.2,
        rotation=(-math.pi, math.pi),
        p_rot_per_axis=1 / 3,
        p_scaling=0.3,
        scaling={"split": (0.7, 1.4)},
        p_synchronize_scaling_across_axes=0.1,
        mode_image="nearest",
        mode_seg="nearest",
        padding_mode_image="constant",
        padding_value_image=-2.5,
        border_mode_seg="constant",
        padding_value_seg=-1,
        seg_tiebreak="highest",
    ),
    T.Mirror(allowed_axes=()),
    T.Mirror(p=0.25, allowed_axes=(2, 0)),
    T.Rot90(p=0.5, num_axis_combinations=2, num_rot_per_combination=(0, 1), allowed_axes=(1, 2)),
    T.TransposeAxes(p=0.5, allowed_axes=(0, 2)),
    T.Convert3DTo2D(),
    T.Convert2DTo3D(),
    T.GaussianNoise(p=0.1, noise_variance=0.3, synchronize_channels=True),
    T.RicianNoise(p=0.1, noise_variance=(0, 0.2)),
    T.MultiplicativeBrightness(multiplier_range={"either": ((0.5, 0.6), (1.5, 2))}, p_per_channel=0.3),
    T.BrightnessAdditive(mu=-0.1, sigma=0.5, synchronize_channels=False),
    T.Contrast(p=1e-5, contrast_range={"split": (0.5, 2)}, preserve_range=False),
    T.Gamma(p=0, gamma=(5e-324, 1e300), p_invert_image=1, p_retain_stats=0.5),
    T.InvertImage(p_invert_image=0.1, p_synchronize_channels=0.2, p_per_channel=0.3),
    T.CutOffOutliers(percentile_lower=(0, 1), percentile_upper=99, p_synchronize_channels=True, p_retain_std=0),
    T.GaussianBlur(p=0.2, blur_sigma=(0.5, 1), synchronize_axes=True),
    T.SimulateLowResolution(scale=0.5, ignore_axes=(0,), allowed_channels=(1, 3), synchronize_axes=False),
    T.MedianFilter(filter_size=3),
    T.MedianFilter(filter_size=(2, 8), p_same_for_each_channel=0.1),
    T.Sharpening(strength=(0.1, 1), p_clamp_intensities=0.2),
    T.BlankRectangle(rectangle_size=3, rectangle_value="mean", num_rectangles=2),
    T.BlankRectangle(rectangle_size=(3, 4), rectangle_value=1.5, num_rectangles=(1, 5), force_square=True),
    T.BlankRectangle(rectangle_size=((1, 4), (2, 5)), rectangle_value=(-1, 1), num_rectangles=(1, 5)),
    T.BrightnessGradientAdditive(max_strength={"either": ((-5, -1), (1, 5))}, mean_centered=False, **PLACE),
    T.LocalGamma(gamma={"either": ((0.01, 0.8), (1.5, 4))}, **PLACE),
    T.LocalContrast(new_contrast=0.5, **{**PLACE, "scale": (3, 7)}),
    T.LocalSmoothing(smoothing_strength=(0.5, 1), kernel_size=1, **{**PLACE, "scale": 4}),
    T.OneOf([T.MedianFilter(p=0.2, filter_size=(2, 8)), T.GaussianBlur(p=0.3)]),
    T.MaskImage(apply_to_channels=(0, 2), channel_idx_in_seg=1, set_outside_to=-1.5),
    T.RemoveLabel(label_value=-1, set_to=0),
    T.RemoveLabel(label_value=2, set_to=1, segmentation_channels=(1,)),
    T.ConvertSegmentationToRegions(regions=((1, 2, 3), 2, (3,)), channel_in_seg=1),
    T.DownsampleSegForDS(ds_scales=((1, 1, 1), (0.5, 0.25, 1 / 3))),
    T.DownsampleSegForDS(ds_scales=(1, 0.5)),
    T.MoveSegAsOneHot(source_channel_idx=1, all_labels=(1, 3, 7), remove_channel_from_source=False),
    T.ApplyRandomBinaryOperator(p=0.4, any_of_these=("opening", "closing"), strel_size=(1, 8), **CASCADE),
    T.RemoveRandomConnectedComponent(fill_with_other_class_p=0, dont_do_if_covers_more_than_x_percent=0.15, **CASCADE),
]


def contents(transform):
    """All that says what a transform does."""
    if isinstance(transform, T.OneOf):
        return ["OneOf", *map(contents, transform.transforms)]
    return [type(transform), transform.p, transform.spec]


@pytest.mark.parametrize("transform", EXAMPLES, ids=lambda t: type(t).__name__)
def test_every_transform(transform):
    text = Pipeline([transform]).to_yaml()
    again = Pipeline.from_yaml(text)
    assert [contents(t) for t in again.transforms] == [contents(transform)]
    assert again.to_yaml() == text


def test_no_transform_is_missing_above():
    assert {type(t).__name__ for t in EXAMPLES} == set(T.__all__)


def test_a_whole_file_and_its_form():
    pipeline = Pipeline([T.Gamma(p=0.3), T.OneOf([T.Mirror(allowed_axes=(0, 1))])], settings=Settings(kernels="off"))
    assert pipeline.to_yaml() == """\
pipeline:
  - kind: Gamma
    p: 0.3
    gamma: {split: [0.7, 1.5]}
    p_invert_image: 0.0
    p_retain_stats: 1.0
    p_per_channel: 1.0
    synchronize_channels: false
  - kind: OneOf
    transforms:
      - kind: Mirror
        p: 1.0
        allowed_axes: [0, 1]
settings:
  seed: null
  prefetch: true
  on_unmapped: error
  kernels: off
"""
    assert Pipeline.from_yaml(pipeline.to_yaml()).to_yaml() == pipeline.to_yaml()


numbers = st.floats(1e-300, 1e300)
ranges = st.tuples(numbers, numbers).map(sorted).map(lambda ends: Uniform(*ends))
distributions = st.one_of(
    numbers.map(Constant),
    ranges,
    ranges.map(lambda r: SplitRange(r.low, r.high)),
    st.lists(ranges, min_size=1, max_size=3).map(lambda found: Either(tuple(found))),
)


@settings(max_examples=60, deadline=None)
@given(distributions, st.floats(0, 1), st.integers(1, 9))
def test_numbers_keep_every_bit(value, p, divisor):
    transforms = [T.Gamma(gamma=value, p=p), T.LocalGamma(scale=LogUniformOfSize(divisor), gamma=value)]
    text = write_config(transforms)
    assert [contents(t) for t in read_config(text).transforms] == [contents(t) for t in transforms]
    assert write_config(read_config(text).transforms) == text


def test_other_ways_to_write_the_same():
    """Block and flow style, comments, a byte order mark, Windows' line ends, whole numbers and exponents."""
    flow = Pipeline.from_yaml("pipeline: [{kind: Gamma, p: 1, gamma: [1, 2.0e+0]}, {kind: Mirror, allowed_axes: []}]")
    block = Pipeline.from_yaml(
        "\ufeff# a comment\r\npipeline:\r\n- kind: Gamma # another\r\n  p: 1.\r\n  gamma:\r\n  - 1e0\r\n  - +2\r\n"
        '- "kind": \'Mirror\'\r\n  "allowed_axes":\r\n    []\r\n'
    )
    assert flow.to_yaml() == block.to_yaml()


class TestSettings:
    def test_left_out_if_they_are_the_default_ones(self):
        assert Pipeline([]).to_yaml() == "pipeline: []\n"
        assert Pipeline.from_yaml("pipeline: []\nsettings: {}").settings == Settings()

    def test_the_seed(self):
        text = Pipeline([T.Gamma()], seed=7).to_yaml()
        assert "seed: 7\n" in text
        again = Pipeline.from_yaml(text)
        assert again.seed == again.settings.seed == 7 and again.to_yaml() == text
        batch = make_batch(2, 1, (5, 6))
        same = [p(image=batch.image)["image"] for p in (again, Pipeline([T.Gamma()], seed=7))]
        assert torch.equal(*same)

    def test_without_a_seed_each_pipeline_has_its_own(self):
        assert Pipeline.from_yaml("pipeline: []").seed != Pipeline.from_yaml("pipeline: []").seed

    @pytest.mark.parametrize("kernels", ["auto", "off"])
    def test_kernels(self, kernels, monkeypatch):
        """With "off" no kernel is chosen, even where there is one."""
        from nnunet_gpuaug.ops import _dispatch, geometry

        class Kernels:
            used = 0

            def warp_image(self, image, matrix, patch, *_):
                self.used += 1
                return geometry.warp_image(image, matrix, patch, "bilinear", "zeros", 0.0)

        monkeypatch.setattr(_dispatch, "warp", Kernels())
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        spatial = T.Spatial(patch_size=(4, 5), p_rotation=1)
        pipeline = Pipeline([spatial], settings=Settings(kernels=kernels))
        for _ in range(2):  # and the choice ends with the call
            pipeline(image=torch.zeros(1, 1, 6, 7))
        assert _dispatch.warp.used == (2 if kernels == "auto" else 0)
        Pipeline([spatial])(image=torch.zeros(1, 1, 6, 7))
        assert _dispatch.warp.used == (3 if kernels == "auto" else 1)


class TestFiles:
    def test_written_and_read(self, tmp_path):
        path = tmp_path / "mine.yaml"
        text = Pipeline([T.Gamma()]).to_yaml(path)
        assert path.read_text() == text
        for source in (path, str(path)):
            assert Pipeline.from_yaml(source).to_yaml() == text

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "mine.yaml"
        path.write_text("old")

        def fail(*_):
            raise OSError("disk full")

        monkeypatch.setattr("os.replace", fail)
        with pytest.raises(OSError, match="disk full"):
            Pipeline([]).to_yaml(path)
        assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"] and path.read_text() == "old"
