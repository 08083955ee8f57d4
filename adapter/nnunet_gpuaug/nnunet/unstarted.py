"""A trainer that is not started, and its pipeline: no data, no GPU, nothing written."""

import contextlib
import copy
import io
import os
import tempfile
import warnings
from collections.abc import Iterator

import torch

from nnunet_gpuaug import AugmentationError, Pipeline
from nnunet_gpuaug.nnunet.mixin import GPUAugMixin
from nnunet_gpuaug.nnunet.trainer import wrapped_trainer


def pipeline_of(trainer: str, plans: dict, dataset_json: dict, configuration: str, fold: int | str = 0) -> Pipeline:
    """The pipeline that a trainer would train with; arguments and errors as for `unstarted`.

    Raises:
        AugmentationError: also if the trainer has a transform without a counterpart.
    """
    with unstarted(trainer, plans, dataset_json, configuration, fold) as built:
        return Pipeline.from_nnunet(built)


@contextlib.contextmanager
def unstarted(
    trainer: str, plans: dict, dataset_json: dict, configuration: str, fold: int | str = 0
) -> Iterator[GPUAugMixin]:
    """Within the block there is a wrapped trainer that leaves nothing behind.

    The trainer's own `__init__` runs, because it can hold decisions that matter; what it writes goes to a folder that
    is removed, and what it prints is dropped.

    Args:
        trainer: name of any trainer, with or without GPUAug at its end.
        plans: the content of the plans file.
        dataset_json: the content of dataset.json.
        configuration: e.g. "3d_fullres"; has to be in the plans.
        fold: number of the fold, or "all".

    Raises:
        AugmentationError: there is no such trainer, or it cannot be built for these plans.
    """
    with contextlib.redirect_stdout(io.StringIO()), _nothing_kept():
        trainer_class = wrapped_trainer(trainer)
        try:
            yield trainer_class(
                plans={**copy.deepcopy(plans), "continue_training": False},
                configuration=configuration,
                fold=fold,
                dataset_json=copy.deepcopy(dataset_json),
                device=torch.device("cpu"),
            )
        except AugmentationError:
            raise
        except Exception as error:  # whatever a trainer, or plans that are none, may raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise AugmentationError(f"{trainer} cannot be built for {configuration}: {reason}") from error


@contextlib.contextmanager
def _nothing_kept() -> Iterator[None]:
    """Within the block nnU-Net's results go to a temporary folder, and it logs to no service."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nnU-Net's imports raise some that are nobody's concern here
        wanted = {"nnUNet_results": folder, "nnUNet_wandb_enabled": "0"}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
