"""What holds for every transform and for the whole default pipelines: see `cases.py` for the list."""

import pytest
import torch

from cases import CASES, Case, make_batch
from checks import assert_same, check, differ, tensors
from nnunet_gpuaug import Batch, ConvertSegmentationToRegions, Draw, Pipeline, RemoveLabel, Spatial
from nnunet_gpuaug.transforms.base import Transform

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
gated = [case for case in CASES if case.steps()[-1].gated and not case.name.startswith("default")]


def run(case: Case, batch: Batch, seed: int = 0) -> Batch:
    pipeline = case.pipeline(tuple(batch.image.shape[2:]), seed=seed)
    return pipeline.apply(batch, pipeline.draw(batch))


def check_finite(batch: Batch) -> None:
    assert all(bool(t.isfinite().all()) for t in tensors(batch))


def expected_shapes(case: Case, batch: Batch) -> list[tuple[int, ...]]:
    shape = batch.shape
    for step in case.steps():
        shape = step.shape_after(shape)
    image = (len(batch), shape.channels, *shape.spatial)
    return [image] if batch.segmentation is None else [image, (len(batch), shape.seg_channels, *shape.spatial)]


def test_every_transform_has_a_case():
    import nnunet_gpuaug.transforms as package

    used = {type(step).__name__ for case in CASES for step in case.steps()}
    assert used == set(package.__all__)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_shape_and_image_dtype(case, device, dtype):
    batch = case.batch(device=device, dtype=dtype)
    out = run(case, batch)
    assert [tuple(t.shape) for t in tensors(out)][:2] == expected_shapes(case, batch)
    assert out.image.dtype == dtype and out.image.device.type == device
    check_finite(out)
    if dtype != torch.float64:  # computed in float32, then rounded once
        full = run(case, Batch(batch.image.float(), batch.segmentation))
        assert_same(out, Batch(full.image.to(dtype), full.segmentation))
    elif not case.noisy:
        single = run(case, Batch(batch.image.float(), batch.segmentation))
        assert_same(Batch(out.image.float(), out.segmentation), single, rtol=1e-4, atol=1e-4)


SEGMENTATIONS = {
    torch.uint8: (0, 1, 3, 200),  # more than 127 labels
    torch.int8: (-1, 0, 1, 3),
    torch.int16: (-1, 1, 3, 300),  # more than 255
    torch.int32: (-1, 1, 3, 300),
    torch.int64: (-1, 1, 3, 300),
    torch.float32: (-1, 1, 3, 300),
}


def leaves_outside(case):
    """Whether -1 can stay in the segmentation, which uint8 could not hold."""
    steps = case.steps()
    pads = any(isinstance(s, Spatial) and s.spec.border_mode_seg == "constant" for s in steps)
    return pads and not any(isinstance(s, RemoveLabel) for s in steps)


@each_case
@pytest.mark.parametrize("dtype", SEGMENTATIONS, ids=str)
def test_segmentation_dtype(case, device, dtype):
    batch = case.batch(device=device, seg_dtype=dtype, labels=SEGMENTATIONS[dtype])
    out = run(case, batch)
    reference = run(case, Batch(batch.image, batch.segmentation.to(torch.int64)))
    for got, expected in zip(tensors(out)[1:], tensors(reference)[1:], strict=True):
        assert torch.equal(got.long(), expected.long())
        if any(isinstance(step, ConvertSegmentationToRegions) for step in case.steps()):
            assert got.dtype == torch.bool
        elif dtype == torch.uint8 and leaves_outside(case):
            assert got.dtype == torch.int16
        else:
            assert got.dtype == dtype


@each_case
def test_input_is_unchanged(case, device):
    batch = case.batch(device=device)
    image, seg = batch.image.clone(), batch.segmentation.clone()
    versions = batch.image._version, batch.segmentation._version
    run(case, batch)
    assert torch.equal(batch.image, image) and torch.equal(batch.segmentation, seg)
    assert (batch.image._version, batch.segmentation._version) == versions


