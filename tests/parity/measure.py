"""What the parity tests measured, kept for the summary at the end of the run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace

from torch import Tensor

TOLERANCE = 1e-4
"""Largest allowed absolute difference between images of standard deviation 1."""


@dataclass
class Measured:
    """Totals over a run: largest image difference per step, segmentation voxels, and lowest p-value per statistic."""

    steps: dict[str, SimpleNamespace] = field(
        default_factory=lambda: defaultdict(lambda: SimpleNamespace(diff=0.0, voxels=0, labels=0, mismatches=0))
    )
    p_values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def lines(self) -> list[str]:
        out = []
        if self.steps:
            out.append(f"{'step':<34}{'image voxels':>13}{'max |diff|':>12}{'labels':>13}{'mismatches':>12}")
        for name, m in sorted(self.steps.items()):
            out.append(f"{name:<34}{m.voxels:>13,}{m.diff:>12.1e}{m.labels:>13,}{m.mismatches:>12,}")
        for name, values in sorted(self.p_values.items()):
            out.append(f"{name}: {len(values)} tests, lowest p = {min(values):.2g}")
        return out


MEASURED = Measured()


def compare_images(step: str, ours: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    """Equal shape and dtype, and no voxel further apart than the tolerance; NaN is a failure."""
    ours = ours.cpu()
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype), f"{step}: image {ours.shape} {ours.dtype}"
    diff = (ours - expected).abs().max().item()
    total = MEASURED.steps[step]
    total.diff, total.voxels = max(total.diff, diff), total.voxels + expected.numel()
    assert diff <= tolerance, f"{step}: largest image difference {diff:.3e}, allowed {tolerance:.0e}"


def compare_labels(step: str, ours: Tensor, expected: Tensor) -> None:
    """Equal shape, dtype and every voxel."""
    ours = ours.cpu()
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype), (
        f"{step}: segmentation {ours.shape}, {ours.dtype}"
    )
    wrong = int((ours != expected).sum())
    total = MEASURED.steps[step]
    total.labels, total.mismatches = total.labels + expected.numel(), total.mismatches + wrong
    assert wrong == 0, f"{step}: {wrong} of {expected.numel()} segmentation voxels differ"


def likely(statistic: str, p_value: float, about: str = "") -> None:
    """A p-value that a correct implementation hardly falls below, in none of the few hundred tests of a run. The draws
    are seeded, so that it varies only with the way they are made."""
    MEASURED.p_values[statistic].append(float(p_value))
    assert p_value > 1e-4, f"{statistic} {about}: p = {p_value:.2g}"
