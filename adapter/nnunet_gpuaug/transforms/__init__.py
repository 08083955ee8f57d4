"""The transforms, under nnU-Net's names without `Transform`."""

from .cascade import ApplyRandomBinaryOperator, RemoveRandomConnectedComponent
from .filters import GaussianBlur, SimulateLowResolution
from .intensity import Contrast, Gamma, GaussianNoise, MultiplicativeBrightness
from .labels import ConvertSegmentationToRegions, DownsampleSegForDS, MaskImage, MoveSegAsOneHot, RemoveLabel
from .spatial import Convert2DTo3D, Convert3DTo2D, Mirror, Spatial

__all__ = [
    "ApplyRandomBinaryOperator",
    "Contrast",
    "Convert2DTo3D",
    "Convert3DTo2D",
    "ConvertSegmentationToRegions",
    "DownsampleSegForDS",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "MaskImage",
    "Mirror",
    "MoveSegAsOneHot",
    "MultiplicativeBrightness",
    "RemoveLabel",
    "RemoveRandomConnectedComponent",
    "SimulateLowResolution",
    "Spatial",
]
