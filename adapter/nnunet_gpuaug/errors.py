"""The errors a user can meet. All are `ValueError`s whose text names the field, the value and what is allowed."""


class AugmentationError(ValueError):
    """Input, configuration or draw that the augmentation cannot use."""


class UnmappedTransformError(AugmentationError):
    """An nnU-Net transform, or an option of one, that has no counterpart here."""
