"""On CUDA the pipeline never makes the host wait for the device, and keeps no memory."""

import gc
from collections.abc import Iterator

import pytest
import torch

from cases import default_compose, make_batch
from checks import tensors
from nnunet_gpuaug import Batch, Pipeline

pytestmark = pytest.mark.gpu

PIPELINES = {
    "3d": ((20, 22, 24), 1, {}),
    "3d_4_channels": ((20, 22, 24), 4, {"masked": True}),
    "2d": ((40, 44), 2, {}),
    "dummy_2d": ((6, 30, 32), 2, {"dummy_2d": True}),
    "regions": ((20, 22, 24), 1, {"regions": [(1, 2, 3), (2, 3), 3], "ignore_label": 4}),
    "cascade": ((20, 22, 24), 1, {"is_cascaded": True, "foreground_labels": (1, 2, 3)}),
}


def build(name: str, seed: int = 0) -> Pipeline:
    """The default pipeline, with its gates open more often; a cascade without the step that looks for components."""
    size, channels, options = PIPELINES[name]
    compose = default_compose(size, channels, gates=0.6, **options)
    kept = [t for t in compose.transforms if "RemoveRandomConnectedComponent" not in repr(t)]
    assert len(kept) == len(compose.transforms) - (name == "cascade")
    compose.transforms = kept
    return Pipeline.from_nnunet(compose, seed=seed)


def batch_for(name: str, seed: int = 0) -> Batch:
    size, channels, options = PIPELINES[name]
    return make_batch(
        4, channels, size, 1 + options.get("is_cascaded", False), device="cuda", labels=(-1, 0, 1, 2, 3, 4), seed=seed
    )


@pytest.fixture(scope="module")
def warm() -> None:
    """What is compiled or allocated once may wait."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    for name in PIPELINES:
        batch, pipeline = batch_for(name), build(name)
        for _ in range(5):
            pipeline(image=batch.image, segmentation=batch.segmentation)
    torch.cuda.synchronize()


@pytest.fixture
def no_waiting(warm) -> Iterator[None]:
    """Puts the debug mode of synchronisations back after the test."""
    before = torch.cuda.get_sync_debug_mode()
    yield
    torch.cuda.set_sync_debug_mode(before)


def test_the_check_itself(no_waiting):
    x = torch.ones(3, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="synchronizing"):
        x.sum().item()


@pytest.mark.parametrize("name", PIPELINES)
def test_no_synchronisation(name, no_waiting):
    batches = [batch_for(name, seed) for seed in range(3)]
    results = []
    torch.cuda.set_sync_debug_mode("error")
    for seed in range(30):
        batch = batches[seed % 3]
        pipeline = build(name, seed)
        draw = pipeline.draw(batch)
        results.append(pipeline.apply(batch, draw))
        called = pipeline(image=batch.image, segmentation=batch.segmentation)
        results.append(Batch(called["image"], called["segmentation"]))
    torch.cuda.set_sync_debug_mode("default")
    assert len(results) == 60
    for out in results:
        assert all(t.is_cuda and bool(t.isfinite().all()) for t in tensors(out))


@pytest.mark.parametrize("name", ["3d", "cascade"])
def test_no_synchronisation_from_pinned_memory(name, no_waiting):
    """As in a training: the batch comes from pinned memory, and float16 and uint8 change nothing."""
    batch, pipeline = batch_for(name), build(name)
    pinned = batch.image.cpu().half().pin_memory(), batch.segmentation.clamp(min=0).cpu().byte().pin_memory()
    torch.cuda.set_sync_debug_mode("error")
    image, seg = (t.to("cuda", non_blocking=True) for t in pinned)
    with torch.autocast("cuda"):
        out = pipeline(image=image, segmentation=seg)
    torch.cuda.set_sync_debug_mode("default")
    assert out["image"].dtype == torch.float16 and out["segmentation"][0].dtype == torch.uint8


@pytest.mark.parametrize("name", PIPELINES)
def test_memory_is_flat(name, no_waiting):
    """200 iterations after a warm-up: neither what stays allocated nor the peak grows."""
    gc.collect()  # what earlier tests left may be freed at any time
    batch, pipeline = batch_for(name), build(name)
    draws = [pipeline.draw(batch, torch.Generator().manual_seed(seed)) for seed in range(20)]
    peaks, left = [], []
    for _ in range(11):
        torch.cuda.reset_peak_memory_stats()
        for draw in draws:
            pipeline.apply(batch, draw)
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated())
        left.append(torch.cuda.memory_allocated())
    assert max(left[1:]) <= left[1] and max(peaks[1:]) <= 1.01 * peaks[1]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_side_stream_gives_the_same(name, no_waiting):
    batch, pipeline = batch_for(name), build(name)
    draw = pipeline.draw(batch)
    expected = pipeline.apply(batch, draw)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = pipeline.apply(batch, draw)
    torch.cuda.current_stream().wait_stream(stream)
    for a, b in zip(tensors(out), tensors(expected), strict=True):
        assert torch.equal(a, b)
