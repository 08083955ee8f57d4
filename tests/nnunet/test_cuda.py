"""The same on CUDA: prefetching changes no batch, waits for nothing and keeps the memory flat."""

import time
from pathlib import Path

import pytest
import torch
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug import Pipeline
from nnunet_gpuaug.nnunet.augment import DeviceAugmentation
from nnunet_gpuaug.nnunet.options import read_options
from nnunet_gpuaug.nnunet.prefetch import AugmentedBatches
from nnunet_gpuaug.nnunet.run import Job, build_trainer

pytestmark = pytest.mark.gpu

PATCH, LARGER = (48, 48, 48), (76, 76, 76)


class Batches:
    """A loader of a few pinned batches, repeated."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.batches = [
            {"data": torch.randn(2, 1, *LARGER, generator=generator).pin_memory(),
             "target": torch.randint(-1, 3, (2, 1, *LARGER), generator=generator).short().pin_memory()}
            for _ in range(3)
        ]
        self.count = 0

    def __next__(self):
        self.count += 1
        return dict(self.batches[self.count % 3])


def loader(prefetch: bool) -> AugmentedBatches:
    transforms = nnUNetTrainer.get_training_transforms(
        PATCH, (-0.5, 0.5), [[1, 1, 1], [0.5, 0.5, 0.5]], (0, 1, 2), False
    )
    assert isinstance(transforms, ComposeTransforms)
    device = torch.device("cuda", 0)
    augment = DeviceAugmentation(Pipeline.from_nnunet(transforms, seed=1), device, "training", 1)
    return AugmentedBatches(Batches(), augment, prefetch)


def busy_step(batch) -> torch.Tensor:
    """Something that reads the batch late: the device is kept busy first."""
    torch.cuda._sleep(20_000_000)
    return sum(t.double().sum() for t in batch.tensors())


def test_prefetching_changes_no_batch():
    plain, ahead = loader(False), loader(True)
    sums = []
    for batches in (plain, ahead):
        # no waiting in between: an order that is only right by luck would show
        sums.append(torch.stack([busy_step(next(batches)) for _ in range(40)]).cpu())
    ahead.close()
    assert torch.equal(*sums)


def test_no_step_waits_for_the_device():
    for prefetch in (False, True):
        batches = loader(prefetch)
        next(batches)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                busy_step(next(batches))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        batches.close()


@pytest.mark.parametrize("wait", [True, False])
def test_memory_stays_flat(wait):
    batches = loader(True)
    peaks = []
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        for _ in range(25):
            busy_step(next(batches))
            if wait:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_reserved())
    batches.close()
    assert peaks[-1] <= peaks[1] * 1.05


def test_work_ahead_is_hidden():
    waits = {}
    for prefetch in (False, True):
        batches = loader(prefetch)
        times = []
        for _ in range(30):
            torch.cuda.synchronize()
            start = time.perf_counter()
            batch = next(batches)
            torch.cuda.current_stream().synchronize()
            times.append(time.perf_counter() - start)
            busy_step(batch)
        batches.close()
        waits[prefetch] = sorted(times)[len(times) // 2]
    assert waits[True] < waits[False]


@pytest.mark.parametrize("prefetch", [True, False])
def test_trains_on_cuda(dataset, prefetch):
    dataset(workers=1)
    options = read_options(seed=1, epochs=2, iterations=4, prefetch=prefetch)
    trainer = build_trainer(Job("901", "3d_fullres", 0, options=options))
    trainer.gpuaug_configure(options)
    trainer.run_training()
    log = Path(trainer.log_file).read_text()
    assert ("Prefetch keeps one more batch on the device" in log) == prefetch
    saved = torch.load(Path(trainer.output_folder) / "checkpoint_final.pth", weights_only=False)
    assert saved["nnunet_gpuaug"]["batches_used"]["training"] == 8
