"""Checkpoints that stock nnU-Net can open, written so that a failure leaves the previous one intact."""

import json
import os
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import torch

from nnunet_gpuaug import __version__
from nnunet_gpuaug.config import write_text

KEY = "nnunet_gpuaug"
PACKAGES = ("nnunetv2", "batchgeneratorsv2", "kornia", "monai", "torch")


class CheckpointError(OSError):
    """A checkpoint could not be written."""


def versions() -> dict[str, str]:
    """Versions of the packages that decide what a training does."""
    found = {"nnunet-gpuaug": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@contextmanager
def amended_checkpoint(trainer_name: str, extra: dict):
    """Within this block `torch.save` of an nnU-Net checkpoint stores our trainer name and our key, atomically.

    nnU-Net builds the dictionary and writes it in one method. Standing between that method and the file is the only
    way to add to it and keep a custom trainer's own `save_checkpoint` alive, without writing the file twice.

    Args:
        trainer_name: the trainer that a machine without this package can find.
        extra: what is stored under the key "nnunet_gpuaug"; plain types only.
    """
    save = torch.save

    def save_amended(obj, f, *args, **kwargs):
        if isinstance(obj, dict) and "network_weights" in obj:
            obj = {**obj, "trainer_name": trainer_name, KEY: extra}
        if not isinstance(f, (str, os.PathLike)):
            return save(obj, f, *args, **kwargs)
        return write_atomically(os.fspath(f), lambda file: save(obj, file, *args, **kwargs))

    torch.save = save_amended
    try:
        yield
    finally:
        torch.save = save


def write_atomically(path: str, write) -> None:
    """Write a file so that at any moment either the old or the complete new one is there.

    Args:
        path: the file to write.
        write: called with a binary file open for writing.
    """
    # In the same folder, because a rename is atomic only within one file system. The name is always the same, so
    # that what a kill leaves behind is overwritten by the next save.
    temporary = path + ".part"
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as err:  # torch reports a full disk as a RuntimeError
        if os.path.exists(temporary):
            os.remove(temporary)
        kept = "the previous one is untouched" if os.path.exists(path) else "there was none before"
        reason = err.strerror if isinstance(err, OSError) and err.strerror else err
        raise CheckpointError(f"could not write checkpoint {path}: {reason} ({kept})") from err


def write_provenance(folder: str, provenance: dict) -> None:
    """Write what made a training's batches into its results folder.

    Args:
        folder: the results folder.
        provenance: what checkpoints hold under our key. Its "config" is also written as `nnunet_gpuaug.yaml`, which
            trains the same again; without one there is no such file.
    """
    write_text(Path(folder, f"{KEY}.json"), json.dumps(provenance, indent=2))
    config = Path(folder, f"{KEY}.yaml")
    if provenance["config"] is None:
        config.unlink(missing_ok=True)
    else:
        write_text(config, provenance["config"])


def read_extra(path: str) -> dict | None:
    """What a checkpoint holds under our key; None if it was not written by this package."""
    # mmap leaves the weights on the disk
    return torch.load(path, map_location="cpu", weights_only=False, mmap=True).get(KEY)
