"""A training with a pipeline from a file: it fits or nothing starts, and what follows from it follows."""

import json
import math
import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from nnunetv2.run.run_training import maybe_load_checkpoint
from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug import AugmentationError, ConfigError, Mirror, Pipeline, Settings, Spatial
from nnunet_gpuaug.cli.train import main
from nnunet_gpuaug.nnunet.options import read_options
from nnunet_gpuaug.nnunet.run import Job
from nnunet_gpuaug.nnunet.unstarted import pipeline_of

CONFIGURATIONS = ("2d", "3d_fullres", "3d_flat", "3d_lowres", "3d_cascade_fullres")


@pytest.fixture
def config(tmp_path):
    """Writes the pipeline of a trainer for a configuration to a file, with changes to its text."""

    def write(trainer, configuration: str = "3d_fullres", changes: dict | None = None, end: str = "", **options) -> str:
        built = pipeline_of(trainer, _json("nnUNetPlans.json"), _json("dataset.json"), configuration, **options)
        text = built.to_yaml()
        for old, new in (changes or {}).items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "pipeline.yaml"
        path.write_text(text + end)
        return str(path)

    return write


def _json(name: str) -> dict:
    return json.loads((Path(os.environ["nnUNet_preprocessed"]) / "Dataset901_Tiny" / name).read_text())


ROTATION = f"rotation: [{-math.pi / 6}, {math.pi / 6}]"


def configured(trainer) -> tuple:
    """The initial patch size and the mirrored axes, as nnU-Net's loaders and checkpoints will have them."""
    _, _, size, axes = trainer.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
    assert trainer.inference_allowed_mirroring_axes == axes
    return [int(n) for n in size], axes


TRAINERS = ("nnUNetTrainer", "nnUNetTrainerDA5", "nnUNetTrainerNoDA", "nnUNetTrainerNoMirroring",
            "nnUNetTrainerNoDeepSupervision", "nnUNetTrainer_noDummy2DDA")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_trainers_own_pipeline_changes_nothing(trainer, dataset, config, make_trainer):
    dataset()
    for configuration in CONFIGURATIONS:
        given = make_trainer(configuration, trainer, config=config(trainer, configuration))
        assert configured(given) == configured(make_trainer(configuration, trainer))


@pytest.mark.parametrize("options", [{"regions": True}, {"channels": 2, "mask_norm": True}])
def test_the_trainers_own_pipeline_fits_any_dataset(options, dataset, config, make_trainer):
    dataset(**options)
    for configuration in CONFIGURATIONS:
        make_trainer(configuration, config=config("nnUNetTrainer", configuration))


def test_mirroring_at_test_time_follows(dataset, config, make_trainer):
    dataset()
    axes = "allowed_axes: [0, 1, 2]"
    for change, expected in {
        "allowed_axes: [0]": (0,),
        "allowed_axes: [2, 0]": (0, 2),
        "allowed_axes: []": None,
    }.items():
        trainer = make_trainer(config=config("nnUNetTrainer", changes={axes: change}))
        assert configured(trainer)[1] == expected
    never = {f"p: 1.0\n    {axes}": f"p: 0.0\n    {axes}"}
    assert configured(make_trainer(config=config("nnUNetTrainer", changes=never)))[1] is None
    more = {"  - kind: RemoveLabel": "  - kind: OneOf\n    transforms: [{kind: Mirror, allowed_axes: [1]}]\n"
            "  - kind: RemoveLabel"}
    without = make_trainer(config=config("nnUNetTrainerNoMirroring", changes=more))
    assert configured(without)[1] == (1,)


def test_mirroring_within_slices_counts_from_the_second_axis(dataset, config, make_trainer):
    dataset()
    changes = {"  - kind: Convert2DTo3D": "  - {kind: Mirror, allowed_axes: [0, 1]}\n  - kind: Convert2DTo3D",
               "    allowed_axes: [0, 1, 2]": "    allowed_axes: [2]"}
    assert configured(make_trainer("3d_flat", config=config("nnUNetTrainer", "3d_flat", changes)))[1] == (1, 2)


