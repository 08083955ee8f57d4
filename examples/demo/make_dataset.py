"""Build a small nnU-Net dataset from the MNI152 T1 template that nilearn ships.

There is one brain in it. The training cases are blocks cut from its back half, the held-out ones from its front
half, each rotated, scaled, deformed and given its own brightness ramp and noise, all from a fixed seed. So no voxel
is in both, but the tissue is the same: a good Dice shows that training and prediction work, and says nothing about
other people's scans.

    python examples/demo/make_dataset.py demo_output/nnUNet_raw
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nibabel
import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates

DATASET_ID = 152
DATASET_NAME = f"Dataset{DATASET_ID:03d}_DeformedMNI152"
LABELS = {"background": 0, "grey_matter": 1, "white_matter": 2}
SPACING_MM = 2

# In voxels of the 2 mm template (99, 117, 95). The two halves share no slice along the second axis (back to front).
BACK_HALF = (slice(5, 94), slice(8, 66), slice(4, 86))
FRONT_HALF = (slice(5, 94), slice(66, 108), slice(4, 86))
TRAINING_SIZE = (48, 40, 48)
HELD_OUT_SIZE = (48, 40, 48)
AIR = 0.1  # a T1 value below that of any tissue


@dataclass(frozen=True)
class Case:
    """One scan: intensities and labels on the same grid."""

    name: str
    image: np.ndarray  # float32
    labels: np.ndarray  # uint8, values 0, 1, 2


@cache
def load_template() -> np.ndarray:
    """T1, grey-matter and white-matter maps of the MNI152 template at 2 mm: float32 (3, 99, 117, 95) in [0, 1]."""
    from nilearn.datasets import load_mni152_gm_template, load_mni152_template, load_mni152_wm_template

    loaders = (load_mni152_template, load_mni152_gm_template, load_mni152_wm_template)
    maps = np.stack([np.asarray(load(resolution=SPACING_MM).dataobj, dtype=np.float32) for load in loaders])
    maps.setflags(write=False)
    return maps


def _smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> np.ndarray:
    """Gaussian noise smoothed to `sigma` voxels and brought back to standard deviation 1."""
    field = gaussian_filter(rng.standard_normal(shape), sigma)
    return field / field.std()


def _rotation(angles: np.ndarray) -> np.ndarray:
    """Rotation matrix of the three angles (radians), about the first, second and third axis in turn."""
    matrix = np.eye(3)
    for axis, angle in enumerate(angles):
        i, j = (k for k in range(3) if k != axis)
        turn = np.eye(3)
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
        matrix = turn @ matrix
    return matrix


def cut_and_warp(maps: np.ndarray, size: tuple[int, int, int], rng: np.random.Generator, name: str) -> Case:
    """Cut a block of `size` out of the maps (T1, grey, white) and deform it.

    What lies outside the maps is 0 (air), so a case never sees what is beyond them.
    """
    room = np.array(maps.shape[1:]) - size
    corner = rng.uniform(0, room)
    middle = (np.array(size) - 1) / 2
    matrix = _rotation(np.deg2rad(rng.uniform(-8, 8, 3))) * rng.uniform(0.92, 1.08, 3)

    grid = np.stack(np.meshgrid(*(np.arange(n) for n in size), indexing="ij")) - middle.reshape(3, 1, 1, 1)
    where = np.einsum("ij,jxyz->ixyz", matrix, grid) + (corner + middle).reshape(3, 1, 1, 1)
    where += 1.2 * np.stack([_smooth_noise(rng, size, 6) for _ in range(3)])
    t1, grey, white = (map_coordinates(m, where, order=1, mode="constant", cval=0.0) for m in maps)

    labels = np.where(grey + white < 0.5, 0, np.where(grey >= white, 1, 2)).astype(np.uint8)
    shaded = t1 * np.exp(0.08 * _smooth_noise(rng, size, 20)) * rng.uniform(0.8, 1.2)
    noisy = shaded + 0.02 * rng.standard_normal(size)
    image = np.where(t1 > AIR, np.maximum(noisy, 0), 0) * 1000  # the air around the brain stays exactly 0
    return Case(name, image.astype(np.float32), labels)


def make_cases(n_training: int, n_held_out: int, seed: int = 0) -> Iterator[tuple[Case, bool]]:
    """Yield (case, is_held_out). Case i is the same whatever the numbers of cases are."""
    template = load_template()
    for held_out, n, half, size in (
        (False, n_training, BACK_HALF, TRAINING_SIZE),
        (True, n_held_out, FRONT_HALF, HELD_OUT_SIZE),
    ):
        for i in range(n):
            rng = np.random.default_rng([seed, held_out, i])
            name = f"{'front' if held_out else 'back'}_{i:03d}"
            yield cut_and_warp(template[(slice(None), *half)], size, rng, name), held_out


def _save(path: Path, array: np.ndarray) -> None:
    affine = np.diag([SPACING_MM, SPACING_MM, SPACING_MM, 1.0])
    nibabel.save(nibabel.Nifti1Image(array, affine), path)


def make_dataset(raw_folder: Path, n_training: int = 10, n_held_out: int = 1, seed: int = 0) -> Path:
    """Write the dataset under `raw_folder` (nnU-Net's `nnUNet_raw`) and return its folder.

    The held-out cases go to `imagesTs` and `labelsTs`; nnU-Net trains on `imagesTr` and `labelsTr` alone.
    """
    if n_training < 5:
        raise ValueError(f"nnU-Net's five folds need at least 5 training cases, got {n_training}")
    folder = raw_folder / DATASET_NAME
    for name in ("imagesTr", "labelsTr", "imagesTs", "labelsTs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for case, held_out in make_cases(n_training, n_held_out, seed):
        part = "Ts" if held_out else "Tr"
        _save(folder / f"images{part}" / f"{case.name}_0000.nii.gz", case.image)
        _save(folder / f"labels{part}" / f"{case.name}.nii.gz", case.labels)
    description = {
        "name": DATASET_NAME,
        "description": "Deformed blocks of the MNI152 T1 template (nilearn's copy): one brain, not a population.",
        "channel_names": {"0": "T1"},
        "labels": LABELS,
        "numTraining": n_training,
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(description, indent=2) + "\n")
    return folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw_folder", type=Path, help="where the dataset folder goes (nnU-Net's nnUNet_raw)")
    parser.add_argument("--training", type=int, default=10, help="number of training cases (default: 10)")
    parser.add_argument("--held-out", type=int, default=1, help="number of held-out cases (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    print(make_dataset(options.raw_folder, options.training, options.held_out, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
