"""Many draws of a real object and of ours, as arrays under our names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from scipy.stats import binomtest, chi2_contingency, ks_2samp

from nnunet_gpuaug.batch import Shape
from nnunet_gpuaug.nnunet.mapping import map_transforms
from nnunet_gpuaug.sampling import row_streams

from .lift import lift_row, recorded_affine
from .measure import likely

COUNT = 20_000
Arrays = dict[str, np.ndarray]


def ours_drawn(real: Any, shape: Shape, seed: int = 1) -> Arrays:
    """COUNT rows of one draw of ours."""
    (ours,) = map_transforms(real)
    return {name: values.numpy() for name, values in ours.draw(row_streams(seed, COUNT), shape).items()}


def real_drawn(real: Any, shape: Shape, seed: int = 1) -> Arrays:
    """COUNT draws of the real object, its gate included; values that it did not draw are NaN or 0."""
    (ours,) = map_transforms(real)
    np.random.seed(seed)
    torch.manual_seed(seed)
    image = torch.zeros((shape.channels, *shape.spatial))
    gates = np.ones(COUNT)
    if type(real) is RandomTransform:
        gates = np.array([real.get_parameters()["apply_transform"] for _ in range(COUNT)], dtype=float)
        real = real.transform
    blank = {name: np.full(values.shape[1:], np.nan) for name, values in ours.draw(row_streams(0, 1), shape).items()}
    rows = []
    with recorded_affine() as affine:
        for _ in range(COUNT):
            rows.append(blank | lift_row(ours, real, {**real.get_parameters(image=image), **affine}, shape))
    return {
        "batch_prob": gates,
        **{name: np.array([row[name] for row in rows]) for name in blank if name != "batch_prob"},
    }


def same_distribution(ours: np.ndarray, real: np.ndarray, about: str) -> None:
    """Real-valued samples of one distribution, by the Kolmogorov-Smirnov test."""
    assert min(len(ours), len(real)) > 500, about
    likely("Kolmogorov-Smirnov", ks_2samp(ours, real).pvalue, about)


def same_categories(ours: list[Any], real: list[Any], about: str) -> None:
    """Samples of one distribution over categories, by the chi-square test."""
    names = sorted(set(ours) | set(real))
    assert len(names) > 1, about
    table = [[sample.count(name) for name in names] for sample in (ours, real)]
    likely("chi-square of categories", chi2_contingency(table).pvalue, about)


def probability(hits: np.ndarray, p: float, about: str) -> None:
    """Each column of `hits` is true with probability `p`, by the exact binomial test."""
    for column in np.atleast_2d(hits.astype(bool).T):
        if p in (0, 1):
            assert (column == bool(p)).all(), about
        else:
            likely("binomial", binomtest(int(column.sum()), len(column), p).pvalue, about)


def independent_gates(a: np.ndarray, b: np.ndarray, about: str) -> None:
    """Two columns of true and false do not depend on each other, by the chi-square test."""
    a, b = a.astype(bool), b.astype(bool)
    if any(column.all() or not column.any() for column in (a, b)):
        return  # a gate that is always or never open depends on nothing
    table = [[int((left & right).sum()) for right in (b, ~b)] for left in (a, ~a)]
    likely("chi-square of independence", chi2_contingency(table).pvalue, about)


def independent_values(a: np.ndarray, b: np.ndarray, about: str) -> None:
    """Two columns of values are not correlated: |r| below four standard errors."""
    r = np.corrcoef(a, b)[0, 1]
    assert abs(r) < 4 / len(a) ** 0.5, f"{about}: r = {r:.3f}"