def test_initial_patch_size_follows_the_rotation(dataset, config, make_trainer):
    dataset()
    patch = (8, 20, 16)

    def size(trainer: str, changes: dict, configuration: str = "3d_fullres", pipeline: str | None = None) -> list[int]:
        file = config(pipeline or trainer, configuration, changes)
        return configured(make_trainer(configuration, trainer, config=file))[0]

    def expected(angle: float, scale_range=(0.85, 1.25), patch=patch) -> list[int]:
        return get_patch_size(patch, angle, angle, angle, scale_range).tolist()

    narrow, none = {ROTATION: "rotation: [-0.1, 0.2]"}, {ROTATION: "rotation: 0"}
    assert size("nnUNetTrainer", narrow) == expected(0.2)
    assert size("nnUNetTrainerDA5", narrow) == expected(0.2, (0.7, 1.43))
    assert size("nnUNetTrainer", none) == size("nnUNetTrainer", {"p_rotation: 0.2": "p_rotation: 0"}) == expected(0)
    assert size("nnUNetTrainer", {"p_rotation: 0.2": "p_rotation: 0", "p_scaling: 0.2": "p_scaling: 0"}) == [*patch]
    assert size("nnUNetTrainer", {}, pipeline="nnUNetTrainerNoDA") == [*patch]
    assert size("nnUNetTrainerNoDA", {}, pipeline="nnUNetTrainer") == expected(math.pi / 6)
    # within slices the first axis stays as it is
    flat = {f"rotation: [{-math.pi}, {math.pi}]": "rotation: [-0.2, 0.2]"}
    assert size("nnUNetTrainer", flat, "3d_flat") == [4, *expected(0.2, patch=(4, 20, 16))[1:]]
    whole = size("nnUNetTrainer", {}, "3d_flat", pipeline="nnUNetTrainer_noDummy2DDA")
    assert whole == expected(math.pi / 6, patch=(4, 20, 16)) and whole[0] > 4


SCALES = "ds_scales = [[1.0, 1.0, 1.0], [0.5, 0.5, 0.25]]: expected [[1.0, 1.0, 1.0], [0.5, 0.5, 0.5]]"
BEFORE_TARGETS, BEFORE_LABELS = "  - kind: DownsampleSegForDS", "  - kind: RemoveLabel"

