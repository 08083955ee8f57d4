"""The default pipelines: targets, masks, regions, cascades, dummy 2D and independent draws."""

import math
import multiprocessing

import numpy as np
import pytest
import torch

from cases import default_compose, make_batch, patch_of
from checks import tensors
from nnunet_gpuaug import ApplyRandomBinaryOperator, Batch, Draw, Gamma, MaskImage, Pipeline, RemoveLabel

SIZE = (12, 13, 14)


def default(size=SIZE, channels=1, seed=0, **options) -> Pipeline:
    return Pipeline.from_nnunet(default_compose(size, channels, gates=0.8, **options), seed=seed)


def validation(**options) -> Pipeline:
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    return Pipeline.from_nnunet(nnUNetTrainer.get_validation_transforms([[1.0] * 3, [0.5] * 3], **options))


def run(pipeline: Pipeline, batch: Batch) -> Batch:
    return pipeline.apply(batch, pipeline.draw(batch))


def upto(pipeline: Pipeline, kind: type) -> tuple[Pipeline, int]:
    """The steps up to the first of a kind, and how many they are."""
    count = next(i for i, step in enumerate(pipeline.transforms, start=1) if type(step) is kind)
    return Pipeline(pipeline.transforms[:count]), count


def first_steps(pipeline: Pipeline, kind: type, batch: Batch, draw: Draw) -> Batch:
    part, count = upto(pipeline, kind)
    return part.apply(batch, Draw(draw.names[:count], draw.params[:count]))


def test_outside_never_reaches_the_targets(device):
    """-1 is in the input (outside the mask) and in the padding, but in no target, at no resolution."""
    batch = make_batch(4, 1, SIZE, device=device, labels=(-1, 0, 1, 2))
    training, plain = default(), validation()
    draw = training.draw(batch)
    assert (first_steps(training, type(training.transforms[0]), batch, draw).segmentation == -1).any()
    for out in (training.apply(batch, draw), run(plain, batch)):
        targets = tensors(out)[1:]
        assert len(targets) == 2 and all(int(t.min()) == 0 and int(t.max()) == 2 for t in targets)
    assert (batch.segmentation == -1).any()


def test_validation_images_are_not_augmented(device):
    batch = make_batch(2, 2, SIZE, device=device, labels=(-1, 0, 1, 2))
    out = run(validation(), batch)
    assert torch.equal(out.image, batch.image)
    assert torch.equal(out.segmentation[0], batch.segmentation.clamp(min=0))


def test_the_mask_of_a_channel(device):
    """use_mask_for_norm = [True, False]: channel 0 is exactly 0 where the segmentation is -1, channel 1 is not."""
    batch = make_batch(4, 2, SIZE, device=device, labels=(-1, 0, 1))
    pipeline = default(channels=2, masked=True)
    draw = pipeline.draw(batch)
    out = first_steps(pipeline, MaskImage, batch, draw)
    outside = out.segmentation[:, 0] == -1
    assert 0.05 < outside.float().mean().item() < 0.95
    assert (out.image[:, 0][outside] == 0).all() and (out.image[:, 0][~outside] != 0).float().mean().item() > 0.9
    assert (out.image[:, 1][outside] != 0).float().mean().item() > 0.5
    assert torch.equal(pipeline.apply(batch, draw).image, out.image)  # nothing after it touches the image
    names = list(draw.names)
    assert names.index("MaskImage") == names.index("RemoveLabel") - 1 and "Mirror" in names[: names.index("MaskImage")]


@pytest.mark.parametrize("size", [SIZE, (13, 14)])
def test_without_deep_supervision_the_target_is_one_tensor(size, device):
    batch = make_batch(2, 1, size, device=device)
    out = default(size, deep_supervision=False)(image=batch.image, segmentation=batch.segmentation)
    assert isinstance(out["segmentation"], torch.Tensor) and out["segmentation"].shape == (2, 1, *patch_of(size))
    deep = default(size)(image=batch.image, segmentation=batch.segmentation)["segmentation"]
    assert isinstance(deep, list) and len(deep) == 2


