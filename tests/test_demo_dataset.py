"""The dataset of the demo: what nnU-Net asks of it, and that it is the same every time."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nilearn")
nibabel = pytest.importorskip("nibabel")

SCRIPT = Path(__file__).parents[1] / "examples" / "demo" / "make_dataset.py"
N_TRAINING, N_HELD_OUT = 5, 1


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo_make_dataset", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def folder(demo, tmp_path_factory):
    return demo.make_dataset(tmp_path_factory.mktemp("raw"), N_TRAINING, N_HELD_OUT)


def load(path):
    return nibabel.load(path)


def test_every_image_has_a_segmentation_on_the_same_grid(demo, folder):
    for part, n, size in (("Tr", N_TRAINING, demo.TRAINING_SIZE), ("Ts", N_HELD_OUT, demo.HELD_OUT_SIZE)):
        images = sorted((folder / f"images{part}").iterdir())
        assert len(images) == len(list((folder / f"labels{part}").iterdir())) == n
        for path in images:
            image = load(path)
            labels = load(folder / f"labels{part}" / path.name.replace("_0000", ""))
            assert image.shape == labels.shape == size
            np.testing.assert_array_equal(image.affine, labels.affine)
            assert image.header.get_zooms() == (2.0, 2.0, 2.0)


def test_each_case_holds_the_three_labels_in_usable_amounts(folder):
    for path in [*(folder / "labelsTr").iterdir(), *(folder / "labelsTs").iterdir()]:
        labels = np.asarray(load(path).dataobj)
        values, counts = np.unique(labels, return_counts=True)
        np.testing.assert_array_equal(values, [0, 1, 2])
        assert counts.min() > 0.1 * labels.size


def test_images_are_finite_and_tell_the_labels_apart(folder):
    for path in (folder / "imagesTr").iterdir():
        image = np.asarray(load(path).dataobj)
        labels = np.asarray(load(folder / "labelsTr" / path.name.replace("_0000", "")).dataobj)
        assert np.isfinite(image).all()
        background, grey, white = (image[labels == k].mean() for k in (0, 1, 2))
        assert background < grey < white


def test_cases_differ_from_each_other(folder):
    images = [np.asarray(load(path).dataobj) for path in sorted((folder / "imagesTr").iterdir())]
    for i, first in enumerate(images):
        for second in images[:i]:
            assert np.corrcoef(first.ravel(), second.ravel())[0, 1] < 0.98


def test_description_is_what_nnunet_reads(demo, folder):
    description = json.loads((folder / "dataset.json").read_text())
    assert folder.name == demo.DATASET_NAME == f"Dataset{demo.DATASET_ID:03d}_DeformedMNI152"
    assert description["channel_names"] == {"0": "T1"}
    assert description["labels"] == {"background": 0, "grey_matter": 1, "white_matter": 2}
    assert description["numTraining"] == N_TRAINING
    assert description["file_ending"] == ".nii.gz"
    assert "one brain" in description["description"]


def test_nnunet_accepts_the_dataset(folder):
    verify = pytest.importorskip("nnunetv2.experiment_planning.verify_dataset_integrity")
    verify.verify_dataset_integrity(str(folder), num_processes=1)


def test_same_seed_same_case_whatever_the_number_of_cases(demo, folder):
    first, _ = next(demo.make_cases(1, 0))
    stored = np.asarray(load(folder / "imagesTr" / f"{first.name}_0000.nii.gz").dataobj)
    np.testing.assert_array_equal(first.image, stored)
    other, _ = next(demo.make_cases(1, 0, seed=1))
    assert not np.array_equal(first.image, other.image)


def test_training_and_held_out_halves_share_no_voxel(demo):
    back, front = (demo.BACK_HALF[1], demo.FRONT_HALF[1])
    assert back.stop <= front.start
    # A case never sees beyond its half: with tissue everywhere in it, what is outside comes out as air.
    half = np.ones((3, 60, 50, 60), dtype=np.float32)
    case = demo.cut_and_warp(half, (60, 50, 60), np.random.default_rng(0), "whole")
    assert case.image[0, 0, 0] == 0
    assert (case.image > 0).mean() > 0.5


def test_too_few_cases_for_five_folds(demo, tmp_path):
    with pytest.raises(ValueError, match="at least 5 training cases, got 4"):
        demo.make_dataset(tmp_path, n_training=4)
    assert not list(tmp_path.iterdir())
