"""One thread, and a summary of what the parity tests measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from .measure import MEASURED


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are small: on busy cores a second thread is mostly waited for."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if lines := MEASURED.lines():
        terminalreporter.section("measured against batchgeneratorsv2")
        for line in lines:
            terminalreporter.write_line(line)