class TestRegions:
    options = {"regions": [(1, 2, 3), 2, (2, 3)], "ignore_label": 4}

    def test_values_and_order(self, device):
        labels = (-1, 0, 1, 2, 3, 4)
        batch = make_batch(3, 1, SIZE, device=device, labels=labels)
        pipeline = default(**self.options)
        draw = pipeline.draw(batch)
        seg = first_steps(pipeline, RemoveLabel, batch, draw).segmentation[:, 0]
        target = pipeline.apply(batch, draw).segmentation[0]
        assert target.dtype == torch.bool and set(seg.unique().tolist()) == set(labels) - {-1}
        for channel, members in enumerate([(1, 2, 3), (2,), (2, 3), (4,)]):  # the ignore mask is the last
            assert torch.equal(target[:, channel], torch.isin(seg, torch.tensor(members, device=device)))

    def test_equal_to_nnunets(self, device):
        batch = make_batch(1, 1, SIZE, device=device, labels=(0, 1, 2, 3, 4))
        compose = default_compose(SIZE, **self.options)
        real = compose.transforms[-2:]
        sample = {"image": batch.image[0].cpu(), "segmentation": batch.segmentation[0].cpu()}
        for step in real:
            sample = step(**sample)
        ours = Pipeline([step for r in real for step in Pipeline.from_nnunet(r).transforms])
        for target, expected in zip(run(ours, batch).segmentation, sample["segmentation"], strict=True):
            assert torch.equal(target[0].cpu(), expected)

    @pytest.mark.parametrize("labels", [(4,), (0,), (0, 1, 2, 3, 4)], ids=["all ignored", "empty", "all"])
    def test_nnunets_loss_is_finite(self, labels, device):
        from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss
        from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss

        batch = make_batch(2, 1, SIZE, device=device, labels=labels)
        loss = DC_and_BCE_loss(
            {},
            {"batch_dice": True, "do_bg": True, "smooth": 1e-5, "ddp": False},
            use_ignore_label=True,
            dice_class=MemoryEfficientSoftDiceLoss,
        )
        for target in run(default(**self.options), batch).segmentation:
            prediction = torch.randn((2, 3, *target.shape[2:]), device=device)
            assert bool(loss(prediction, target).isfinite())


