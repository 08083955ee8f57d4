"""A whole pipeline as one dictionary transform."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from monai.bundle import ConfigParser
from twins import BOTH, collated, generator_of

from cases import SIZES, make_batch
from checks import assert_same, check
from nnunet_gpuaug import Batch, ConfigError, Pipeline
from nnunet_gpuaug import monai as M

CONFIG = """
pipeline:
  - {kind: Spatial, patch_size: [7, 8, 9], p_rotation: 0.5, rotation: [-1, 1]}
  - {kind: Gamma, p: 0.5}
  - {kind: Mirror, p: 1.0, allowed_axes: [0, 1, 2]}
  - {kind: DownsampleSegForDS, ds_scales: [1, 0.5]}
"""
LABELS = {"background": 0, "a": 1, "b": 2}
DATASET = {"channel_names": {"0": "T1"}, "labels": LABELS, "numTraining": 5, "file_ending": ".nii.gz"}


def plain(out) -> Batch:
    return Batch(out["image"].as_tensor(), [level.as_tensor() for level in out["label"]])


def expected(batch: Batch, seed: int) -> Batch:
    pipeline = Pipeline.from_yaml(CONFIG)
    return pipeline.apply(batch, pipeline.draw(batch, generator_of(seed)))


@pytest.mark.parametrize("form", ["pipeline", "text", "path"])
def test_equals_the_pipeline(form, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CONFIG)
    config = {"pipeline": Pipeline.from_yaml(CONFIG), "text": CONFIG, "path": path}[form]
    batch = make_batch(3, 2, SIZES[3])
    out = M.NNUNetAugmentd(BOTH, config).set_random_state(4)(collated(batch))
    assert_same(plain(out), expected(batch, 4))
    assert out["other"].tolist() == [0, 1, 2] and out["label"][1].meta["name"] == list("012")


def test_an_item():
    batch = make_batch(1, 2, SIZES[3])
    augment = M.NNUNetAugmentDict(BOTH, CONFIG, batched=False).set_random_state(4)
    out = augment({"image": batch.image[0], "label": batch.segmentation[0]})
    whole = expected(batch, 4)
    assert torch.equal(out["image"], whole.image[0])
    assert all(torch.equal(a, b[0]) for a, b in zip(out["label"], whole.segmentation, strict=True))


def test_a_seed_in_the_file():
    data = collated(make_batch(3, 2, SIZES[3]))
    first, second = (M.NNUNetAugmentd(BOTH, CONFIG + "settings: {seed: 9223372036854775807}") for _ in range(2))
    for _ in range(2):
        assert_same(plain(first(data)), plain(second(data)))


def test_from_a_bundle_config():
    """Everything that is random in a file comes from the Compose."""
    parser = ConfigParser(
        {
            "keys": ["image", "label"],
            "augment": {
                "_target_": "monai.transforms.Compose",
                "transforms": [
                    {
                        "_target_": "nnunet_gpuaug.monai.RandNNUNetOneOfd",
                        "keys": "@keys",
                        "transforms": [
                            {"_target_": "nnunet_gpuaug.Gamma", "gamma": {"split": [0.7, 1.5]}},
                            {"_target_": "nnunet_gpuaug.GaussianBlur", "blur_sigma": [0.5, 1.0]},
                        ],
                    },
                    {"_target_": "nnunet_gpuaug.monai.RandNNUNetContrastd", "keys": "image", "_disabled_": True},
                    {"_target_": "nnunet_gpuaug.monai.NNUNetAugmentD", "keys": "@keys", "config": CONFIG},
                ],
            },
        }
    )
    augment = parser.get_parsed_content("augment")
    assert [type(t).__name__ for t in augment.transforms] == ["RandNNUNetOneOfd", "NNUNetAugmentd"]
    out = augment(collated(make_batch(2, 1, SIZES[3])))
    assert out["image"].shape == (2, 1, 7, 8, 9) and len(out["label"]) == 2


@pytest.fixture(scope="module")
def plans():
    return runpy.run_path(str(Path(__file__).parents[2] / "configs" / "generate.py"))["example_plans"]()


class TestPlans:
    def test_equals_what_the_trainer_builds(self, plans, tmp_path):
        from nnunet_gpuaug.nnunet.unstarted import pipeline_of

        files = {"plans": tmp_path / "plans.json", "dataset_json": tmp_path / "dataset.json"}
        files["plans"].write_text(json.dumps(plans))
        files["dataset_json"].write_text(json.dumps(DATASET))
        augment = M.NNUNetAugmentd(BOTH, **files, configuration="3d_fullres", trainer="nnUNetTrainerDA5")
        wanted = pipeline_of("nnUNetTrainerDA5", plans, DATASET, "3d_fullres")
        assert augment.pipeline.to_yaml() == wanted.to_yaml()

    def test_content_instead_of_files(self, plans):
        augment = M.NNUNetAugmentd(BOTH, plans=plans, dataset_json=DATASET, configuration="3d_fullres")
        assert "Spatial" in repr(augment.pipeline)

    def test_what_is_missing(self, tmp_path, plans):
        broken = tmp_path / "broken.json"
        broken.write_text("{")
        given = {"dataset_json": DATASET, "configuration": "3d_fullres"}
        check(lambda: M.NNUNetAugmentd(BOTH), "neither", "config", "plans", "dataset_json", "configuration")
        check(lambda: M.NNUNetAugmentd(BOTH, CONFIG, plans=plans), "config", "plans", "either")
        check(lambda: M.NNUNetAugmentd(BOTH, plans=plans), "plans", "dataset_json", "all of")
        check(lambda: M.NNUNetAugmentd(BOTH, plans=tmp_path / "no.json", **given), "no.json", "No such file")
        check(lambda: M.NNUNetAugmentd(BOTH, plans=broken, **given), "broken.json", "not JSON")
        check(lambda: M.NNUNetAugmentd(BOTH, plans=plans, trainer="nnUNetTrainr", **given), "nnUNetTrainr")

    def test_a_wrong_file(self):
        with pytest.raises(ConfigError, match="did you mean Gamma"):
            M.NNUNetAugmentd(BOTH, "pipeline: [{kind: Gama}]")


def test_works_without_nnunet():
    code = """
import sys
for name in ("nnunetv2", "batchgeneratorsv2", "triton"):
    sys.modules[name] = None
import torch
from nnunet_gpuaug.monai import NNUNetAugmentd
print(NNUNetAugmentd("image", "pipeline: [{kind: Gamma}]")({"image": torch.rand(1, 1, 4, 4)})["image"].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "torch.Size([1, 1, 4, 4])", done.stderr
