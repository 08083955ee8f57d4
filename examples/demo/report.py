"""Score the demo's prediction: Dice per label beside what needs no training, and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
import nibabel
import numpy as np
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import ListedColormap  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

COLOURS = ("#000000", "#35b5ff", "#ffb000")


def load(path: Path) -> np.ndarray:
    """The voxels of a NIfTI file."""
    return np.asarray(nibabel.load(path).dataobj)


def dice(prediction: np.ndarray, truth: np.ndarray, label: int) -> float:
    """Twice the overlap over the sum of the sizes; NaN if neither has the label."""
    p, t = prediction == label, truth == label
    size = p.sum() + t.sum()
    return float(2 * (p & t).sum() / size) if size else float("nan")


def chance_labellings(image: np.ndarray, truth: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Labellings that know how frequent each label is, two of them where the brain is as well, but nothing else."""
    rng = np.random.default_rng(seed)
    brain = image > 0
    shuffled = truth.copy()
    shuffled[brain] = rng.permutation(truth[brain])
    majority = np.bincount(truth[truth > 0]).argmax()
    return {
        "chance: truth, shuffled": rng.permutation(truth.ravel()).reshape(truth.shape),
        "chance: shuffled in the brain": shuffled,
        f"chance: all of the brain {majority}": np.where(brain, majority, 0),
    }


@dataclass(frozen=True)
class Score:
    """Dice of one labelling: a value for each foreground label."""

    name: str
    dice: dict[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.dice.values())))


def score(name: str, labelling: np.ndarray, truth: np.ndarray, labels: list[int]) -> Score:
    """Dice of a labelling for each of the labels."""
    return Score(name, {label: dice(labelling, truth, label) for label in labels})


def clearly_above(model: Score, chances: list[Score], margin: float) -> bool:
    """Whether the model beats every chance: for each label by any amount, in the mean by `margin`."""
    every_label = all(model.dice[k] > c.dice[k] for c in chances for k in model.dice)
    return every_label and all(model.mean >= c.mean + margin for c in chances)


def score_table(model: Score, chances: list[Score], label_names: dict[int, str]) -> Table:
    """The scores as a rich table, the model first."""
    table = Table(title="Dice on the held-out case", title_justify="left")
    table.add_column("", no_wrap=True)
    for label in model.dice:
        table.add_column(f"{label_names[label]} ({label})", justify="right")
    table.add_column("mean", justify="right", no_wrap=True)
    for row in (model, *chances):
        style = "bold green" if row is model else None
        table.add_row(row.name, *(f"{d:.3f}" for d in row.dice.values()), f"{row.mean:.3f}", style=style)
    return table


def save_picture(
    path: Path, image: np.ndarray, truth: np.ndarray, prediction: np.ndarray, model: Score, label_names: dict[int, str]
) -> None:
    """Three slices of the case: image, truth, prediction, and where the two differ."""
    colours = ListedColormap(COLOURS)
    positions = [int(f * image.shape[2]) for f in (0.3, 0.5, 0.7)]
    figure, grid = pyplot.subplots(3, 4, figsize=(11, 5.6), layout="constrained")
    for axes_row, k in zip(grid, positions, strict=True):
        picture, t, p = image[:, :, k].T, truth[:, :, k].T, prediction[:, :, k].T
        axes_row[0].imshow(picture, cmap="gray", origin="lower")
        axes_row[1].imshow(t, cmap=colours, vmin=0, vmax=2, origin="lower", interpolation="nearest")
        axes_row[2].imshow(p, cmap=colours, vmin=0, vmax=2, origin="lower", interpolation="nearest")
        axes_row[3].imshow(picture, cmap="gray", origin="lower")
        wrong = np.ma.masked_equal((p != t).astype(np.uint8), 0)
        axes_row[3].imshow(wrong, cmap=ListedColormap(["#ff2d55"]), origin="lower", interpolation="nearest")
        axes_row[0].set_ylabel(f"slice {k}", fontsize=9)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    for axes, title in zip(grid[0], ("image", "truth", "prediction", "prediction is wrong (red)"), strict=True):
        axes.set_title(title, fontsize=10)
    scores = ", ".join(f"{label_names[k]} {d:.3f}" for k, d in model.dice.items())
    figure.suptitle(f"Held-out case, Dice: {scores}", fontsize=11)
    handles = [Patch(facecolor=COLOURS[k], label=label_names[k].replace("_", " ")) for k in model.dice]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
