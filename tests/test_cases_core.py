"""Geometry and labels: failures that users of such software have reported, each with the right values."""

import itertools

import numpy as np
import pytest
import torch

from cases import make_batch
from checks import assert_same
from nnunet_gpuaug import Batch, Mirror, Pipeline, Spatial, transforms
from nnunet_gpuaug.ops.geometry import affine_matrix
from turning import degrees, to_cpu, turn, turn_by_nnunet

ONE = [1.0, 1.0, 1.0]


def phantom(device: str) -> Batch:
    """A bar that tells all axes and directions apart, as image and as segmentation."""
    image = torch.zeros(1, 1, 16, 18, 20)
    image[..., 8, 9, 4:18] = 1
    image[..., 8, 3:9, 10] = 2
    image[..., 3:8, 9, 10] = 3
    return Batch(image.to(device), image.to(device, torch.int16))


def neighbour_labels(seg: np.ndarray, angles, scales, patch, outside: int) -> list[np.ndarray]:
    """For each of the eight (2D: four) voxels around the sampled points, its label; rounding errors allowed for."""
    size = np.array(seg.shape)
    centred = np.meshgrid(*[np.arange(p) - (p - 1) / 2 for p in patch], indexing="ij")
    at = np.einsum("ij,j...->i...", affine_matrix(angles, scales), np.stack(centred))
    at += ((size - 1) / 2).reshape(-1, *[1] * seg.ndim)
    padded = np.pad(seg, 1, constant_values=outside)
    found = []
    for shift, corner in itertools.product((-1e-3, 1e-3), itertools.product((0, 1), repeat=seg.ndim)):
        index = [
            np.clip(np.floor(a + shift).astype(int) + c, -1, n) + 1 for a, c, n in zip(at, corner, size, strict=True)
        ]
        found.append(padded[tuple(index)])
    return found


