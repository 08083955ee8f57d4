"""Finding a trainer class by name, with errors that help."""

import difflib
import os
import re

import nnunetv2
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

from nnunet_gpuaug import AugmentationError

SUFFIX = "GPUAug"
_CLASS = re.compile(r"^class\s+(\w+)\s*\(", re.MULTILINE)


class TrainerNotFoundError(AugmentationError):
    """No trainer class of that name, or one that cannot be imported."""


def find_trainer(name: str) -> type:
    """Find a trainer class as nnU-Net does: among the shipped ones, then in `nnUNet_extTrainer`.

    Args:
        name: name of the class.
    """
    used, *ignored = trainer_files().get(name, [""])
    if ignored:
        print(f"NOTE: trainer {name} is taken from {used}; nnU-Net ignores {', '.join(ignored)}")
    try:
        return recursive_find_trainer_class_by_name(name)
    except (RuntimeError, AssertionError) as err:
        if name in trainer_files():
            raise TrainerNotFoundError(f"trainer {name!r}: {err}") from err
        close = difflib.get_close_matches(name, trainer_files(), n=4)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise TrainerNotFoundError(
            f"trainer {name!r} was not found in nnunetv2 nor in nnUNet_extTrainer "
            f"({os.environ.get('nnUNet_extTrainer') or 'not set'}).{hint}"
        ) from err
    except ImportError as err:
        # nnU-Net imports every file on its way, so a sibling of the wanted trainer can be the one that fails.
        raise TrainerNotFoundError(
            f"trainer {name!r}: nnU-Net imports every file beside it, and one failed: {err}"
        ) from err


def trainer_files() -> dict[str, list[str]]:
    """The classes in the files that nnU-Net searches, each with its files in order of search; nothing is imported."""
    folders = [os.path.join(nnunetv2.__path__[0], "training", "nnUNetTrainer")]
    folders += [p for p in os.environ.get("nnUNet_extTrainer", "").split(os.pathsep) if p.strip()]
    found: dict[str, list[str]] = {}
    for folder in folders:
        for where, _, files in os.walk(folder):
            for file in sorted(f for f in files if f.endswith(".py")):
                path = os.path.join(where, file)
                with open(path, encoding="utf-8", errors="replace") as text:
                    for name in _CLASS.findall(text.read()):
                        found.setdefault(name, []).append(path)
    return found
