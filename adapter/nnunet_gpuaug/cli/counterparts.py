"""For each transform: nnU-Net's class, the nearest one of Kornia and MONAI, and why it is or is not used."""

from typing import NamedTuple

from nnunet_gpuaug.transforms.base import Transform


class Counterpart(NamedTuple):
    """Where a transform comes from.

    Attributes:
        nnunet: the class in batchgeneratorsv2.
        kornia, monai: the nearest class, or "" if there is none.
        used: "library: …" names what is called, "custom: …" says why nothing is.
    """

    nnunet: str
    kornia: str
    monai: str
    used: str

    def __str__(self) -> str:
        libraries = [f"{name} {of}" for name, of in (("Kornia", self.kornia), ("MONAI", self.monai)) if of]
        return f"{self.nnunet} | {', '.join(libraries) or 'no counterpart'} | {self.used}"


COUNTERPARTS: dict[str, Counterpart] = {
    name: Counterpart(*row)
    for name, *row in (
        # spatial
        ("Spatial", "SpatialTransform", "RandomAffine3D", "RandAffine",
         "custom: they rotate otherwise, labels are nearest"),
        ("Mirror", "MirrorTransform", "RandomHorizontalFlip3D", "RandFlip", "custom: Kornia's 3D flips reject masks"),
        ("Rot90", "Rot90Transform", "", "RandRotate90", "custom: MONAI's has one plane, and one draw for a batch"),
        ("TransposeAxes", "TransposeAxesTransform", "", "Transpose", "custom: MONAI's draws nothing"),
        ("Convert3DTo2D", "Convert3DTo2DTransform", "", "", "custom: a view"),
        ("Convert2DTo3D", "Convert2DTo3DTransform", "", "", "custom: a view"),
        # intensity
        ("GaussianNoise", "GaussianNoiseTransform", "RandomGaussianNoise", "RandGaussianNoise",
         "custom: 2D; drawn on the CPU"),
        ("RicianNoise", "RicianNoiseTransform", "", "RandRicianNoise", "custom: MONAI's does not shift or rescale"),
        ("MultiplicativeBrightness", "MultiplicativeBrightnessTransform", "RandomBrightness", "RandScaleIntensity",
         "custom: other factors"),
        ("BrightnessAdditive", "BrightnessAdditiveTransform", "RandomBrightness", "RandShiftIntensity",
         "custom: theirs is uniform"),
        ("Contrast", "ContrastTransform", "RandomContrast", "RandScaleIntensityFixedMean",
         "custom: Kornia's clamps"),
        ("Gamma", "GammaTransform", "RandomGamma", "RandAdjustContrast", "custom: per channel, retain_stats"),
        ("InvertImage", "InvertImageTransform", "RandomInvert", "", "custom: Kornia's is maximum minus x"),
        ("CutOffOutliers", "CutOffOutliersTransform", "", "ClipIntensityPercentiles",
         "custom: MONAI's draws nothing"),
        # filters
        ("GaussianBlur", "GaussianBlurTransform", "RandomGaussianBlur", "RandGaussianSmooth",
         "library: get_gaussian_kernel1d"),
        ("SimulateLowResolution", "SimulateLowResolutionTransform", "", "RandSimulateLowResolution",
         "library: torch interpolate"),
        ("MedianFilter", "MedianFilterTransform", "RandomMedianBlur", "MedianSmooth",
         "custom: one is 2D, one odd sizes only"),
        ("Sharpening", "SharpeningTransform", "RandomSharpness", "RandGaussianSharpen", "custom: other operations"),
        # local
        ("BlankRectangle", "BlankRectangleTransform", "RandomErasing", "RandCoarseDropout",
         "custom: per channel, mean as value"),
        ("BrightnessGradientAdditive", "BrightnessGradientAdditiveTransform", "", "RandBiasField",
         "custom: MONAI's multiplies"),
        ("LocalGamma", "LocalGammaTransform", "", "", "custom"),
        ("LocalContrast", "LocalContrastTransform", "", "RandSmoothFieldAdjustContrast", "custom: other field"),
        ("LocalSmoothing", "LocalSmoothingTransform", "", "", "custom"),
        ("OneOf", "OneOfTransform", "AugmentationSequential", "OneOf", "custom: theirs choose once for a batch"),
        # labels
        ("MaskImage", "MaskImageTransform", "", "MaskIntensity", "custom: MONAI's masks all channels"),
        ("RemoveLabel", "RemoveLabelTransform", "", "MapLabelValue", "custom: MONAI's goes through NumPy"),
        ("ConvertSegmentationToRegions", "ConvertSegmentationToRegionsTransform", "", "LabelToMask",
         "custom: MONAI's makes one region"),
        ("DownsampleSegForDS", "DownsampleSegForDSTransform", "", "Resize",
         "library: torch interpolate, nearest-exact"),
        # cascade
        ("MoveSegAsOneHot", "MoveSegAsOneHotToDataTransform", "", "AsDiscrete",
         "custom: needs image and segmentation"),
        ("ApplyRandomBinaryOperator", "ApplyRandomBinaryOperatorTransform", "", "",
         "custom: Kornia's morphology is 2D"),
        ("RemoveRandomConnectedComponent", "RemoveRandomConnectedComponentFromOneHotEncodingTransform", "", "",
         "library: scikit-image label"),
    )
}


def comment(transform: Transform) -> str:
    """The line for a transform."""
    return str(COUNTERPARTS[type(transform).__name__])