class TestCascade:
    options = {"is_cascaded": True, "foreground_labels": (1, 3, 7)}

    def test_the_new_channels_are_0_and_1(self, device):
        batch = make_batch(6, 2, SIZE, 2, device=device, labels=(0, 1, 3, 7))
        out = run(default(channels=2, **self.options), batch)
        added = out.image[:, 2:]
        assert added.shape[1] == 3 and ((added == 0) | (added == 1)).all() and 0 < added.mean().item() < 1
        assert out.segmentation[0].shape[1] == 1

    @pytest.mark.parametrize("remove", [True, False])
    def test_the_second_channel_is_taken_as_nnunet_takes_it(self, remove, device):
        from batchgeneratorsv2.transforms.nnunet.seg_to_onehot import MoveSegAsOneHotToDataTransform

        batch = make_batch(1, 2, SIZE, 3, device=device, labels=(0, 1, 3, 7))
        real = MoveSegAsOneHotToDataTransform(1, (1, 3, 7), remove)
        expected = real(image=batch.image[0].cpu(), segmentation=batch.segmentation[0].cpu())
        out = run(Pipeline.from_nnunet(real), batch)
        assert torch.equal(out.image[0].cpu(), expected["image"])
        assert torch.equal(out.segmentation[0].cpu(), expected["segmentation"])

    def test_the_previous_stage_moves_with_the_segmentation(self, device):
        """Where it equals the segmentation, its channels equal the target's labels, until they are changed."""
        batch = make_batch(6, 1, SIZE, 2, device=device, labels=(0, 1, 3, 7))
        seg = batch.segmentation[:, :1].expand(-1, 2, -1, -1, -1)
        compose = default_compose(SIZE, gates=0.8, **self.options)
        cascade = ("ApplyRandomBinary", "RemoveRandomConnected")
        kept = [t for t in compose.transforms if not repr(getattr(t, "transform", "")).startswith(cascade)]
        compose.transforms = kept
        assert len(kept) == len(default_compose(SIZE, **self.options).transforms) - 2
        out = run(Pipeline.from_nnunet(compose, seed=0), Batch(batch.image, seg))
        for channel, label in enumerate((1, 3, 7), start=1):
            assert torch.equal(out.image[:, channel], (out.segmentation[0][:, 0] == label).float())


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("radius", [1, 1.4, 1.5, 2, 2.6, 3.5])
@pytest.mark.parametrize("operator", ["dilation", "erosion", "closing", "opening"])
def test_binary_operators_of_real_radii_are_nnunets(operator, radius, rank, device):
    """The side of the element is 2 r + 1, rounded down (2D: up): an even side has its centre off the voxel."""
    from batchgeneratorsv2.transforms.nnunet import random_binary_operator as real
    from skimage.morphology import ball, disk

    mask = torch.zeros([18] * rank)
    mask[(slice(6, 14),) * rank] = 1
    mask[(slice(0, 2),) * rank] = 1
    mask[(10,) * rank] = 0
    element = torch.from_numpy((ball if rank == 3 else disk)(radius, dtype=bool))
    assert element.shape[0] == (math.floor if rank == 3 else math.ceil)(2 * radius + 1)
    expected = getattr(real, f"binary_{operator}_torch")(mask.bool(), element).float()
    step = ApplyRandomBinaryOperator(channel_idx=(0,), any_of_these=(operator,), strel_size=radius)
    out = run(Pipeline([step]), Batch(mask[None, None].to(device))).image[0, 0].cpu()
    assert torch.equal(out, expected) and (operator in ("closing", "opening") or not torch.equal(out, mask))


class TestDummy2D:
    def test_slices_stay_slices(self, device):
        """Slice k filled with k keeps it: nothing is resampled across slices; outside is 0."""
        from nnunet_gpuaug import Convert2DTo3D

        values = torch.arange(1.0, 7, device=device).view(1, 1, 6, 1, 1)
        batch = Batch(values.expand(4, 2, 6, 15, 16), values.expand(4, 1, 6, 15, 16).to(torch.int16))
        pipeline = default((6, 15, 16), channels=2, dummy_2d=True)
        draw = pipeline.draw(batch)
        assert draw.params[1]["warp"].any()
        out = first_steps(pipeline, Convert2DTo3D, batch, draw)
        assert out.image.shape[2] == 6
        for k in range(6):
            assert (out.image[:, :, k] <= k + 1 + 1e-4).all() and (out.image[:, :, k] >= -1e-4).all()
            assert set(out.segmentation[:, :, k].unique().tolist()) <= {k + 1, -1}
        inside = (out.segmentation == values).expand_as(out.image)
        assert (out.image[:, :, :, 5:6, 6:7] - values).abs().max().item() < 1e-4 and inside.float().mean().item() > 0.5

    def test_all_slices_of_a_row_move_alike(self, device):
        plane = make_batch(4, 1, (15, 16), device=device)
        image, seg = (t[:, :, None].expand(-1, -1, 6, -1, -1) for t in (plane.image, plane.segmentation))
        from nnunet_gpuaug import Convert2DTo3D

        pipeline = default((6, 15, 16), dummy_2d=True)
        batch = Batch(image, seg)
        out = first_steps(pipeline, Convert2DTo3D, batch, pipeline.draw(batch))
        for t in tensors(out):
            assert torch.equal(t, t[:, :, :1].expand_as(t))
        assert not torch.equal(out.image[0, :, 0], out.image[1, :, 0])

    def test_axis_0_is_mirrored_but_keeps_its_resolution(self):
        by_name = {type(step).__name__: step.spec for step in default((6, 15, 16), dummy_2d=True).transforms}
        assert by_name["Mirror"].allowed_axes == (0, 1, 2)
        assert by_name["SimulateLowResolution"].ignore_axes == (0,)
        assert by_name["Spatial"].patch_size == patch_of((6, 15, 16))[1:]


