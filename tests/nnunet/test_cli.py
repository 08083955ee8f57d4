"""The command: its options, its errors, and whole runs in processes of their own."""

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_dataset
import torch
from nnunetv2.run import run_training as stock
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from rich.console import Console

import nnunet_gpuaug
from nnunet_gpuaug.cli.progress import BarProgress
from nnunet_gpuaug.cli.train import build_parser, main

COMMAND = [sys.executable, "-m", "nnunet_gpuaug.cli.train"]
SHORT = ["-device", "cpu", "--epochs", "1", "--iterations", "2", "--seed", "1"]
ADAPTER = str(Path(nnunet_gpuaug.__file__).parent.parent)


@pytest.fixture(autouse=True)
def keep_threads(monkeypatch):
    """The command would set torch's threads for this whole process."""
    monkeypatch.setattr("nnunet_gpuaug.cli.train._set_threads", lambda device: None)


def environment(env: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **env, "PYTHONPATH": ADAPTER, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def test_every_option_of_nnunetv2_train_is_here(monkeypatch):
    captured = []

    def parse_args(parser, *args):
        captured.append(parser)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    with pytest.raises(SystemExit):
        stock.run_training_entry()
    ours = {a.dest: a for a in build_parser()._actions}
    for action in captured[0]._actions:
        assert action.dest in ours
        for attribute in ("option_strings", "default", "nargs", "required", "const"):
            assert getattr(ours[action.dest], attribute) == getattr(action, attribute), action.dest


ERRORS = {
    "unknown dataset": (["902", "2d", "0"], "Could not find a dataset with the ID 902"),
    "dataset name": (["Dataset902_No", "2d", "0"], "dataset 'Dataset902_No' is not preprocessed"),
    "dataset text": (["tiny", "2d", "0"], "dataset 'tiny'"),
    "configuration": (["901", "3d", "0"], "configuration '3d' is not in nnUNetPlans; available: 2d, 3d_fullres"),
    "plans": (["901", "2d", "0", "-p", "Other"], "-p Other: there is no"),
    "fold": (["901", "2d", "first"], "fold 'first' must be 'all' or a number"),
    "negative fold": (["901", "2d", "-1"], "fold '-1' must be"),
    "trainer": (["901", "2d", "0", "-tr", "nnUNetTrainerDA55"], "Did you mean nnUNetTrainerDA5"),
    "not finished": (["901", "2d", "0", "--val"], "--val: the training is not finished"),
    "no best": (["901", "2d", "0", "--val", "--val_best"], "--val --val_best: there is no"),
    "c and val": (["901", "2d", "0", "--c", "--val"], "--c and --val exclude each other"),
    "c and weights": (["901", "2d", "0", "--c", "-pretrained_weights", "x"], "--c and -pretrained_weights exclude"),
    "weights": (["901", "2d", "0", "-pretrained_weights", "no.pth"], "there is no file no.pth"),
    "best": (["901", "2d", "0", "--val_best", "--disable_checkpointing"], "exclude each other"),
    "gpus": (["901", "2d", "0", "-num_gpus", "2"], "-num_gpus 2 needs -device cuda, not cpu"),
    "no gpus": (["901", "2d", "0", "-num_gpus", "0"], "-num_gpus 0 must be at least 1"),
    "epochs": (["901", "2d", "0", "--epochs", "0"], "epochs=0 must be at least 1"),
    "seed": (["901", "2d", "0", "--seed", "-3"], "--seed -3: Input should be greater than or equal to 0"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line(name, dataset, capsys):
    dataset()
    arguments, message = ERRORS[name]
    assert main([*arguments, "-device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1 and error.startswith("nnunet_gpuaug_train: error: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_no_cuda(dataset, capsys):
    dataset()
    assert main(["901", "2d", "0"]) == 2
    assert "finds no CUDA device; -device cpu trains without" in capsys.readouterr().err


def test_environment_variable_missing(dataset, capsys, monkeypatch):
    dataset()
    monkeypatch.delenv("nnUNet_results")
    assert main(["901", "2d", "0", *SHORT]) == 2
    assert "the environment variable nnUNet_results is not set" in capsys.readouterr().err


def test_configuration_not_preprocessed(dataset, capsys, monkeypatch, tmp_path):
    env = dataset()
    shutil.copytree(env["nnUNet_preprocessed"], tmp_path / "pre")
    shutil.rmtree(tmp_path / "pre" / tiny_dataset.NAME / "nnUNetPlans_2d")
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "pre"))
    assert main(["901", "2d", "0", *SHORT]) == 2
    assert "is not preprocessed for 2d" in capsys.readouterr().err


def test_full_disk_is_one_line(dataset, capsys, monkeypatch):
    dataset()
    monkeypatch.setattr(nnUNetTrainer, "perform_actual_validation", lambda self, npz: None)
    assert main(["901", "2d", "0", *SHORT]) == 0
    folder = next(Path(os.environ["nnUNet_results"]).glob("*/*/fold_0"))
    (folder / "checkpoint_final.pth.part").symlink_to("/dev/full")
    assert main(["901", "2d", "0", *SHORT]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device (the previous one is untouched)" in error


def test_val_flags_load_what_they_say(dataset, monkeypatch):
    dataset()
    loaded, validated = [], []
    load = nnUNetTrainer.load_checkpoint

    def load_checkpoint(self, path):
        loaded.append(os.path.basename(path))
        load(self, path)

    monkeypatch.setattr(nnUNetTrainer, "load_checkpoint", load_checkpoint)
    monkeypatch.setattr(nnUNetTrainer, "perform_actual_validation", lambda self, npz: validated.append(npz))
    assert main(["901", "2d", "0", *SHORT, "--npz"]) == 0
    assert (loaded, validated) == ([], [True])
    assert main(["901", "2d", "0", *SHORT, "--val_best"]) == 0
    assert loaded == ["checkpoint_best.pth"]
    assert main(["901", "2d", "0", *SHORT, "--val"]) == 0
    assert loaded[1:] == ["checkpoint_final.pth"]
    next(Path(os.environ["nnUNet_results"]).glob("*/*/*/checkpoint_final.pth")).unlink()
    assert main(["901", "2d", "0", *SHORT, "--val", "--val_best"]) == 0
    assert loaded[2:] == ["checkpoint_best.pth"]
    assert validated == [True, False, False, False]


def test_pretrained_weights(dataset, monkeypatch, capsys):
    dataset()
    monkeypatch.setattr(nnUNetTrainer, "perform_actual_validation", lambda self, npz: None)
    assert main(["901", "2d", "0", *SHORT]) == 0
    weights = str(next(Path(os.environ["nnUNet_results"]).glob("*/*/*/checkpoint_final.pth")))
    assert main(["901", "2d", "0", *SHORT, "-pretrained_weights", weights]) == 0
    assert "Loading pretrained weights" in capsys.readouterr().out


def test_stock_command_trains_after_the_export(dataset, monkeypatch):
    dataset()
    monkeypatch.setenv("nnUNet_extTrainer", os.path.join(ADAPTER, "nnunet_gpuaug", "nnunet", "discover"))
    trainer = stock.get_trainer_from_args("901", "2d", 0, "nnUNetTrainerGPUAug", device=torch.device("cpu"))
    trainer.num_epochs, trainer.num_iterations_per_epoch, trainer.num_val_iterations_per_epoch = 1, 2, 1
    trainer.run_training()
    saved = torch.load(os.path.join(trainer.output_folder, "checkpoint_final.pth"), weights_only=False)
    assert saved["trainer_name"] == "nnUNetTrainer" and "Spatial(" in saved["nnunet_gpuaug"]["pipeline"]


def test_bar_shows_what_matters():
    text = io.StringIO()
    bar = BarProgress(Console(file=text, force_terminal=True, width=80))
    bar.start_epoch(0, 1000, 4)
    for _ in range(4):
        bar.step(0.5, 12.0, 35.25)
    bar.start_validation(1)
    bar.validation_step()
    bar.close()
    bar.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())
    assert "epoch 1/1000" in shown and "  validation" in shown and "4/4" in shown
    assert "loss 0.500 wait 12 ms augment 35 ms" in shown


def test_train_then_predict_without_this_package(dataset, tmp_path):
    env = environment(dataset(workers=1))
    done = subprocess.run([*COMMAND, "901", "2d", "0", *SHORT, "--npz"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Mean Validation Dice" in done.stdout and "loader wait" in done.stdout
    model = next(Path(env["nnUNet_results"]).glob("*/nnUNetTrainerGPUAug__nnUNetPlans__2d"))
    assert len(list((model / "fold_0" / "validation").glob("*.npz"))) == 2

    images = tmp_path / "images"
    images.mkdir()
    shutil.copy(Path(env["nnUNet_raw"]) / tiny_dataset.NAME / "imagesTr" / "case_5_0000.nii.gz", images)
    code = (
        "import sys; sys.modules['nnunet_gpuaug'] = None\n"  # as if it were not installed
        "from nnunetv2.inference.predict_from_raw_data import predict_entry_point_modelfolder as predict\n"
        "if __name__ == '__main__': predict()\n"
    )
    (tmp_path / "predict.py").write_text(code)
    arguments = ["-i", images, "-o", tmp_path / "out", "-m", model, "-f", "0", "-npp", "1", "-nps", "1"]
    command = [sys.executable, tmp_path / "predict.py", *arguments, "-device", "cpu", "--disable_tta"]
    env.pop("PYTHONPATH")
    subprocess.run([*map(str, command)], env=env, check=True, capture_output=True)
    assert (tmp_path / "out" / "case_5.nii.gz").is_file()


def end_training(env: dict[str, str], last_line: str, by: signal.Signals) -> None:
    """Start a training, end it by a signal after a line of its log, and see that its workers end as well."""
    command = [*COMMAND, "901", "2d", "0", "-device", "cpu", "--epochs", "50", "--iterations", "20", "--seed", "1"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.rstrip().endswith(last_line):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.send_signal(by)
    assert process.returncode == -by
    deadline = time.time() + 20
    while any(running(child) for child in children):
        assert time.time() < deadline, "a worker outlived its trainer"
        time.sleep(0.1)


def test_sigterm_leaves_no_workers(dataset):
    end_training(environment(dataset(workers=1)), "Epoch 0", signal.SIGTERM)


def test_killed_in_the_middle_of_an_epoch_then_continued(dataset, make_trainer):
    end_training(environment(dataset(workers=1)), "Epoch 1", signal.SIGKILL)
    trainer = make_trainer("2d", epochs=2, iterations=20, seed=None, c=True)
    stock.maybe_load_checkpoint(trainer, continue_training=True, validation_only=False)
    assert trainer.current_epoch >= 1
    trainer.run_training()
    saved = torch.load(os.path.join(trainer.output_folder, "checkpoint_final.pth"), weights_only=False)
    assert saved["nnunet_gpuaug"]["seed"] == 1 and saved["nnunet_gpuaug"]["batches_used"]["training"] == 40


def running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
