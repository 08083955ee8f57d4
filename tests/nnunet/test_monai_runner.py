"""MONAI's nnU-Net runner starts our trainer after the one documented export."""

import os
import subprocess
import sys

import pytest
import torch
from monai.apps.nnunet import nnUNetV2Runner
from nnunetv2.run import run_training as stock

import nnunet_gpuaug.nnunet
from nnunet_gpuaug.nnunet.trainer import wrap

DISCOVER = os.path.join(os.path.dirname(nnunet_gpuaug.nnunet.__file__), "discover")


@pytest.fixture
def runner(dataset, monkeypatch, tmp_path) -> nnUNetV2Runner:
    """The runner on the tiny dataset. It writes to os.environ, which monkeypatch puts back."""
    env = dataset()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("nnUNet_extTrainer", DISCOVER)
    monkeypatch.chdir(tmp_path)
    config = {"dataset_name_or_id": 901, **{k.replace("nnUNet", "nnunet"): v for k, v in env.items() if "_n" not in k}}
    return nnUNetV2Runner(config, trainer_class_name="nnUNetTrainerGPUAug")


def test_the_command_it_builds_trains_with_our_trainer(runner, monkeypatch):
    command, env = runner.train_single_model_command("2d", 0, 0, {"p": "nnUNetPlans"})
    assert command[0] == "nnUNetv2_train" and env["nnUNet_extTrainer"] == DISCOVER
    started = []

    def run_training(dataset, configuration, fold, trainer, plans, *args, **kwargs):
        started.append(stock.get_trainer_from_args(dataset, configuration, int(fold), trainer, plans,
                                                   device=torch.device("cpu")))

    monkeypatch.setattr(stock, "run_training", run_training)
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda n: None)
    monkeypatch.setattr(sys, "argv", command)
    stock.run_training_entry()
    assert type(started[0]) is wrap(stock.nnUNetTrainer)
    assert started[0].plans_manager.dataset_name == "Dataset901_Tiny"


def test_it_hands_the_export_to_the_command(runner, monkeypatch):
    seen = []
    monkeypatch.setattr(subprocess, "run", lambda command, **kwargs: seen.append((command, kwargs["env"])))
    runner.train_single_model("2d", 0)
    command, env = seen[0]
    assert command[command.index("-tr") + 1] == "nnUNetTrainerGPUAug" and env["nnUNet_extTrainer"] == DISCOVER
