"""`nnunet_gpuaug show`: the pipeline that a trainer trains with, as a configuration file."""

import argparse
import difflib
import json
import os
import sys

from nnunet_gpuaug import AugmentationError, Pipeline
from nnunet_gpuaug.cli.counterparts import comment
from nnunet_gpuaug.config import write_config, write_text

HEAD = """\
# The training augmentation of {trainer}, {configuration}.
# Above each step: nnU-Net's class | the nearest ones of Kornia and MONAI | which is used, or why none is.
# Lengths are in voxels, angles in radians. p is the probability per sample; [low, high] is uniform between the two,
# {{split: [low, high]}} is below 1 in half of the draws.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "show",
        help="print the augmentation of a trainer as a configuration file",
        description="Print the training augmentation of a trainer as YAML that can be changed and used. "
        "Nothing is trained, and nothing is written but FILE.",
        usage="%(prog)s [-h] [DATASET] CONFIGURATION [-tr NAME] [-p PLANS] [--fold N] [-o FILE]\n"
        "       %(prog)s --plans plans.json --dataset-json dataset.json CONFIGURATION [-tr NAME] [--fold N] [-o FILE]",
    )
    add = parser.add_argument
    add("dataset", nargs="?", metavar="DATASET", help="name or number; left out with --plans and --dataset-json")
    add("configuration", metavar="CONFIGURATION", help="e.g. 3d_fullres")
    add("-tr", default="nnUNetTrainer", metavar="NAME", help="the trainer (default: %(default)s)")
    add("-p", default="nnUNetPlans", metavar="PLANS", help="name of the plans (default: %(default)s)")
    add("--fold", default="0", metavar="N", help="number, or 'all', of the fold (default: %(default)s)")
    add("--plans", metavar="FILE", help="a plans file, instead of DATASET")
    add("--dataset-json", metavar="FILE", help="the dataset.json that belongs to it")
    add("-o", dest="output", metavar="FILE", help="write to a file instead")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print or write the configuration."""
    plans_file, dataset_file = _files(args)
    plans, dataset_json = _read_json(plans_file), _read_json(dataset_file)
    _check_configuration(plans, plans_file, args.configuration)
    # nnU-Net takes seconds to import, so not before the arguments are known to be right.
    from nnunet_gpuaug.nnunet.unstarted import pipeline_of

    fold = int(args.fold) if args.fold.isdecimal() else args.fold
    pipeline = pipeline_of(args.tr, plans, dataset_json, args.configuration, fold)
    text = describe(pipeline, args.tr, args.configuration)
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_text(args.output, text)


def describe(pipeline: Pipeline, trainer: str, configuration: str) -> str:
    """A pipeline as a configuration file, each step with a comment on where it comes from.

    Args:
        pipeline: what the trainer trains with.
        trainer, configuration: names for the comment at the top.
    """
    return HEAD.format(trainer=trainer, configuration=configuration) + write_config(
        pipeline.transforms, pipeline.settings, comment
    )


def _files(args: argparse.Namespace) -> tuple[str, str]:
    """Plans file and dataset.json that the arguments name."""
    if args.plans is not None or args.dataset_json is not None:
        if args.plans is None or args.dataset_json is None or args.dataset is not None:
            raise AugmentationError("give either DATASET or both --plans and --dataset-json")
        return args.plans, args.dataset_json
    if args.dataset is None:
        raise AugmentationError(f"DATASET is missing before {args.configuration}; or give --plans and --dataset-json")
    folder = _dataset_folder(args.dataset)
    plans_file = os.path.join(folder, f"{args.p}.json")
    if not os.path.isfile(plans_file):
        found = sorted(name[:-5] for name in os.listdir(folder) if name.endswith("lans.json"))
        raise AugmentationError(f"-p {args.p}: there is no {plans_file}{_others(args.p, found)}")
    return plans_file, os.path.join(folder, "dataset.json")


def _dataset_folder(dataset: str) -> str:
    root = os.environ.get("nnUNet_preprocessed")
    if root is None:
        raise AugmentationError("nnUNet_preprocessed is not set in the environment; or give --plans and --dataset-json")
    names = sorted(n for n in os.listdir(root) if n.startswith("Dataset") and os.path.isdir(os.path.join(root, n)))
    number = f"Dataset{int(dataset):03d}_" if dataset.isdecimal() else None
    found = [n for n in names if (n == dataset if number is None else n.startswith(number))]
    if len(found) > 1:
        raise AugmentationError(f"dataset {dataset} is not unique in {root}: {', '.join(found)}")
    if not found:
        raise AugmentationError(f"dataset {dataset!r} is not in {root}{_others(dataset, names)}")
    return os.path.join(root, found[0])


def _read_json(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as err:
        raise AugmentationError(f"{path}: {err.strerror}") from err
    except (ValueError, RecursionError) as err:
        raise AugmentationError(f"{path} is not JSON: {err}") from err
    if not isinstance(content, dict):
        raise AugmentationError(f"{path} holds a {type(content).__name__}; it must be a JSON object")
    return content


def _check_configuration(plans: dict, plans_file: str, configuration: str) -> None:
    configurations = plans.get("configurations")
    if not isinstance(configurations, dict):
        raise AugmentationError(f"{plans_file} is not a plans file: it has no configurations")
    if configuration not in configurations:
        raise AugmentationError(
            f"configuration {configuration!r} is not in {plans_file}{_others(configuration, list(configurations))}"
        )


def _others(wanted: str, names: list[str]) -> str:
    """The end of an error about a name that is not among `names`."""
    close = difflib.get_close_matches(wanted, names, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f" (found: {', '.join(names[:10]) or 'none'}{', …' if len(names) > 10 else ''}){hint}"