@pytest.mark.parametrize("tiebreak", ["nearest", "lowest", "highest"])
def test_where_three_labels_meet_no_other_label_appears(tiebreak, device):
    z, y, x = torch.meshgrid(*[torch.arange(n) for n in (12, 13, 14)], indexing="ij")
    seg = torch.where(x < 7, 1, torch.where(y < 6, 9, 3)) + 0 * z
    batch = Batch(torch.zeros(1, 1, 12, 13, 14, device=device), seg[None, None].to(device, torch.int16))
    for angles in (degrees(10, 20, 30), degrees(-30, 5, 45), degrees(0, 0, 90), degrees(0, 0, 0)):
        for scales in ([0.6, 0.6, 0.6], [0.9, 0.5, 0.7]):
            out = turn(batch, angles, scales, (10, 9, 11), seg_tiebreak=tiebreak).segmentation[0, 0].cpu().numpy()
            candidates = neighbour_labels(seg.numpy(), angles, scales, (10, 9, 11), outside=-1)
            assert np.any([out == labels for labels in candidates], axis=0).all()
            if max(scales) == 0.6:  # the patch stays inside, so there is no hole of background
                assert set(np.unique(out)) <= {1, 3, 9}


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.3])
def test_rotation_about_three_axes_is_nnunets(scale, device):
    batch, patch = phantom(device), (12, 14, 15)
    angles, scales = degrees(10, 20, 30), [scale, scale, scale * 0.9]
    ours, theirs = turn(batch, angles, scales, patch), turn_by_nnunet(batch, angles, scales, patch)
    assert ours.image.abs().sum() > 1
    assert_same(to_cpu(ours), theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("sign", [-1, 1])
def test_axis_and_sense_of_rotation(axis, sign, device):
    batch = phantom(device)
    candidates = {
        (a, s): turn_by_nnunet(batch, degrees(*[30 * s if a == i else 0 for i in range(3)]), ONE, (16, 18, 20)).image
        for a in range(3)
        for s in (-1, 1)
    }
    ours = turn(batch, degrees(*[30 * sign if axis == i else 0 for i in range(3)]), ONE, (16, 18, 20)).image.cpu()
    distance = {key: (ours - image).abs().max().item() for key, image in candidates.items()}
    assert min(distance, key=distance.get) == (axis, sign)
    assert distance.pop((axis, sign)) < 1e-4 and min(distance.values()) > 0.3


@pytest.mark.parametrize("axis", range(3))
def test_a_bar_turns_where_nnunet_turns_it(axis, device):
    image = torch.zeros(1, 1, 17, 17, 17, device=device)
    bar = (0, 0, *[slice(None) if i == axis else 8 for i in range(3)])
    image[bar] = 1
    batch = Batch(image, image.to(torch.int16))
    for turned in range(3):
        angles = degrees(*[30 if i == turned else 0 for i in range(3)])
        ours = to_cpu(turn(batch, angles, ONE, (17, 17, 17)))
        assert_same(ours, turn_by_nnunet(batch, angles, ONE, (17, 17, 17)), rtol=0, atol=1e-4)
        if turned == axis:  # about its own axis it stays
            assert ours.image[bar].min().item() > 0.9999 and bool((ours.segmentation[bar] == 1).all())


def test_rotation_in_2d_is_nnunets(device):
    batch = make_batch(2, 2, (17, 20), device=device)
    for angle in (-150, -30, 45, 90):
        angles, scales = degrees(0, angle), [0.8, 1.2]
        ours, theirs = turn(batch, angles, scales, (13, 16)), turn_by_nnunet(batch, angles, scales, (13, 16))
        assert_same(to_cpu(ours), theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [(8, 10, 12), (7, 9, 11), (8, 9, 1), (9, 10), (1, 7)])
def test_no_rotation_and_no_scaling_is_the_identity(size, device):
    batch = make_batch(2, 2, size, device=device)
    out = turn(batch, [0.0] * len(size), [1.0] * len(size), size)
    assert (out.image - batch.image).abs().max() <= 1e-5
    assert torch.equal(out.segmentation, batch.segmentation)


@pytest.mark.parametrize("size", [(8, 11, 6), (9, 6)])
def test_rows_without_a_draw_start_where_nnunets_crop_starts(size, device):
    from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform

    batch = make_batch(1, 1, size, device=device)
    for patch in itertools.product(*[(1, n - 3, n - 2, n - 1, n, n + 1, n + 3) for n in size]):
        ours = Pipeline([Spatial(patch_size=patch, border_mode_seg="constant", padding_value_seg=-1)])
        theirs = SpatialTransform(patch, 0, False, border_mode_seg="constant", padding_value_seg=-1)
        expected = theirs(image=batch.image[0].cpu(), segmentation=batch.segmentation[0].cpu())
        out = to_cpu(ours.apply(batch, ours.draw(batch)))
        assert torch.equal(out.image[0], expected["image"])
        assert torch.equal(out.segmentation[0], expected["segmentation"])


@pytest.mark.parametrize("scaling", [0.6, 1.4])
def test_labels_stay_labels(scaling, device):
    batch = make_batch(2, 1, (14, 15, 16), device=device, labels=(1, 3, 9))
    for angle in (0, 17, 45):
        out = turn(batch, degrees(angle, -angle, angle), [scaling] * 3, (12, 12, 12)).segmentation
        assert {1, 3, 9} <= set(out.unique().tolist()) <= {-1, 1, 3, 9}


def test_more_than_255_labels_equal_nnunets(device):
    batch = make_batch(1, 1, (24, 26, 28), device=device, labels=tuple(range(300)))
    assert len(batch.segmentation.unique()) > 255
    angles, scales = degrees(12, -20, 28), [0.8, 0.8, 0.8]
    ours, theirs = turn(batch, angles, scales, (20, 20, 20)), turn_by_nnunet(batch, angles, scales, (20, 20, 20))
    assert torch.equal(ours.segmentation.cpu(), theirs.segmentation)


def test_image_padding_is_never_written_into_labels(device):
    batch = Batch(torch.ones(1, 1, 16, 16, device=device), torch.ones(1, 1, 16, 16, dtype=torch.int16, device=device))
    spec = {"padding_mode_image": "constant", "padding_value_image": 7.0, "padding_value_seg": -1}
    out = turn(batch, degrees(0, 45), [1.0, 1.0], (16, 16), **spec)
    assert set(out.segmentation.unique().tolist()) == {-1, 1}
    assert out.image.max() > 6.9 and out.segmentation[0, 0, 0, 0] == -1
    zeros = turn(batch, degrees(0, 45), [1.0, 1.0], (16, 16), border_mode_seg="zeros")
    assert set(zeros.segmentation.unique().tolist()) == {0, 1}


def test_a_row_without_and_one_full_of_foreground(device):
    seg = torch.tensor([0, 2], dtype=torch.int16, device=device).view(2, 1, 1, 1, 1).expand(2, 1, 12, 12, 12)
    out = turn(Batch(torch.zeros_like(seg, dtype=torch.float32), seg), degrees(10, 20, 30), [0.5] * 3, (10, 10, 10))
    assert (out.segmentation[0] == 0).all() and (out.segmentation[1] == 2).all()


def test_a_thresholded_image_and_its_label_stay_equal(device):
    image = (make_batch(4, 1, (12, 13, 14), device=device).image > 0.5).float()
    nearest = Spatial(patch_size=(10, 11, 9), p_rotation=1, p_scaling=1, mode_image="nearest", mode_seg="nearest")
    out = Pipeline([nearest, Mirror(allowed_axes=(0, 1, 2))], seed=0)(image=image, segmentation=image.to(torch.int16))
    assert torch.equal(out["image"], out["segmentation"].float()) and 0 < out["image"].mean() < 1


def test_mirroring_keeps_to_its_axes(device):
    """1,000 rows with the axes 0 and 1: axis 2 is never flipped, the four combinations are equally frequent."""
    image = torch.arange(8.0, device=device).view(1, 1, 2, 2, 2).expand(1000, 1, 2, 2, 2)
    out = Pipeline([Mirror(allowed_axes=(0, 1))], seed=0)(image=image)["image"]
    assert (out.diff(dim=-1) == 1).all()
    _, counts = out.flatten(1).unique(dim=0, return_counts=True)
    assert len(counts) == 4 and counts.min() > 200
    untouched = Pipeline([Mirror(allowed_axes=())], seed=0)(image=image)["image"]
    assert torch.equal(untouched, image)


@pytest.mark.parametrize("mirror_axes", [(), None])
def test_without_mirror_axes_the_rest_stays(mirror_axes):
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    compose = nnUNetTrainer.get_training_transforms((8, 8, 8), (-1, 1), None, mirror_axes, False)
    names = [type(t).__name__ for t in Pipeline.from_nnunet(compose).transforms]
    assert "Mirror" not in names and names[0] == "Spatial" and names.count("Gamma") == 2 and names[-1] == "RemoveLabel"


def test_2d_batches_are_never_read_as_volumes(device):
    """(B, C, H, W): axis 0 is H, and no filter runs over the channels."""
    image = make_batch(1, 3, (6, 7), device=device).image
    pipeline = Pipeline([Mirror(allowed_axes=(0,))], seed=0)
    flipped = [pipeline(image=image)["image"] for _ in range(20)]
    assert all(torch.equal(f, image) or torch.equal(f, image.flip(2)) for f in flipped)
    for kind in (transforms.GaussianBlur, transforms.SimulateLowResolution, transforms.Gamma):
        augmentation = Pipeline([kind()])
        draw = augmentation.draw(Batch(image))
        out = augmentation.apply(Batch(image), draw).image
        changed = image.clone()
        changed[:, 1] += 100
        other = augmentation.apply(Batch(changed), draw).image
        assert torch.equal(out[:, [0, 2]], other[:, [0, 2]])


@pytest.mark.parametrize("shared", [0, 1])
def test_synchronised_scaling(shared):
    spatial = Spatial(patch_size=(4, 4, 4), p_scaling=1, p_synchronize_scaling_across_axes=shared)
    batch = make_batch(50, 1, (4, 4, 4))
    scales = Pipeline([spatial], seed=0).draw(batch).params[0]["scales"]
    assert len(scales.unique()) == (50 if shared else 150)
    assert bool((scales == scales[:, :1]).all()) == bool(shared)
