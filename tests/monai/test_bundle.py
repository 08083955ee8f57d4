"""The example bundle: its file builds the transforms, and it trains."""

import math
from pathlib import Path

import pytest
import torch
from monai.bundle import ConfigParser, ConfigWorkflow
from monai.utils import set_determinism

from nnunet_gpuaug import monai as M

pytest.importorskip("ignite")
BUNDLE = Path(__file__).parents[2] / "examples" / "monai" / "bundle"
FILES = {"config_file": str(BUNDLE / "configs/train.yaml"), "meta_file": str(BUNDLE / "configs/metadata.json")}


@pytest.fixture(autouse=True)
def undetermined():
    yield
    set_determinism(None)


def test_the_augmentation_is_nnunets():
    """The steps of the default 3D preset, with their probabilities, without the label steps."""
    parser = ConfigParser()
    parser.read_config(FILES["config_file"])
    steps = [t.pipeline.transforms[0] for t in parser.get_parsed_content("augment").transforms]
    preset = M.NNUNetAugmentd(config=BUNDLE.parents[2] / "configs/default_3d.yaml").pipeline.transforms
    label_steps = ("RemoveLabel", "DownsampleSegForDS")
    wanted = [(type(t).__name__, t.p) for t in preset if type(t).__name__ not in label_steps]
    assert [(type(t).__name__, t.p) for t in steps] == wanted


def test_trains():
    losses = []
    workflow = ConfigWorkflow(
        **FILES, workflow_type="train", bundle_root=str(BUNDLE), logging_file=False, device='$torch.device("cpu")'
    )
    workflow.initialize()
    trainer = workflow.parser.get_parsed_content("trainer")
    trainer.add_event_handler("ITERATION_COMPLETED", lambda engine: losses.append(engine.state.output[0]["loss"]))
    before = [p.detach().clone() for p in trainer.network.parameters()]
    workflow.run()
    weights = list(trainer.network.parameters())
    assert len(losses) == 4 and all(math.isfinite(loss) for loss in losses)
    assert any(not torch.equal(a, b) for a, b in zip(before, weights, strict=True))
    assert trainer.state.output[0]["image"].shape == (1, 24, 24, 24)


def test_augment_batch():
    batch = {"image": torch.rand(2, 1, 6, 6), "label": torch.ones(2, 1, 6, 6), "name": ["a", "b"]}
    seen = {}

    def transform(data):
        seen.update(data)
        return {**data, "image": data["image"] + 1}

    image, label = M.AugmentBatch(transform)(batch, torch.device("cpu"), non_blocking=True, dtype=torch.float64)
    assert torch.equal(image, batch["image"].double() + 1) and torch.equal(label, batch["label"].double())
    assert seen["name"] == ["a", "b"] and batch["image"].dtype == torch.float32
