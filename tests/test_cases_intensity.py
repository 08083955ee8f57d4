"""Intensity and filters: failures that users of such software have reported, each with the right values."""

import numpy as np
import pytest
import torch

from cases import make_batch
from nnunet_gpuaug import Batch, Contrast, Gamma, GaussianBlur, GaussianNoise, MultiplicativeBrightness, Pipeline
from nnunet_gpuaug import SimulateLowResolution as LowResolution

KINDS = {
    "noise": GaussianNoise,
    "blur": GaussianBlur,
    "brightness": MultiplicativeBrightness,
    "contrast": Contrast,
    "low resolution": LowResolution,
    "gamma": Gamma,
}


def run(transform, image: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return Pipeline([transform], seed=seed)(image=image)["image"]


def centre_of_mass(image: torch.Tensor) -> torch.Tensor:
    axes = torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in image.shape], indexing="ij")
    return torch.stack([(axis * image).sum() / image.sum() for axis in axes])


@pytest.mark.parametrize("size", [40, 41])
@pytest.mark.parametrize("scale", [0.5, 0.6, 0.75, 0.9])
def test_low_resolution_shifts_no_more_than_nnunets(scale, size, device):
    """Nearest-exact moves a blob by less than 0.2 voxel, except at exactly half the size, where the middle of two
    voxels is rounded; nearest would move it by 0.4 to 1."""
    from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform

    axes = torch.meshgrid(*[torch.arange(size, dtype=torch.float32)] * 3, indexing="ij")
    blob = torch.exp(-sum((a - c) ** 2 for a, c in zip(axes, (18, 20, 22), strict=True)) / 50)
    theirs = SimulateLowResolutionTransform(scale, False, True, None, None, 1)(image=blob[None].clone())["image"][0]
    ours = run(LowResolution(scale=scale), blob[None, None].to(device))[0, 0].cpu()
    shift = centre_of_mass(ours.double()) - centre_of_mass(blob.double())
    assert (ours - theirs).abs().max().item() < 1e-5 and not torch.equal(ours, blob)
    assert shift.abs().max().item() < (0.5 if scale * size == size / 2 == size // 2 else 0.2)


def test_low_resolution_of_all_axes_and_of_all_but_one(device):
    """ignore_axes = None is every axis; (0,) leaves the planes along axis 0 apart from each other."""
    image = make_batch(1, 1, (8, 16, 16), device=device).image
    planes = image.clone()
    planes[:, :, 5] += 100

    def touches_other_planes(transform: LowResolution) -> bool:
        changed = (run(transform, planes) - run(transform, image)).abs().amax((0, 1, 3, 4)) > 1e-3
        changed[5] = False
        return bool(changed.any())

    assert not torch.equal(run(LowResolution(scale=0.5, ignore_axes=(0,)), image), image)
    assert touches_other_planes(LowResolution(scale=0.5))
    assert not touches_other_planes(LowResolution(scale=0.5, ignore_axes=(0,)))


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "noise"])
@pytest.mark.parametrize("value", [0.0, 5.0, -4.0])
def test_a_constant_channel_beside_a_normal_one(kind, value, device):
    image = make_batch(2, 2, (6, 7, 8), device=device).image
    image[:, 0] = value
    out = run(KINDS[kind](), image)
    spread = (out[:, 0].flatten(1).amax(1) - out[:, 0].flatten(1).amin(1)).max().item()
    assert spread <= 1e-5
    assert kind == "brightness" or (out[:, 0] - value).abs().max().item() <= 1e-5
    assert bool(out.isfinite().all()) and not torch.equal(out[:, 1], image[:, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_one_voxel(kind, device):
    image = torch.full((2, 1, 1, 1, 1), 3.0, device=device)
    assert bool(run(KINDS[kind](), image).isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_four_channels_has_its_own_draw(kind, device):
    row = make_batch(1, 1, (6, 7, 8), device=device).image
    out = run(KINDS[kind](), row.repeat_interleave(4, 1))
    assert not any(torch.equal(out[:, c : c + 1], row) for c in range(4))
    assert not any(torch.equal(out[:, c], out[:, 0]) for c in range(1, 4))
    shared = run(KINDS[kind](synchronize_channels=True), row.repeat_interleave(4, 1))
    assert kind == "noise" or all(torch.equal(shared[:, c], shared[:, 0]) for c in range(4))


@pytest.mark.parametrize("shared", [True, False])
def test_noise_is_normal_and_new_in_every_plane(shared, device):
    """The deviation may be shared, the noise never is."""
    image = make_batch(3, 4, (20, 21, 22), device=device).image
    noise = run(GaussianNoise(noise_variance=0.5, synchronize_channels=shared), image) - image
    planes = noise.flatten(2).flatten(0, 1).cpu().double()
    count = planes.shape[1]
    assert planes.mean(1).abs().max().item() < 5 * 0.5 / count**0.5
    assert (planes.std(1) - 0.5).abs().max().item() < 5 * 0.5 / (2 * count) ** 0.5
    assert (torch.corrcoef(planes) - torch.eye(12)).abs().max().item() < 5 / count**0.5


@pytest.mark.parametrize("kind", KINDS)
def test_each_channel_is_drawn_with_its_own_probability(kind):
    """2,000 rows of 4 channels at p = 0.3: rates within 5 standard errors, and no channel follows another."""
    batch = Batch(torch.empty((2000, 4, 2, 2), device="meta"))
    active = Pipeline([KINDS[kind](p_per_channel=0.3)], seed=1).draw(batch).params[0]["active"].double()
    assert ((active.mean(0) - 0.3).abs() < 5 * (0.21 / 2000) ** 0.5).all()
    correlation = torch.corrcoef(active.T) - torch.eye(4)
    assert correlation.abs().max().item() < 5 / 2000**0.5


@pytest.mark.parametrize("transform", [Gamma(), Gamma(p_invert_image=1, p_retain_stats=0), Contrast()], ids=repr)
def test_statistics_are_each_channels_own(transform, device):
    image = make_batch(2, 3, (6, 7, 8), device=device).image * torch.tensor([1.0, 50.0, 1e-3]).view(3, 1, 1, 1).to(
        device
    )
    pipeline = Pipeline([transform])
    draw = pipeline.draw(Batch(image))
    out = pipeline.apply(Batch(image), draw).image
    for c in range(3):
        values = {k: v[:, c : c + 1] if v.ndim > 1 else v for k, v in draw.params[0].items()}
        alone = transform.apply(Batch(image[:, c : c + 1]), values).image
        assert torch.equal(out[:, c : c + 1], alone)


@pytest.mark.parametrize("invert", [0, 1])
def test_gamma_restores_mean_and_deviation(invert, device):
    image = make_batch(4, 2, (10, 11, 12), device=device).image * 3 + 20
    out = run(Gamma(p_invert_image=invert, p_retain_stats=1, gamma=(0.5, 2)), image)
    assert (out - image).abs().max().item() > 0.1
    for statistic in (torch.mean, torch.std):
        difference = statistic(out.flatten(2), -1) - statistic(image.flatten(2), -1)
        assert difference.abs().max().item() < 1e-4
    free = run(Gamma(p_invert_image=invert, p_retain_stats=0, gamma=(0.5, 2)), image)
    assert (free.mean((2, 3, 4)) - image.mean((2, 3, 4))).abs().max().item() > 0.1


@pytest.mark.parametrize(
    ("ends", "below_one", "above_high"), [((0.7, 1.5), 0.5, 0), ((1.2, 1.5), 0, 0), ((0.5, 0.9), 1, 0.6)], ids=str
)
def test_split_ranges(ends, below_one, above_high):
    """Half of the draws below 1 if there is room; for (0.5, 0.9) the upper branch is U(1, 0.9), as in nnU-Net."""
    from batchgeneratorsv2.transforms.intensity.contrast import BGContrast
    from scipy.stats import ks_2samp

    batch = Batch(torch.empty((4000, 1, 2, 2), device="meta"))
    transform = MultiplicativeBrightness(multiplier_range={"split": list(ends)})
    values = Pipeline([transform], seed=0).draw(batch).params[0]["factor"].flatten()
    assert abs((values < 1).double().mean().item() - below_one) < 0.04
    assert abs((values > ends[1]).double().mean().item() - above_high) < 0.04
    np.random.seed(0)
    real = BGContrast(ends)
    assert ks_2samp(values.numpy(), [real() for _ in range(4000)]).pvalue > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_gate_returns_equal_values_type_and_dtype(kind, device):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        image = make_batch(2, 2, (5, 6), device=device, dtype=dtype).image
        out = run(KINDS[kind](p=0.0), image)
        assert type(out) is torch.Tensor and out.dtype == dtype and torch.equal(out, image)


@pytest.mark.parametrize("kind", KINDS)
def test_500_calls_at_a_low_probability(kind):
    """Rows that are not drawn are bit-identical, those that are differ, and 5 % are."""
    image = make_batch(2, 1, (4, 5, 6)).image
    pipeline = Pipeline([KINDS[kind](p=0.05)], seed=0)
    drawn = 0
    for _ in range(500):
        batch = Batch(image)
        draw = pipeline.draw(batch)
        out = pipeline.apply(batch, draw).image
        gates = draw.params[0]["batch_prob"].tolist()
        for row, gate in enumerate(gates):
            # a low resolution close to 1 keeps all voxels
            assert torch.equal(out[row], image[row]) != bool(gate) or kind == "low resolution" and gate
        drawn += sum(gates)
    assert 20 <= drawn <= 90
