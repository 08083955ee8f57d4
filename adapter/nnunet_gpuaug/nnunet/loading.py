"""What stays in nnU-Net's workers, and how a transform list is divided between them and the device."""

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.pseudo2d import Convert2DTo3DTransform, Convert3DTo2DTransform

from nnunet_gpuaug import AugmentationError, Pipeline, Settings
from nnunet_gpuaug.nnunet.mapping import map_transforms


class HostTransforms(ComposeTransforms):
    """The transform list handed to nnU-Net's loaders: usually empty, because the device does the work.

    In a worker process its first call also mends two things that forked workers get wrong: they would all draw the
    same torch random numbers, and they would outlive a trainer that was killed.

    Args:
        transforms: what is left to the host.
        listing: text that describes the device's part; shown wherever nnU-Net prints its loaders' transforms.
    """

    def __init__(self, transforms: list, listing: str):
        super().__init__(list(transforms))
        self.listing = listing
        self.home_pid = os.getpid()

    def apply(self, data_dict: dict, **params) -> dict:
        """Apply the transforms left to the host (usually none) to one sample."""
        if os.getpid() != self.home_pid:
            _settle_in_worker(self.home_pid)
            self.home_pid = os.getpid()
        return super().apply(data_dict, **params)

    def __repr__(self) -> str:
        host = "\n".join(f"  {t}" for t in self.transforms) or "  (nothing)"
        return f"In the workers:\n{host}\nOn the device:\n{self.listing}"


@contextmanager
def safe_to_fork() -> Iterator[None]:
    """Within this block forked workers never collect what was there before.

    What an earlier training in this process left behind can hold CUDA events, and destroying one in a forked process
    ends it.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _settle_in_worker(parent_pid: int) -> None:
    # nnU-Net seeds NumPy in each worker, but torch only when a seed is given, so take torch's seed from NumPy.
    # The CPU generator alone, so that no worker touches CUDA.
    torch.default_generator.manual_seed(int(np.random.randint(2**31 - 1)))
    if os.getppid() == parent_pid:
        threading.Thread(target=_end_with_parent, args=(parent_pid,), daemon=True).start()


def _end_with_parent(parent_pid: int, every_s: float = 1.0) -> None:
    # A killed trainer cannot tell its workers to stop: they would wait on a full queue for ever.
    while os.getppid() == parent_pid:
        time.sleep(every_s)
    os._exit(1)


def divide(compose, settings: Settings) -> tuple[list, Pipeline | None]:
    """Divide a trainer's transforms into what the workers keep and what the device runs.

    Args:
        compose: what the trainer's `get_training_transforms` or `get_validation_transforms` returned.
        settings: the pipeline's. With `on_unmapped` "host" a transform without a counterpart, and all before it, stay
            in the workers, else it is an error.

    Returns:
        The transforms for the workers, and the pipeline (None if nothing is left for the device).
    """
    try:
        return [], Pipeline(map_transforms(compose), settings=settings)
    except AugmentationError:
        if settings.on_unmapped == "error":
            raise
    transforms = list(compose.transforms) if isinstance(compose, ComposeTransforms) else [compose]
    # The longest tail that the device can run, and not from within a 3D-as-2D section: what the way back to 3D needs
    # to know is lost between worker and device.
    depth = 0
    for first, before in enumerate(transforms[:-1], start=1):
        depth += isinstance(before, Convert3DTo2DTransform) - isinstance(before, Convert2DTo3DTransform)
        if depth:
            continue
        try:
            device = map_transforms(ComposeTransforms(transforms[first:]))
            return transforms[:first], Pipeline(device, settings=settings)
        except AugmentationError:
            continue
    return transforms, None
