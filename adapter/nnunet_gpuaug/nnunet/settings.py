"""What a user can choose about a training, and where the training reports to."""

from dataclasses import dataclass

from nnunet_gpuaug import AugmentationError
from nnunet_gpuaug.nnunet.loading import ON_UNMAPPED
from nnunet_gpuaug.nnunet.seeds import MAX_SEED


@dataclass(frozen=True)
class Settings:
    """What a user can choose about a training beyond nnU-Net's own options.

    Attributes:
        seed: base seed of the draws; None takes one from entropy.
        prefetch: on CUDA, augment the next batch while the network trains on the current one.
        epochs: number of epochs; None leaves the trainer's.
        iterations: training iterations per epoch; None leaves the trainer's. Validation iterations scale along.
        on_unmapped: "error", or "host" to leave a transform without a counterpart, and all before it, to the workers.
    """

    seed: int | None = None
    prefetch: bool = True
    epochs: int | None = None
    iterations: int | None = None
    on_unmapped: str = "error"

    def __post_init__(self):
        for name in ("epochs", "iterations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise AugmentationError(f"{name}={value} must be at least 1")
        if self.seed is not None and not 0 <= self.seed <= MAX_SEED:
            raise AugmentationError(f"seed={self.seed} must be between 0 and {MAX_SEED}")
        if self.on_unmapped not in ON_UNMAPPED:
            raise AugmentationError(f"on_unmapped={self.on_unmapped!r} is not one of {', '.join(ON_UNMAPPED)}")


class SilentProgress:
    """What a training reports while it runs. This one shows nothing; the command line has one with a bar."""

    def start_epoch(self, epoch: int, epochs: int, iterations: int) -> None:
        """An epoch begins."""

    def step(self, loss: float | None, wait_ms: float, augment_ms: float) -> None:
        """A training iteration is done."""

    def start_validation(self, iterations: int) -> None:
        """The epoch's validation iterations begin."""

    def validation_step(self) -> None:
        """A validation iteration is done."""

    def close(self) -> None:
        """The training is over."""
