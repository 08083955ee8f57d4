"""Run the demo's commands one after the other: output to a log file, progress and the telling lines to the terminal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class StepError(RuntimeError):
    """A step of the demo failed; the message says which, and where its output is."""


def command_path(name: str) -> str:
    """The console script `name` of this environment."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise StepError(f"the command {name} is not installed in this environment")
    return found


def _terminal_line(raw: str) -> str:
    """A line of nnU-Net's output without the time stamp before it and the type around its numbers."""
    line = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ", "", raw.rstrip())
    return re.sub(r"np\.float32\(([^)]*)\)", r"\1", line)


@dataclass
class Steps:
    """The demo's steps: a bar for all of them, a log file and a time for each."""

    console: Console
    log_folder: Path
    environment: dict[str, str]
    total: int
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[line]}[/dim]"),
        )
        self._progress = Progress(*columns, console=self.console, transient=True)
        self._task = self._progress.add_task("demo", total=self.total, line="")

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, title: str):
        """Announce a step, and when the block is through, tell and note its time."""
        number = len(self.seconds) + 1
        self.console.print(f"[bold cyan]\\[{number}/{self.total}][/bold cyan] {escape(title)}")
        start = time.monotonic()
        yield
        self.seconds[title] = time.monotonic() - start
        self.console.print(f"      [green]done[/green] in {self.seconds[title]:.0f} s")
        self._progress.update(self._task, advance=1, line="")

    def run(self, title: str, command: list[str], show: str | None = None) -> None:
        """Run a command as a step.

        Args:
            title: what the step does.
            command: program and arguments.
            show: regular expression; the lines of output that it is found in are printed. All go to the log file.
        """
        log = self.log_folder / f"{len(self.seconds) + 1}-{Path(command[0]).name}.log"
        with self.step(title):
            shown = escape(" ".join([Path(command[0]).name, *command[1:]]))
            self.console.print(f"      [dim]{shown}[/dim]", soft_wrap=True, highlight=False)
            last: deque[str] = deque(maxlen=15)
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            try:
                with log.open("w", encoding="utf-8") as file:
                    for raw in process.stdout:  # a progress bar's carriage returns end lines, too
                        file.write(raw)
                        line = _terminal_line(raw)
                        if not line:
                            continue
                        last.append(line)
                        self._progress.update(self._task, line=escape(line[:60]))
                        if show and re.search(show, line):
                            self.console.print(f"      {escape(line)}", highlight=False)
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if code != 0:
            tail = "\n  ".join(last)
            raise StepError(f"'{title}' failed with exit code {code}. Its last lines:\n  {tail}\nAll of them: {log}")