def test_steps_run_outside_of_autocast_and_without_gradients():
    seen = []

    class Watching(Gamma):
        def apply(self, batch, params):
            seen.append((torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), batch.image.dtype))
            return super().apply(batch, params)

    image = make_batch(2, 1, (5, 6), dtype=torch.bfloat16).image.requires_grad_()
    with torch.autocast("cpu"):
        Pipeline([Watching()])(image=image)
        Watching()(image)
        assert torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()
    assert seen == [(False, False, torch.float32)] * 2


def _draws(seed) -> list[float]:
    """In another process: a few values that a pipeline draws."""
    pipeline = Pipeline([Gamma()], seed=seed)
    return pipeline.draw(make_batch(2, 1, (3, 3))).params[0]["exponent"].flatten().tolist()


def test_eight_processes_draw_differently():
    """Without a seed from the system's entropy, with seeds reproducibly; forked, so that all start alike."""
    with multiprocessing.get_context("fork").Pool(8) as pool:
        free = pool.map(_draws, [None] * 8, chunksize=1)
        seeded = [pool.map(_draws, range(8), chunksize=1) for _ in range(2)]
    assert len({tuple(values) for values in free}) == 8
    assert seeded[0] == seeded[1] and len({tuple(values) for values in seeded[0]}) == 8


def test_one_hundred_seeds(device):
    """Equal rows get different draws, whatever the batch size and the seed."""
    row = make_batch(1, 1, (6, 6), device=device)
    same = 0
    for seed in range(100):
        rows = (2, 5, 6, 4)[seed % 4]
        pipeline = Pipeline([Gamma(p=0.9)], seed=seed)
        out = pipeline(image=row.image.expand(rows, -1, -1, -1))["image"]
        same += len(out.flatten(1).unique(dim=0)) == 1
    assert same <= 3  # two rows whose gates are both closed: 1 in 100 of a quarter


def test_a_draw_keeps_every_bit():
    """Real values are stored as drawn: a float32 would be another rotation, and labels at a tie would change."""
    draw = default().draw(make_batch(3, 1, SIZE))
    real = [v for params in draw.params for v in params.values() if v.is_floating_point()]
    assert len(real) > 10 and all(v.dtype == torch.float64 for v in real)
    assert any(bool((v != v.float().double()).any()) for v in real)


def test_gates_are_drawn_for_each_row():
    """3,000 rows in batches of 3: the rate, and how often the three agree (not always, as with one gate a batch)."""
    pipeline = Pipeline([Gamma(p=0.3)], seed=0)
    batch = Batch(torch.empty((3, 1, 2, 2), device="meta"))
    gates = np.array([pipeline.draw(batch).params[0]["batch_prob"].tolist() for _ in range(1000)])
    assert abs(gates.mean() - 0.3) < 5 * (0.21 / 3000) ** 0.5
    agree = (gates == gates[:, :1]).all(1).mean()
    assert abs(agree - (0.3**3 + 0.7**3)) < 5 * (0.25 / 1000) ** 0.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_pinned_input():
    batch = make_batch(2, 1, SIZE)
    pinned = Batch(batch.image.pin_memory(), batch.segmentation.pin_memory())
    pipeline = default()
    draw = pipeline.draw(batch)
    for a, b in zip(tensors(pipeline.apply(pinned, draw)), tensors(pipeline.apply(batch, draw)), strict=True):
        assert torch.equal(a, b)
