"""Where a training reports to while it runs."""


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
