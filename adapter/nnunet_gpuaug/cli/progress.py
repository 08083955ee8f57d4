"""What a training shows while it runs."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nnunet_gpuaug.nnunet.progress import SilentProgress

SMOOTHING = 0.1


class BarProgress(SilentProgress):
    """A bar for the running epoch: loss, iterations per second, loader wait, augmentation time.

    Args:
        console: where to draw; by default the terminal.
    """

    def __init__(self, console: Console | None = None):
        self._console = console or Console()
        self._bar = None
        self._task = None
        self._means: dict[str, float] = {}
        self._head = ""

    def start_epoch(self, epoch: int, epochs: int, iterations: int) -> None:
        """Draw an empty bar."""
        self._means = {}
        self._head = f"epoch {epoch + 1}/{epochs}"
        self._start(self._head, iterations)

    def step(self, loss: float | None, wait_ms: float, augment_ms: float) -> None:
        """Move the bar on and show smoothed values."""
        for name, value in (("loss", loss), ("wait", wait_ms), ("augment", augment_ms)):
            value = float("nan") if value is None else value
            self._means[name] = value + (1 - SMOOTHING) * (self._means.get(name, value) - value)
        means = self._means
        self._advance(f"loss {means['loss']:.3f} wait {means['wait']:.0f} ms augment {means['augment']:.0f} ms")

    def start_validation(self, iterations: int) -> None:
        """Draw an empty bar for the validation."""
        self._start("validation".rjust(len(self._head)), iterations)

    def validation_step(self) -> None:
        """Move the validation's bar on."""
        self._advance("")

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _start(self, description: str, total: int) -> None:
        self.close()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),  # all of it fits into 80 columns
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[values]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,  # the epoch's log lines say what stays
        )
        self._task = self._bar.add_task(description, total=total, values="", rate="")
        self._bar.start()

    def _advance(self, values: str) -> None:
        if self._bar is None:
            return
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, advance=1, values=values, rate=f"{speed:.1f} it/s" if speed else "")


def make_progress() -> SilentProgress:
    """A bar if the output is a terminal; else nothing, because the training's log lines say it all."""
    return BarProgress() if sys.stdout.isatty() else SilentProgress()
