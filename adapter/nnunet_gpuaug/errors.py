"""The errors a user can meet. All are `ValueError`s whose text names the field, the value and what is allowed."""

from collections.abc import Sequence


class AugmentationError(ValueError):
    """Input, configuration or draw that the augmentation cannot use."""


class ConfigError(AugmentationError):
    """A configuration file that cannot be used.

    Attributes:
        problems: all that is wrong with it, one line each.
    """

    _SHOWN = 50

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        more = len(self.problems) - self._SHOWN
        return "\n".join([*self.problems[: self._SHOWN], *([f"… and {more} more"] if more > 0 else [])])


class UnmappedTransformError(AugmentationError):
    """An nnU-Net transform, or an option of one, that has no counterpart here."""
