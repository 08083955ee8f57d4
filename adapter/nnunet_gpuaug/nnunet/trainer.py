"""Wrapped trainer classes: any nnU-Net trainer, with its augmentation on the device."""

from nnunet_gpuaug import AugmentationError
from nnunet_gpuaug.nnunet.find import SUFFIX, find_trainer, trainer_files
from nnunet_gpuaug.nnunet.mixin import GPUAugMixin

_wrapped: dict[str, type] = {}


def wrap(trainer_class: type) -> type:
    """The trainer class with its augmentation on the device, named after it: nnUNetTrainer gives nnUNetTrainerGPUAug.

    Args:
        trainer_class: any nnU-Net trainer class; one that is wrapped already is returned as it is.
    """
    if issubclass(trainer_class, GPUAugMixin):
        return trainer_class
    name = trainer_class.__name__ + SUFFIX
    known = _wrapped.get(name)
    if known is None or known.gpuaug_wrapped() is not trainer_class:
        doc = f"{trainer_class.__name__} with its augmentation on the training device."
        # The module is this one, whose `__getattr__` finds the class again by its name: so it can be pickled.
        _wrapped[name] = type(name, (GPUAugMixin, trainer_class), {"__module__": __name__, "__doc__": doc})
    return _wrapped[name]


def wrapped_trainer(name: str) -> type:
    """The wrapped class for a trainer's name, with or without the suffix.

    Args:
        name: e.g. "nnUNetTrainer", "nnUNetTrainerGPUAug", or a trainer in a folder of `nnUNet_extTrainer`.
    """
    if name not in trainer_files():  # else it is a class that a user derived from a wrapped one
        name = name.removesuffix(SUFFIX) or name
    return wrap(find_trainer(name))


def __getattr__(name: str) -> type:
    if name.startswith("_") or not name.endswith(SUFFIX) or name == SUFFIX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _wrapped:
        return _wrapped[name]
    try:
        return wrapped_trainer(name)
    except AugmentationError as err:
        raise AttributeError(str(err)) from err
