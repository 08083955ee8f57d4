"""The transforms, under nnU-Net's names without `Transform`."""

from .cascade import ApplyRandomBinaryOperator, RemoveRandomConnectedComponent
from .choice import OneOf
from .filters import GaussianBlur, MedianFilter, Sharpening, SimulateLowResolution
from .folding import Convert2DTo3D, Convert3DTo2D
from .intensity import (
    BrightnessAdditive,
    Contrast,
    CutOffOutliers,
    Gamma,
    GaussianNoise,
    InvertImage,
    MultiplicativeBrightness,
    RicianNoise,
)
from .labels import ConvertSegmentationToRegions, DownsampleSegForDS, MaskImage, MoveSegAsOneHot, RemoveLabel
from .local import BlankRectangle, BrightnessGradientAdditive, LocalContrast, LocalGamma, LocalSmoothing
from .spatial import Mirror, Rot90, Spatial, TransposeAxes

__all__ = [
    "ApplyRandomBinaryOperator",
    "BlankRectangle",
    "BrightnessAdditive",
    "BrightnessGradientAdditive",
    "Contrast",
    "Convert2DTo3D",
    "Convert3DTo2D",
    "ConvertSegmentationToRegions",
    "CutOffOutliers",
    "DownsampleSegForDS",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "InvertImage",
    "LocalContrast",
    "LocalGamma",
    "LocalSmoothing",
    "MaskImage",
    "MedianFilter",
    "Mirror",
    "MoveSegAsOneHot",
    "MultiplicativeBrightness",
    "OneOf",
    "RemoveLabel",
    "RemoveRandomConnectedComponent",
    "RicianNoise",
    "Rot90",
    "Sharpening",
    "SimulateLowResolution",
    "Spatial",
    "TransposeAxes",
]
