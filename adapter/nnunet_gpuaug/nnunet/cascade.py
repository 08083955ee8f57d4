"""Where a cascade finds the predictions that it builds on."""

import os

from nnunet_gpuaug import AugmentationError


def previous_stage(own: str, ours: str, stock: str, stage: str) -> str:
    """The folder with the previous stage's predictions: the wrapped class's own, else the stock trainer's.

    Args:
        own: where nnU-Net expects it.
        ours, stock: names of the wrapped class and of the trainer that it wraps.
        stage: name of the previous stage, for the error.

    Raises:
        AugmentationError: neither folder exists.
    """
    if os.path.isdir(own):
        return own
    other = own.replace(f"{ours}__", f"{stock}__")
    if not os.path.isdir(other):
        raise AugmentationError(
            f"the cascade needs the predictions of the previous stage, in {own} or {other}: "
            f"train {stage} first, all folds"
        )
    return other
