"""nnU-Net's training augmentation on batched device tensors."""

from .batch import Batch
from .config import Settings
from .errors import AugmentationError, ConfigError, UnmappedTransformError
from .pipeline import Draw, Pipeline
from .transforms import *  # noqa: F403
from .transforms import __all__ as _transforms

__version__ = "0.1.0"
__all__ = [
    "AugmentationError",
    "Batch",
    "ConfigError",
    "Draw",
    "Pipeline",
    "Settings",
    "UnmappedTransformError",
    *_transforms,
]
