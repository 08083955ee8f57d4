"""`nnunet_gpuaug show`: a usable configuration file on stdout, one line on stderr for what went wrong, no traces."""

import json
import os
import subprocess
import sys

import pytest

from nnunet_gpuaug import Pipeline
from nnunet_gpuaug.cli.main import main

PLUGIN = """
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform
from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform

class Unknown(BasicTransform):
    pass

class TrainerWithUnknown(nnUNetTrainer):
    @staticmethod
    def get_training_transforms(*args, **kwargs):
        return ComposeTransforms([Unknown()])

class TrainerThatFails(nnUNetTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        raise KeyError("no\\nsuch key")

class TrainerWithFold(nnUNetTrainer):
    def __init__(self, plans, configuration, fold, dataset_json, device=None):
        super().__init__(plans, configuration, fold, dataset_json, device)
        print("hello", fold)

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self):
        rotation, dummy, size, _ = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        return rotation, dummy, size, (self.fold,)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, generate):
    """nnU-Net's folders with two datasets, and the only place where anything may be written."""
    for name in ("Dataset004_Heart", "Dataset011_Liver"):
        where = tmp_path / "preprocessed" / name
        where.mkdir(parents=True)
        (where / "nnUNetPlans.json").write_text(json.dumps(generate.example_plans()))
        (where / "dataset.json").write_text(json.dumps(generate.example_dataset(generate.LABELS)))
    for name in ("results", "temporary", "plugins", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugins" / "plugin.py").write_text(PLUGIN)
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "results"))
    monkeypatch.setenv("nnUNet_extTrainer", str(tmp_path / "plugins"))
    monkeypatch.setenv("nnUNet_wandb_enabled", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def show(folder, capfd):
    """Runs the command; gives exit code, stdout and stderr, after a look at what it left behind."""

    def run(*arguments: str, writes: tuple[str, ...] = ()) -> tuple[int, str, str]:
        environment = dict(os.environ)
        before = sorted(folder.rglob("*"))
        code = main(["show", *arguments])
        assert sorted(folder.rglob("*")) == sorted([*before, *(folder / "work" / name for name in writes)])
        assert dict(os.environ) == environment
        return (code, *capfd.readouterr())

    return run


def files(folder) -> list[str]:
    dataset = folder / "preprocessed" / "Dataset004_Heart"
    return ["--plans", str(dataset / "nnUNetPlans.json"), "--dataset-json", str(dataset / "dataset.json")]


def test_prints_a_configuration(show, generate):
    code, text, errors = show("4", "3d_fullres", "-tr", "nnUNetTrainerDA5")
    assert (code, errors) == (0, "")
    assert text == generate.generate(generate.PRESETS["da5_3d"])
    assert Pipeline.from_yaml(text).to_yaml() == "".join(
        line for line in text.splitlines(True) if not line.lstrip().startswith("#")
    )


def test_the_same_from_every_kind_of_argument(show, folder):
    texts = {
        show("Dataset004_Heart", "2d")[1],
        show("004", "2d", "-p", "nnUNetPlans", "--fold", "all")[1],
        show("-tr", "nnUNetTrainer", "4", "2d")[1],
        show(*files(folder), "2d")[1],
        show("2d", *files(folder))[1],
    }
    (text,) = texts
    assert "patch_size: [512, 512]" in text


def test_a_wrapped_trainer_is_the_same(show):
    stock, wrapped = show("4", "2d")[1], show("4", "2d", "-tr", "nnUNetTrainerGPUAug")[1]
    assert stock.splitlines()[1:] == wrapped.splitlines()[1:]


def test_every_step_has_a_comment(show):
    lines = show("4", "3d_cascade_fullres", "-tr", "nnUNetTrainerDA5")[1].splitlines()
    steps = [i for i, line in enumerate(lines) if line.lstrip().startswith("- kind")]
    assert len(steps) > 20
    for i in steps:
        what, libraries, used = lines[i - 1].strip().removeprefix("# ").split(" | ")
        assert what.removesuffix("Transform").startswith(lines[i].split()[-1][:5])
        assert "Kornia" in libraries or "MONAI" in libraries or libraries == "no counterpart"
        assert used.startswith(("custom", "library"))


def test_a_trainer_of_ones_own(show):
    code, text, errors = show("4", "3d_fullres", "-tr", "TrainerWithFold", "--fold", "2")
    assert (code, errors) == (0, "") and "hello" not in text
    assert "allowed_axes: [2]" in text
    assert Pipeline.from_yaml(text)


def test_writes_a_file(show, folder):
    code, text, errors = show("4", "2d", "-o", "mine.yaml", writes=("mine.yaml",))
    assert (code, text, errors) == (0, "", "")
    written = (folder / "work" / "mine.yaml").read_text()
    assert show("4", "2d")[1] == written
    assert show("4", "2d", "-o", "mine.yaml")[0] == 0


def test_needs_no_results_folder(show, monkeypatch):
    monkeypatch.delenv("nnUNet_results")
    assert show("4", "2d")[0] == 0


ERRORS = {
    "dataset number": (["5", "2d"], ["'5'", "Dataset004_Heart", "Dataset011_Liver"]),
    "dataset name": (["Dataset004_Hart", "2d"], ["did you mean Dataset004_Heart"]),
    "configuration": (["4", "3d_fulres"], ["'3d_fulres'", "3d_lowres", "did you mean 3d_fullres"]),
    "plans": (["4", "2d", "-p", "nnUNetPlan"], ["nnUNetPlan.json", "did you mean nnUNetPlans?"]),
    "trainer": (["4", "2d", "-tr", "nnUNetTrainerDA6"], ["'nnUNetTrainerDA6'", "Did you mean nnUNetTrainerDA5"]),
    "unmapped": (["4", "2d", "-tr", "TrainerWithUnknown"], ["Unknown (", "no counterpart", "on_unmapped"]),
    "trainer that fails": (["4", "2d", "-tr", "TrainerThatFails"], ["cannot be built for 2d", "KeyError"]),
    "no dataset": (["2d"], ["DATASET is missing before 2d"]),
    "half of the files": (["2d", "--plans", "plans.json"], ["both --plans and --dataset-json"]),
    "files and a dataset": (["4", "2d", "--plans", "a", "--dataset-json", "b"], ["either DATASET or both"]),
    "no file": (["2d", "--plans", "a.json", "--dataset-json", "b.json"], ["a.json: No such file"]),
    "no folder to write to": (["4", "2d", "-o", "nowhere/a.yaml"], ["No such file or directory", "nowhere"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, show):
    arguments, parts = ERRORS[name]
    code, text, errors = show(*arguments)
    assert (code, text) == (2, "")
    assert errors.startswith("nnunet_gpuaug show: error: ") and errors.count("\n") == 1, errors
    assert all(part in errors for part in parts), errors


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a list"),
        ("{}", "no configurations"),
        ('{"configurations": {"2d": {}}}', "cannot be built for 2d"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_bad_plans(content, part, show, folder):
    (folder / "preprocessed" / "Dataset004_Heart" / "nnUNetPlans.json").write_text(content)
    code, text, errors = show("4", "2d")
    assert (code, text, errors.count("\n")) == (2, "", 1) and part in errors, errors


def test_without_the_environment(show, monkeypatch):
    monkeypatch.delenv("nnUNet_preprocessed")
    assert "nnUNet_preprocessed is not set" in show("4", "2d")[2]
    monkeypatch.setenv("nnUNet_preprocessed", "/nowhere")
    code, _, errors = show("4", "2d")
    assert code == 2 and "/nowhere" in errors and errors.count("\n") == 1


def test_as_a_process(folder):
    """Exit code and streams of the real command, without a GPU in sight."""
    command = [sys.executable, "-m", "nnunet_gpuaug.cli.main", "show", "4", "2d"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and Pipeline.from_yaml(done.stdout)


def test_unknown_commands_name_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["shwo"])
    assert "show" in capsys.readouterr().err
