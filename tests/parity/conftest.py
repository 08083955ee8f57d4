"""Prints what the parity tests measured."""

from __future__ import annotations

from typing import Any

from .measure import MEASURED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if lines := MEASURED.lines():
        terminalreporter.section("measured against batchgeneratorsv2")
        for line in lines:
            terminalreporter.write_line(line)
