"""The file that nnU-Net finds: point `nnUNet_extTrainer` at this folder, and `-tr nnUNetTrainerGPUAug` works.

Every other trainer is here too, under its name with GPUAug appended: `-tr nnUNetTrainerDA5GPUAug`. They are made when
asked for, so nothing is listed below.
"""

from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug.nnunet import trainer as _trainer

nnUNetTrainerGPUAug = _trainer.wrap(nnUNetTrainer)


def __getattr__(name: str) -> type:
    if not name.endswith("GPUAug"):
        raise AttributeError(name)
    return getattr(_trainer, name)