# configuration, changes to the trainer's own pipeline, part of the message
MISFITS = {
    "patch": (
        "3d_fullres",
        {"patch_size: [8, 20, 16]": "patch_size: [8, 16, 16]"},
        "pipeline[0].patch_size = [8, 16, 16]: expected [8, 20, 16]",
    ),
    "patch in slices": (
        "3d_flat",
        {"patch_size: [20, 16]": "patch_size: [16, 16]"},
        "pipeline[1].patch_size = [16, 16]: expected [20, 16]",
    ),
    "deep supervision": ("3d_fullres", {"[0.5, 0.5, 0.5]": "[0.5, 0.5, 0.25]"}, SCALES),
    "label": ("3d_fullres", {"set_to: 0": "set_to: 1"}, "set_to = 1: expected 0"),
    "one-hot": ("3d_cascade_fullres", {"all_labels: [1, 2]": "all_labels: [1]"}, "all_labels = [1]: expected [1, 2]"),
    "cascade": (
        "3d_cascade_fullres",
        {"channel_idx: [-2, -1]": "channel_idx: [0, 1]"},
        "channel_idx = [0, 1]: expected some of [-2, -1], after MoveSegAsOneHot",
    ),
    "no cascade": (
        "2d",
        {BEFORE_TARGETS: "  - {kind: ApplyRandomBinaryOperator, channel_idx: [0]}\n" + BEFORE_TARGETS},
        "channel_idx = [0]: expected no such step",
    ),
    "regions": (
        "2d",
        {BEFORE_TARGETS: "  - {kind: ConvertSegmentationToRegions, regions: [1]}\n" + BEFORE_TARGETS},
        "kind = ConvertSegmentationToRegions: expected no such step for nnUNetTrainer, 2d",
    ),
    "late": (
        "3d_fullres",
        {BEFORE_TARGETS: "  - {kind: Spatial, patch_size: [8, 20, 16]}\n" + BEFORE_TARGETS},
        "kind = Spatial: expected before RemoveLabel",
    ),
    "axes": ("2d", {"allowed_axes: [0, 1]": "allowed_axes: [0, 2]"}, "Mirror: allowed_axes = (0, 2)"),
    "folded": ("3d_flat", {"  - kind: Convert2DTo3D\n": ""}, "pipeline"),
    "channels": (
        "2d",
        {BEFORE_LABELS: "  - {kind: MaskImage, apply_to_channels: [1]}\n" + BEFORE_LABELS},
        "MaskImage: apply_to_channels = (1,)",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_pipeline_that_does_not_fit_trains_nothing(name, dataset, config, capsys):
    env = dataset()
    configuration, changes, message = MISFITS[name]
    file = config("nnUNetTrainer", configuration, changes)
    assert main(["901", configuration, "0", "-device", "cpu", "--config", file]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"nnunet_gpuaug_train: error: {file}: ") and error.count("\n") <= 2
    assert message in error
    assert not list(Path(env["nnUNet_results"]).rglob("*"))


def test_every_misfit_is_told_at_once(dataset, config, make_trainer):
    dataset()
    changes = {"patch_size: [8, 20, 16]": "patch_size: [8, 8, 8]", "label_value: -1": "label_value: 2",
               "[0.5, 0.5, 0.5]": "[0.25, 0.5, 0.5]"}
    with pytest.raises(ConfigError) as caught:
        make_trainer(config=config("nnUNetTrainer", changes=changes))
    assert len(caught.value.problems) == 3


def test_deep_supervision_off_wants_no_targets(dataset, config, make_trainer):
    dataset()
    without = config("nnUNetTrainerNoDeepSupervision")
    with pytest.raises(ConfigError, match=r"a step is missing; expected DownsampleSegForDS\(ds_scales=\(\(1.0, 1.0"):
        make_trainer(config=without)
    with pytest.raises(ConfigError, match="kind = DownsampleSegForDS: expected no such step for nnUNetTrainerNoDeep"):
        make_trainer(trainer="nnUNetTrainerNoDeepSupervision", config=config("nnUNetTrainer"))


def test_a_broken_file_is_told_line_by_line(dataset, capsys, tmp_path):
    dataset()
    file = tmp_path / "broken.yaml"
    file.write_text("pipeline:\n  - kind: Mirrors\n  - kind: Gamma\n    p: 2\nsettings: {sed: 1}\n")
    assert main(["901", "2d", "0", "-device", "cpu", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3 and all(f"{file}:" in line for line in lines)
    assert "did you mean Mirror?" in lines[0]
    assert main(["901", "2d", "0", "-device", "cpu", "--config", "nowhere.yaml"]) == 2
    assert "'nowhere.yaml': there is no such file" in capsys.readouterr().err


def test_command_line_wins_over_the_file(dataset, config, make_trainer):
    dataset()
    file = config("nnUNetTrainer", "2d", end="settings: {seed: 3, prefetch: false, kernels: 'off'}\n")
    options = read_options(file, seed=None, prefetch=None, on_unmapped=None)
    assert options.settings == Settings(seed=3, prefetch=False, kernels="off")
    trainer = make_trainer("2d", config=file, seed=5, on_unmapped="host", epochs=1, iterations=1)
    trainer.run_training()
    log = Path(trainer.log_file).read_text()
    for line in (f"Training pipeline: from {file}", "Setting seed: 5 (command line)", "mirroring at test time (0, 1)",
                 "Setting on_unmapped: host (command line)", f"Setting prefetch: False ({file})",
                 "Seed of the augmentation: 5", f"Setting kernels: off ({file})"):
        assert line in log
    assert trainer._gpuaug_training.pipeline.settings == Settings(
        seed=5, prefetch=False, on_unmapped="host", kernels="off"
    )
    with pytest.raises(AugmentationError, match="--on-unmapped never: Input should be 'error' or 'host'"):
        read_options(on_unmapped="never")


def train(make_trainer, monkeypatch, **options) -> tuple:
    """A training from fixed seeds of everything but the augmentation; gives the trainer and its batches."""
    batches = []
    monkeypatch.setattr(nnUNetTrainer, "train_step", lambda self, batch: batches.append(batch) or {"loss": 0.0})
    np.random.seed(0)
    random.seed(0)
    trainer = make_trainer(epochs=1, **options)
    trainer.run_training()
    return trainer, [b["data"] for b in batches]


def test_what_is_saved_trains_the_same(dataset, config, make_trainer, monkeypatch):
    dataset()
    changes = {"allowed_axes: [0, 1, 2]": "allowed_axes: [0]", ROTATION: "rotation: [-0.2, 0.2]"}
    first, batches = train(make_trainer, monkeypatch, config=config("nnUNetTrainer", changes=changes), seed=11)
    saved = Path(first.output_folder) / "nnunet_gpuaug.yaml"
    held = torch.load(Path(first.output_folder) / "checkpoint_final.pth", weights_only=False)
    assert held["nnunet_gpuaug"]["config"] == saved.read_text()
    assert held["inference_allowed_mirroring_axes"] == (0,)
    assert Pipeline.from_yaml(saved).seed == 11
    again, repeated = train(make_trainer, monkeypatch, config=str(saved), seed=None)
    assert len(batches) == 3 and all(torch.equal(a, b) for a, b in zip(batches, repeated, strict=True))
    assert again.gpuaug_config == first.gpuaug_config and saved.read_text() == first.gpuaug_config


def test_the_trainers_own_pipeline_is_saved_as_well(dataset, make_trainer, monkeypatch):
    dataset()
    first, batches = train(make_trainer, monkeypatch)
    saved = Path(first.output_folder) / "nnunet_gpuaug.yaml"
    again, repeated = train(make_trainer, monkeypatch, config=str(saved), seed=None)
    assert all(torch.equal(a, b) for a, b in zip(batches, repeated, strict=True))
    assert again.gpuaug_pipelines == first.gpuaug_pipelines


def test_resume_with_the_saved_file_goes_on_and_with_another_says_so(dataset, config, make_trainer):
    dataset()
    first = make_trainer(epochs=1, iterations=1)
    first.run_training()
    saved = str(Path(first.output_folder) / "nnunet_gpuaug.yaml")
    changed = config("nnUNetTrainer", changes={"allowed_axes: [0, 1, 2]": "allowed_axes: [1]"})
    for epochs, file, told in ((2, saved, False), (3, changed, True)):
        trainer = make_trainer(epochs=epochs, iterations=1, c=True, seed=None, config=file)
        maybe_load_checkpoint(trainer, continue_training=True, validation_only=False)
        trainer.run_training()
        assert ("until now this training used another pipeline" in Path(trainer.log_file).read_text()) == told
    held = torch.load(Path(trainer.output_folder) / "checkpoint_final.pth", weights_only=False)
    assert held["inference_allowed_mirroring_axes"] == (1,)


def test_a_job_with_a_pipeline_pickles(dataset, config):
    dataset()
    job = pickle.loads(pickle.dumps(Job("901", "2d", 0, options=read_options(config("nnUNetTrainer", "2d"), seed=1))))
    assert job.options.settings.seed == 1
    assert [type(t) for t in job.options.transforms][:1] == [Spatial]
    assert any(isinstance(t, Mirror) for t in job.options.transforms)
