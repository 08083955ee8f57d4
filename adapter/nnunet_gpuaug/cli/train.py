"""`nnunet_gpuaug_train`: `nnUNetv2_train` with the augmentation on the training device."""

import argparse
import multiprocessing
import sys

PROG = "nnunet_gpuaug_train"


def build_parser() -> argparse.ArgumentParser:
    """The options: all of `nnUNetv2_train`, with the same names and meaning, and a few of our own."""
    parser = argparse.ArgumentParser(
        prog=PROG, description="Train nnU-Net with its own augmentation, run in batches on the training device."
    )
    add = parser.add_argument
    add("dataset_name_or_id", help="name or number of the dataset")
    add("configuration", help="configuration to train, e.g. 3d_fullres")
    add("fold", help="fold of the cross-validation: a number, or 'all'")
    add("-tr", default="nnUNetTrainer", help="any trainer, shipped or from nnUNet_extTrainer (default: %(default)s)")
    add("-p", default="nnUNetPlans", help="plans to use (default: %(default)s)")
    add("-pretrained_weights", metavar="FILE", help="nnU-Net checkpoint to start from")
    add("-num_gpus", type=int, default=1, help="number of GPUs (default: %(default)s)")
    add("--npz", action="store_true", help="save the probabilities of the final validation")
    add("--c", action="store_true", help="continue from the latest checkpoint")
    add("--val", action="store_true", help="only run the final validation; needs a finished training")
    add("--val_best", action="store_true", help="run the final validation with checkpoint_best; with --val it is "
        "the only checkpoint needed. The results go to the usual 'validation' folder")
    add("--disable_checkpointing", action="store_true", help="write no checkpoints")
    add("-device", default="cuda", choices=("cuda", "cpu", "mps"), help="where to train (default: %(default)s). "
        "Choose a GPU with CUDA_VISIBLE_DEVICES, not here")
    own = parser.add_argument_group("options that nnUNetv2_train does not have").add_argument
    own("--config", metavar="FILE", help="train with the pipeline and settings of this YAML file (`nnunet_gpuaug show` "
        "makes one) instead of the trainer's own; options given here win over its settings")
    own("--seed", type=int, help="seed of the augmentation's draws (default: a new one each time; it is logged)")
    own("--no-prefetch", dest="prefetch", action="store_const", const=False,
        help="do not augment the next batch ahead of time")
    own("--epochs", type=int, metavar="N", help="number of epochs (default: the trainer's)")
    own("--iterations", type=int, metavar="N", help="training iterations per epoch; validation iterations follow "
        "in proportion (default: the trainer's)")
    own("--on-unmapped", choices=("error", "host"), help="a transform that cannot run on the device: stop, or leave it "
        "and all before it to the workers (default: error)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit code is 0, 2 for anything the user can mend, 1 for a training that broke.

    Args:
        argv: the arguments; by default those of the process.
    """
    args = build_parser().parse_args(argv)
    # nnU-Net takes seconds to import, so not before the arguments are known to be right.
    from nnunet_gpuaug import AugmentationError
    from nnunet_gpuaug.cli.progress import make_progress
    from nnunet_gpuaug.nnunet.checkpoint import CheckpointError
    from nnunet_gpuaug.nnunet.options import read_options
    from nnunet_gpuaug.nnunet.run import Job, run

    _set_threads(args.device)
    try:
        options = read_options(
            args.config,
            args.epochs,
            args.iterations,
            seed=args.seed,
            prefetch=args.prefetch,
            on_unmapped=args.on_unmapped,
        )
        job = Job(
            dataset=args.dataset_name_or_id,
            configuration=args.configuration,
            fold=int(args.fold) if args.fold.isdecimal() else args.fold,
            trainer=args.tr,
            plans=args.p,
            pretrained_weights=args.pretrained_weights,
            num_gpus=args.num_gpus,
            npz=args.npz,
            c=args.c,
            val=args.val,
            val_best=args.val_best,
            disable_checkpointing=args.disable_checkpointing,
            device=args.device,
            options=options,
        )
        run(job, make_progress)
    except (AugmentationError, CheckpointError) as err:
        print(f"{PROG}: error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted", file=sys.stderr)
        return 130
    return 0


def _set_threads(device: str) -> None:
    # As in nnUNetv2_train.
    import torch

    if device == "cpu":
        torch.set_num_threads(multiprocessing.cpu_count())
    elif device == "cuda":
        torch.set_num_threads(1)
        if torch.get_num_interop_threads() != 1:  # torch allows this once in a process
            torch.set_num_interop_threads(1)


if __name__ == "__main__":
    sys.exit(main())
