"""Real, tiny trainings on the CPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_dataset
import torch

from nnunet_gpuaug.nnunet.options import read_options
from nnunet_gpuaug.nnunet.run import Job, build_trainer, check


@pytest.fixture(autouse=True)
def few_threads():
    """The tensors are so small that threads only get into each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def preprocessed(tmp_path_factory) -> Callable[..., Path]:
    """Gives a folder with raw and preprocessed data; each variant is built once."""
    built = {}

    def get(**options) -> Path:
        key = tuple(sorted(options.items()))
        if key not in built:
            built[key] = tmp_path_factory.mktemp("tiny")
            tiny_dataset.build(built[key], **options)
        return built[key]

    return get


@pytest.fixture
def dataset(preprocessed, monkeypatch, tmp_path) -> Callable[..., dict[str, str]]:
    """Points nnU-Net at a variant of the dataset and at an empty results folder; gives the environment set."""

    def use(workers: int = 0, **options) -> dict[str, str]:
        env = tiny_dataset.environment(preprocessed(**options), workers)
        env["nnUNet_results"] = str(tmp_path / "nnUNet_results")
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return env

    return use


@pytest.fixture
def make_trainer():
    """Builds a trainer as the command line does, checks included, and closes its loaders afterwards."""
    made = []

    def make(configuration: str = "3d_fullres", trainer: str = "nnUNetTrainer", c: bool = False, **options):
        options = read_options(**{"epochs": 2, "iterations": 3, "seed": 7, **options})
        job = Job("901", configuration, 0, trainer, device="cpu", c=c, options=options)
        check(job)
        made.append(build_trainer(job))
        made[-1].gpuaug_configure(job.options)
        return made[-1]

    yield make
    for trainer in made:
        for loader in (trainer.dataloader_train, trainer.dataloader_val):
            if hasattr(loader, "_finish"):
                loader._finish()
