"""Every kind of configuration trains, and what is left behind is what nnU-Net needs."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_dataset
import torch
from nnunetv2.run.run_training import maybe_load_checkpoint
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug import AugmentationError


@pytest.fixture
def seen(monkeypatch) -> list[dict]:
    """What nnU-Net's own steps get."""
    batches = []

    def watch(name: str):
        stock = getattr(nnUNetTrainer, name)

        def step(self, batch):
            target = batch["target"] if isinstance(batch["target"], list) else [batch["target"]]
            batches.append({"step": name, "data": batch["data"].clone(), "target": [t.clone() for t in target],
                            "is_list": isinstance(batch["target"], list)})
            return stock(self, batch)

        monkeypatch.setattr(nnUNetTrainer, name, step)

    watch("train_step")
    watch("validation_step")
    return batches


def read_checkpoint(trainer, name: str = "checkpoint_final.pth") -> dict:
    return torch.load(Path(trainer.output_folder) / name, weights_only=False)


CONFIGURATIONS = {
    "2d": ("2d", "nnUNetTrainer", {}),
    "3d_fullres": ("3d_fullres", "nnUNetTrainer", {}),
    "3d_lowres": ("3d_lowres", "nnUNetTrainer", {}),
    "anisotropic: 2d augmentation": ("3d_flat", "nnUNetTrainer", {}),
    "residual encoder": ("3d_resenc", "nnUNetTrainer", {}),
    "no deep supervision": ("3d_fullres", "nnUNetTrainerNoDeepSupervision", {}),
    "no deep supervision, 2d": ("2d", "nnUNetTrainerNoDeepSupervision", {}),
    "no augmentation": ("3d_fullres", "nnUNetTrainerNoDA", {}),
    "no mirroring": ("3d_fullres", "nnUNetTrainerNoMirroring", {}),
    "regions with ignore": ("3d_fullres", "nnUNetTrainer", {"regions": True}),
    "two channels, masked": ("2d", "nnUNetTrainer", {"channels": 2, "mask_norm": True}),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_trains(name, dataset, make_trainer, seen):
    configuration, trainer_name, options = CONFIGURATIONS[name]
    dataset(**options)
    trainer = make_trainer(configuration, trainer_name)
    trainer.run_training()

    patch = tuple(trainer.configuration_manager.patch_size)
    assert ("Convert3DTo2D" in trainer.gpuaug_pipelines["training"]) == (configuration == "3d_flat")
    assert [b["step"] for b in seen] == 2 * (3 * ["train_step"] + ["validation_step"])
    for batch in seen:
        assert batch["data"].shape == (2, options.get("channels", 1), *patch)
        assert batch["data"].dtype == torch.float32
        assert batch["is_list"] == trainer.enable_deep_supervision
        assert batch["target"][0].shape == (2, 3 if options.get("regions") else 1, *patch)
        assert all(t.min() >= 0 for t in batch["target"])  # -1 never reaches the loss
        if options.get("regions"):
            assert {t.dtype for t in batch["target"]} == {torch.bool}
        else:
            assert torch.cat([t.flatten() for t in batch["target"]]).unique().tolist() in ([0, 1], [0, 1, 2])
    assert np.isfinite(trainer.logger.get_value("train_losses", None)).all()

    saved = read_checkpoint(trainer)
    assert saved["trainer_name"] == trainer_name
    assert saved["current_epoch"] == 2
    assert saved["inference_allowed_mirroring_axes"] == trainer.inference_allowed_mirroring_axes
    assert saved["nnunet_gpuaug"]["trainer"] == f"{trainer_name}GPUAug"
    assert saved["nnunet_gpuaug"]["seed"] == 7
    assert saved["nnunet_gpuaug"]["batches_used"] == {"training": 6, "validation": 2}
    assert f"{trainer_name}GPUAug__" in trainer.output_folder


def test_cascade_takes_its_own_previous_stage_first(dataset, make_trainer, seen):
    env = dataset()
    root = Path(env["nnUNet_results"]).parent
    stock = tiny_dataset.write_previous_stage(root, env["nnUNet_preprocessed"], "nnUNetTrainer")
    trainer = make_trainer("3d_cascade_fullres")
    trainer.run_training()
    assert seen[0]["data"].shape[1] == 3  # the image and one channel for each foreground label
    assert set(seen[0]["data"][:, 1:].unique().tolist()) <= {0.0, 1.0}
    assert trainer.folder_with_segs_from_previous_stage == str(stock)
    assert f"Previous stage of the cascade: {stock}" in Path(trainer.log_file).read_text()

    own = tiny_dataset.write_previous_stage(root, env["nnUNet_preprocessed"], "nnUNetTrainerGPUAug")
    trainer = make_trainer("3d_cascade_fullres")
    trainer.initialize()
    assert trainer.folder_with_segs_from_previous_stage == str(own)


def test_cascade_without_previous_stage(dataset, make_trainer):
    dataset()
    with pytest.raises(AugmentationError, match="train 3d_lowres first"):
        make_trainer("3d_cascade_fullres").run_training()


def test_log_and_debug_file_show_the_pipeline(dataset, make_trainer):
    dataset()
    trainer = make_trainer(epochs=1)
    trainer.run_training()
    folder = Path(trainer.output_folder)
    debug = json.loads((folder / "debug.json").read_text())
    log = Path(trainer.log_file).read_text()
    summary = json.loads((folder / "nnunet_gpuaug.json").read_text())
    for text in (log, debug["gpuaug_pipelines"], summary["pipeline"]):
        assert "Spatial(" in text and "Gamma(" in text
    assert "Seed of the augmentation: 7" in log
    assert "loader wait" in log and "augmentation" in log
    assert summary["versions"]["batchgeneratorsv2"] != "not installed"


def test_resume_goes_on_where_it_stopped(dataset, make_trainer):
    dataset()
    straight = make_trainer(epochs=4)
    numbers = record_seeds(straight)
    straight.run_training()

    first = make_trainer(epochs=2)
    first.run_training()
    second = make_trainer(epochs=4, c=True, seed=None)
    later = record_seeds(second)
    maybe_load_checkpoint(second, continue_training=True, validation_only=False)
    second.run_training()

    assert len(set(numbers)) == 12
    assert later == numbers[6:]
    assert len(second.logger.get_value("train_losses", None)) == 4
    assert second.logger.get_value("lrs", None)[2:] == straight.logger.get_value("lrs", None)[2:]
    saved = read_checkpoint(second)
    assert saved["current_epoch"] == 4
    assert saved["nnunet_gpuaug"]["batches_used"]["training"] == 12
    assert "until now" not in Path(second.log_file).read_text()


def test_resume_of_a_finished_training_does_nothing(dataset, make_trainer):
    dataset()
    make_trainer(epochs=1).run_training()
    again = make_trainer(epochs=1, c=True)
    maybe_load_checkpoint(again, continue_training=True, validation_only=False)
    again.run_training()
    assert read_checkpoint(again)["current_epoch"] == 1


def test_resume_under_another_seed_or_pipeline_says_so(dataset, make_trainer, monkeypatch):
    dataset()
    make_trainer(epochs=1).run_training()
    second = make_trainer(epochs=2, c=True, seed=8)
    axes = (np.pi / 4, False, np.array([10, 22, 18]), (0,))
    monkeypatch.setattr(second, "configure_rotation_dummyDA_mirroring_and_inital_patch_size", lambda: axes)
    maybe_load_checkpoint(second, continue_training=True, validation_only=False)
    second.run_training()
    log = Path(second.log_file).read_text()
    assert "until now this training used another pipeline" in log
    assert "until now this training used seed 7" in log


def record_seeds(trainer) -> list[int]:
    """The seeds that the training's batches are drawn with, as they are used."""
    seeds = []
    step = trainer.train_step

    def train_step(batch):
        result = step(batch)
        seeds.append(trainer._gpuaug_training.pipeline.generator.initial_seed())
        return result

    trainer.train_step = train_step
    return seeds


def test_no_seed_means_entropy(dataset, make_trainer):
    dataset()
    seeds = set()
    for _ in range(2):
        trainer = make_trainer(epochs=1, iterations=1, seed=None)
        trainer.run_training()
        seeds.add(read_checkpoint(trainer)["nnunet_gpuaug"]["seed"])
    assert len(seeds) == 2


def test_non_finite_loss_names_its_origin(dataset, make_trainer, monkeypatch):
    dataset()
    monkeypatch.setattr(nnUNetTrainer, "train_step", lambda self, batch: {"loss": np.float32("nan")})
    trainer = make_trainer(epochs=1, iterations=1)
    trainer.run_training()
    log = Path(trainer.log_file).read_text()
    assert "WARNING: the loss is nan. It comes from the network or the loss function" in log


def test_mirroring_axes_follow_the_trainer(dataset, make_trainer):
    dataset()
    trainer = make_trainer(trainer="nnUNetTrainer_onlyMirror01", epochs=1, iterations=1)
    trainer.run_training()
    saved = read_checkpoint(trainer)
    assert saved["inference_allowed_mirroring_axes"] == (0, 1)
    assert "Mirror(allowed_axes=(0, 1))" in saved["nnunet_gpuaug"]["pipeline"]
