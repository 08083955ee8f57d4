"""A whole training: checks, trainer, checkpoints, one or several devices. The command line calls this."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from batchgenerators.utilities.file_and_folder_operations import load_json
from nnunetv2.paths import nnUNet_preprocessed, nnUNet_results
from nnunetv2.run.run_training import cleanup_ddp, find_free_network_port, maybe_load_checkpoint, setup_ddp
from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from torch import distributed

from nnunet_gpuaug import AugmentationError
from nnunet_gpuaug.nnunet.mixin import GPUAugMixin
from nnunet_gpuaug.nnunet.options import TrainingOptions
from nnunet_gpuaug.nnunet.progress import SilentProgress
from nnunet_gpuaug.nnunet.trainer import wrapped_trainer
from nnunet_gpuaug.nnunet.unstarted import unstarted


class UsageError(AugmentationError):
    """The training that was asked for is not possible."""


@dataclass(frozen=True)
class Job:
    """A training as asked for on the command line; the names are `nnUNetv2_train`'s where it has them.

    Attributes:
        dataset: name or number of the dataset.
        configuration: e.g. "3d_fullres".
        fold: number of the fold, or "all".
        trainer: name of any trainer, with or without GPUAug at its end.
        plans: name of the plans.
        pretrained_weights: checkpoint to start from.
        num_gpus: number of GPUs.
        npz: keep the final validation's probabilities.
        c: continue from the latest checkpoint.
        val: only run the final validation.
        val_best: run the final validation with the best checkpoint.
        disable_checkpointing: write no checkpoints.
        device: "cuda", "cpu" or "mps".
        options: what this package adds.
    """

    dataset: str
    configuration: str
    fold: int | str
    trainer: str = "nnUNetTrainer"
    plans: str = "nnUNetPlans"
    pretrained_weights: str | None = None
    num_gpus: int = 1
    npz: bool = False
    c: bool = False
    val: bool = False
    val_best: bool = False
    disable_checkpointing: bool = False
    device: str = "cuda"
    options: TrainingOptions = field(default_factory=TrainingOptions)


def run(job: Job, make_progress: Callable[[], SilentProgress] = SilentProgress) -> None:
    """Check a job, then train and validate as asked.

    Args:
        job: the job.
        make_progress: makes what the training reports to; a picklable function.
    """
    check(job)
    if _started_as_rank():
        _run_rank(int(os.environ["RANK"]), job, make_progress)
    elif job.num_gpus > 1:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ.setdefault("MASTER_PORT", str(find_free_network_port()))
        torch.multiprocessing.spawn(_run_rank, args=(job, make_progress), nprocs=job.num_gpus, join=True)
    else:
        _train_and_validate(job, make_progress)


def check(job: Job) -> type:
    """Look for everything that a training needs, before anything slow starts; the wrapped trainer class is returned.

    Args:
        job: the job.
    """
    _check_options(job)
    _check_device(job)
    trainer_class = wrapped_trainer(job.trainer)
    for path in (nnUNet_preprocessed, nnUNet_results):
        if not path.is_set():
            raise UsageError(f"the environment variable {path.env_var_name} is not set")
    try:
        os.makedirs(nnUNet_results, exist_ok=True)
    except OSError as err:
        raise UsageError(f"nnUNet_results = {nnUNet_results} is not a folder that can be used: {err.strerror}") from err
    folder = _dataset_folder(job)
    plans_file = os.path.join(folder, f"{job.plans}.json")
    if not os.path.isfile(plans_file):
        found = sorted(f[:-5] for f in os.listdir(folder) if f.endswith("lans.json"))
        raise UsageError(
            f"-p {job.plans}: there is no {plans_file} (found: {', '.join(found) or 'none'}); "
            f"run nnUNetv2_plan_and_preprocess first"
        )
    manager = PlansManager(plans_file)
    if job.configuration not in manager.available_configurations:
        raise UsageError(
            f"configuration {job.configuration!r} is not in {job.plans}; "
            f"available: {', '.join(manager.available_configurations)}"
        )
    configuration = manager.get_configuration(job.configuration)
    data = os.path.join(folder, configuration.data_identifier)
    if not os.path.isdir(data) or not os.listdir(data):
        raise UsageError(
            f"{job.dataset} is not preprocessed for {job.configuration}: {data} is missing or empty; "
            f"run nnUNetv2_preprocess first"
        )
    ranks = int(os.environ["WORLD_SIZE"]) if _started_as_rank() else job.num_gpus
    if configuration.batch_size < ranks:
        raise UsageError(f"{ranks} GPUs (-num_gpus) are more than the batch size of {configuration.batch_size}")
    if job.options.transforms is not None:
        dataset_json = load_json(os.path.join(folder, "dataset.json"))
        with unstarted(job.trainer, manager.plans, dataset_json, job.configuration, job.fold) as trainer:
            trainer.gpuaug_configure(job.options)  # which looks at whether the pipeline fits
    return trainer_class


def _check_options(job: Job) -> None:
    if job.c and job.val:
        raise UsageError("--c and --val exclude each other")
    if job.c and job.pretrained_weights is not None:
        raise UsageError("--c and -pretrained_weights exclude each other")
    if job.val_best and job.disable_checkpointing:
        raise UsageError("--val_best and --disable_checkpointing exclude each other")
    if job.pretrained_weights is not None and not os.path.isfile(job.pretrained_weights):
        raise UsageError(f"-pretrained_weights: there is no file {job.pretrained_weights}")
    if job.fold != "all" and (not isinstance(job.fold, int) or job.fold < 0):
        raise UsageError(f"fold {job.fold!r} must be 'all' or a number from 0 on")


def _check_device(job: Job) -> None:
    if job.num_gpus < 1:
        raise UsageError(f"-num_gpus {job.num_gpus} must be at least 1")
    if job.num_gpus > 1 and job.device != "cuda":
        raise UsageError(f"-num_gpus {job.num_gpus} needs -device cuda, not {job.device}")
    if job.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"-device cuda: torch {torch.__version__} finds no CUDA device; -device cpu trains without")
    if job.device == "cuda" and job.num_gpus > torch.cuda.device_count():
        raise UsageError(f"-num_gpus {job.num_gpus}: only {torch.cuda.device_count()} CUDA devices are visible")
    if job.device == "mps" and not torch.backends.mps.is_available():
        raise UsageError("-device mps: torch finds no such device; -device cpu trains without")


def _dataset_folder(job: Job) -> str:
    try:
        name = maybe_convert_to_dataset_name(job.dataset)
    except (ValueError, RuntimeError) as err:
        raise UsageError(f"dataset {job.dataset!r}: {str(err).splitlines()[0]}") from err
    folder = os.path.join(nnUNet_preprocessed, name)
    if not os.path.isdir(folder):
        raise UsageError(f"dataset {job.dataset!r} is not preprocessed: there is no {folder}")
    for file in ("dataset.json", "dataset_fingerprint.json"):
        if not os.path.isfile(os.path.join(folder, file)):
            raise UsageError(f"dataset {job.dataset!r} is not fully preprocessed: there is no {file} in {folder}")
    return folder


def _started_as_rank() -> bool:
    # by torchrun or the like
    try:
        return int(os.environ.get("RANK", "-1")) >= 0 and int(os.environ.get("WORLD_SIZE", "1")) > 1
    except ValueError as err:
        raise UsageError(f"the environment variables RANK and WORLD_SIZE must be whole numbers: {err}") from err


def _run_rank(rank: int, job: Job, make_progress: Callable[[], SilentProgress]) -> None:
    if _started_as_rank():
        distributed.init_process_group("nccl")
    else:
        setup_ddp(rank, job.num_gpus)
    torch.cuda.set_device(distributed.get_rank())
    torch.set_num_threads(1)
    try:
        _train_and_validate(job, make_progress if rank == 0 else SilentProgress)
    finally:
        cleanup_ddp()


def _train_and_validate(job: Job, make_progress: Callable[[], SilentProgress]) -> None:
    trainer = build_trainer(job)
    trainer.gpuaug_configure(job.options, make_progress())
    trainer.disable_checkpointing = trainer.disable_checkpointing or job.disable_checkpointing
    best = os.path.join(trainer.output_folder, "checkpoint_best.pth")
    if job.val and job.val_best:
        # nnU-Net wants checkpoint_final.pth here as well, although it would not use it.
        if not os.path.isfile(best):
            raise UsageError(f"--val --val_best: there is no {best}")
        trainer.load_checkpoint(best)
    else:
        if job.val and not os.path.isfile(os.path.join(trainer.output_folder, "checkpoint_final.pth")):
            raise UsageError(f"--val: the training is not finished, there is no checkpoint_final.pth "
                             f"in {trainer.output_folder}")
        maybe_load_checkpoint(trainer, job.c, job.val, job.pretrained_weights)
    if torch.cuda.is_available():
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.benchmark = True
    if not job.val:
        trainer.run_training()
        if job.val_best:
            trainer.load_checkpoint(best)
    trainer.perform_actual_validation(job.npz)


def build_trainer(job: Job) -> GPUAugMixin:
    """Build the wrapped trainer of a job, as nnU-Net builds its own.

    Args:
        job: the job.
    """
    trainer_class = wrapped_trainer(job.trainer)
    folder = _dataset_folder(job)
    plans = load_json(os.path.join(folder, f"{job.plans}.json"))
    plans["continue_training"] = job.c
    return trainer_class(
        plans=plans,
        configuration=job.configuration,
        fold=job.fold,
        dataset_json=load_json(os.path.join(folder, "dataset.json")),
        device=torch.device(job.device),
    )