@each_case
def test_a_row_of_a_batch_equals_the_row_alone(case, device):
    batch, pipeline = case.batch(5, device=device), case.pipeline()
    draw = pipeline.draw(batch)
    whole = pipeline.apply(batch, draw)
    for row in range(5):
        assert_same(pipeline.apply(batch.rows(row, row + 1), draw.rows(row, row + 1)), whole.rows(row, row + 1))


@each_case
def test_a_draw_does_not_depend_on_the_batch_size(case):
    one, five = (case.pipeline(seed=7).draw(case.batch(rows)) for rows in (1, 5))
    assert one.names == five.names
    for alone, among in zip(one.params, five.rows(0, 1).params, strict=True):
        assert alone.keys() == among.keys()
        assert all(torch.equal(alone[name], among[name]) for name in alone)


@pytest.mark.parametrize("case", gated, ids=lambda case: case.name)
def test_a_closed_gate_changes_nothing(case, device):
    batch = case.batch(8, device=device)
    before = Pipeline(case.steps()[:-1])
    untouched = before.apply(batch, before.draw(batch))
    shut = case.pipeline(p=0.0)
    assert_same(shut.apply(batch, shut.draw(batch)), untouched)

    half = case.pipeline(p=0.5)
    draw = half.draw(batch)
    out, gates = half.apply(batch, draw), draw.params[-1]["batch_prob"].tolist()
    assert {0, 1} == set(gates)
    for row, gate in enumerate(gates):
        if not gate:
            assert_same(out.rows(row, row + 1), untouched.rows(row, row + 1))
    assert not case.random or differ(out, untouched)


@each_case
def test_a_saved_draw_replays(case, device, tmp_path):
    batch, pipeline = case.batch(device=device), case.pipeline()
    draw = pipeline.draw(batch)
    out = pipeline.apply(batch, draw)
    assert_same(pipeline.apply(batch, draw), out)

    draw.save(tmp_path / "draw.pt")
    loaded = Draw.load(tmp_path / "draw.pt")
    assert loaded.names == draw.names
    for a, b in zip(loaded.params, draw.params, strict=True):
        assert a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)
    assert_same(case.pipeline(seed=99).apply(batch, loaded), out)


@each_case
def test_the_seed_decides(case, device):
    batch = case.batch(5, device=device)
    first = run(case, batch, seed=1)
    assert_same(run(case, batch, seed=1), first)
    others = [differ(run(case, batch, seed=seed), first) for seed in (2, 3)]
    assert any(others) == case.random


@each_case
def test_a_call_is_draw_and_apply(case, device):
    batch = case.batch(device=device)
    out = case.pipeline(seed=3)(image=batch.image, segmentation=batch.segmentation)
    assert set(out) == {"image", "segmentation"}
    assert_same(Batch(out["image"], out["segmentation"]), run(case, batch, seed=3))


@pytest.mark.parametrize("case", [c for c in CASES if not c.needs_seg], ids=lambda case: case.name)
def test_without_a_segmentation(case, device):
    batch = case.batch(device=device)
    out = case.pipeline()(image=batch.image)
    assert set(out) == {"image"}
    assert torch.equal(out["image"], run(case, batch).image)


@each_case
@pytest.mark.parametrize("layout", ["permuted", "strided", "expanded"])
def test_memory_layout(case, device, layout):
    batch = case.batch(device=device)

    def relayout(x: torch.Tensor) -> torch.Tensor:
        if layout == "permuted":
            return x.transpose(1, -1).contiguous().transpose(1, -1)
        if layout == "strided":
            return torch.stack([x, x], dim=-1).flatten(-2)[..., ::2]
        return x[:1].expand(x.shape)

    odd = Batch(relayout(batch.image), relayout(batch.segmentation))
    assert not odd.image.is_contiguous()
    plain = Batch(odd.image.contiguous(), odd.segmentation.contiguous())
    # statistics of a channel are summed in another order
    assert_same(run(case, odd), run(case, plain), rtol=1e-5, atol=1e-5)


@each_case
@pytest.mark.parametrize("value", [0.0, 5.0, -3.0])
def test_constant_images(case, device, value):
    batch = case.batch(device=device)
    out = run(case, Batch(torch.full_like(batch.image, value), batch.segmentation))
    check_finite(out)
    if case.keeps_constants and not case.needs_seg:
        assert (out.image - value).abs().max() <= 1e-5


@each_case
@pytest.mark.parametrize("label", [0, 1])
def test_constant_segmentations(case, device, label):
    batch = case.batch(device=device)
    out = run(case, Batch(batch.image, torch.full_like(batch.segmentation, label)))
    check_finite(out)
    for target in tensors(out)[1:]:
        assert set(target.unique().tolist()) <= {-1, 0, 1, label}


@each_case
def test_negative_images(case, device):
    batch = case.batch(device=device)
    check_finite(run(case, Batch(-batch.image.abs() - 10, batch.segmentation)))


@each_case
@pytest.mark.parametrize("kind", ["one voxel", "first", "last", "last two"])
def test_axes_of_one_voxel(case, device, kind):
    size = list(case.size)
    for axis in {"one voxel": range(case.rank), "first": [0], "last": [-1], "last two": [-1, -2]}[kind]:
        size[axis] = 1
    batch = case.batch(size=tuple(size), device=device)
    if case.cubic and len(set(size)) > 1:
        check(lambda: run(case, batch), "allowed_axes", "equal length", str(tuple(size)))
    else:
        check_finite(run(case, batch))


@each_case
def test_one_object_for_all_batch_sizes(case, device):
    pipeline = case.pipeline()
    for rows in (1, 2, 5, 6, 4):
        batch = case.batch(rows, device=device)
        out = pipeline.apply(batch, pipeline.draw(batch, torch.Generator().manual_seed(rows)))
        fresh = case.pipeline()
        assert_same(out, fresh.apply(batch, fresh.draw(batch, torch.Generator().manual_seed(rows))))


@pytest.mark.parametrize("case", [c for c in CASES if c.random], ids=lambda case: case.name)
def test_equal_rows_get_different_draws(case, device):
    one = case.batch(1, device=device)
    batch = Batch(one.image.repeat_interleave(6, 0), one.segmentation.repeat_interleave(6, 0))
    out = run(case, batch)
    others = [differ(out.rows(row, row + 1), out.rows(0, 1)) for row in range(1, 6)]
    assert any(others)


@each_case
def test_nan_stays_in_its_row_and_channel(case, device):
    batch, pipeline = case.batch(device=device), case.pipeline()
    draw = pipeline.draw(batch)
    clean = pipeline.apply(batch, draw)
    image = batch.image.clone()
    image[(0, 0, *[n // 2 for n in image.shape[2:]])] = torch.nan
    out = pipeline.apply(Batch(image, batch.segmentation), draw)
    assert_same(out.rows(1, 3), clean.rows(1, 3))
    if not case.shares_statistics:
        per_channel = clean.image.shape[1] // case.channels if clean.folded else 1
        torch.testing.assert_close(out.image[:, per_channel:], clean.image[:, per_channel:], rtol=0, atol=0)
    assert_same(Batch(clean.image, out.segmentation), clean)


@each_case
def test_autocast_and_gradients_do_not_matter(case, device):
    batch = case.batch(device=device)
    plain = run(case, batch)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert_same(run(case, batch), plain)
    out = run(case, Batch(batch.image.clone().requires_grad_(), batch.segmentation))
    assert_same(Batch(out.image.detach(), out.segmentation), plain)


def test_cases_cover_the_kinds():
    """The list itself: both ranks, with and without gates, one and several channels."""
    assert {case.rank for case in CASES} == {2, 3} and {case.channels for case in CASES} >= {1, 2, 4}
    assert len(gated) > 20 and all(isinstance(step, Transform) for case in CASES for step in case.steps())
    assert len(make_batch(5, 1, (3, 4))) == 5
