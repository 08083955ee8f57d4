"""The loader that the training loop sees, and the threads and processes behind it."""

import multiprocessing
import os
import pickle
import signal
import threading
import time

import pytest
import torch

from nnunet_gpuaug import Pipeline
from nnunet_gpuaug.nnunet.augment import DeviceAugmentation, ReadyBatch
from nnunet_gpuaug.nnunet.prefetch import AugmentedBatches
from nnunet_gpuaug.transforms import GaussianNoise

CPU = torch.device("cpu")


class Numbers:
    """A loader whose batches are filled with their number."""

    def __init__(self, fail_at: int = -1):
        self.count = 0
        self.fail_at = fail_at

    def __next__(self):
        if self.count == self.fail_at:
            raise RuntimeError("the disk is gone")
        self.count += 1
        return {"data": torch.full((2, 1, 4, 4), float(self.count)), "target": torch.ones(2, 1, 4, 4).short(),
                "keys": ["a", "b"]}


def augmentation(used: int = 0) -> DeviceAugmentation:
    return DeviceAugmentation(Pipeline([GaussianNoise(noise_variance=[0.1, 0.2])]), CPU, "training", 5, used=used)


def test_working_ahead_changes_no_batch():
    plain = AugmentedBatches(Numbers(), augmentation(), prefetch=False)
    ahead = AugmentedBatches(Numbers(), augmentation(), prefetch=True)
    for number in range(6):
        expected, batch = next(plain), next(ahead)
        assert torch.equal(batch["data"], expected["data"])
        assert batch.number == expected.number == number
        assert batch["keys"] == ["a", "b"]
    ahead.close()


def test_a_batch_depends_on_its_number_alone():
    loader = AugmentedBatches(Numbers(), augmentation(), prefetch=False)
    third = [next(loader) for _ in range(3)][2]
    resumed = augmentation(used=2)({"data": torch.full((2, 1, 4, 4), 3.0), "target": torch.ones(2, 1, 4, 4).short()})
    assert torch.equal(resumed["data"], third["data"])


def test_exactly_one_batch_is_ahead():
    numbers = Numbers()
    loader = AugmentedBatches(numbers, augmentation(), prefetch=True)
    for taken in range(1, 4):
        next(loader)
        deadline = time.time() + 10
        while numbers.count < taken + 1 and time.time() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)  # time to do too much
        assert numbers.count == taken + 1
    loader.close()


def test_closing_ends_the_thread_and_is_safe_twice():
    before = threading.active_count()
    loader = AugmentedBatches(Numbers(), augmentation(), prefetch=True)
    next(loader)
    assert threading.active_count() == before + 1
    loader.close()
    loader.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="was closed"):
        next(loader)


def test_failure_in_the_thread_reaches_the_loop():
    loader = AugmentedBatches(Numbers(fail_at=2), augmentation(), prefetch=True)
    next(loader)
    next(loader)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(loader)
    loader.close()


def test_raw_batch_is_left_as_it_was():
    raw = next(Numbers())
    ready = augmentation()(raw)
    assert isinstance(ready, ReadyBatch) and not isinstance(raw, ReadyBatch)
    assert torch.equal(raw["data"], torch.ones(2, 1, 4, 4))
    assert ready.raw_bytes == 2 * 16 * (4 + 2) and ready.ready_bytes() == ready.raw_bytes
    assert ready.augment_ms() > 0


def test_other_questions_go_to_the_loader():
    loader = AugmentedBatches(Numbers(), augmentation(), prefetch=False)
    assert loader.fail_at == -1
    assert not hasattr(loader, "no_such_thing")


def test_mps_falls_back_to_the_cpu_where_an_operator_is_missing(capsys):
    class Missing:
        generator = torch.Generator()
        calls = []

        def __call__(self, image, segmentation):
            self.calls.append(1)
            if len(self.calls) == 1:
                raise NotImplementedError("aten::grid_sampler_3d is not implemented for MPS")
            return {"image": image, "segmentation": [segmentation]}

    augment = DeviceAugmentation(Missing(), CPU, "training", 0)
    augment._work_device = torch.device("mps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nnunet_gpuaug.nnunet.augment._send", lambda tensor, device: tensor)
        ready = augment(next(Numbers()))
    assert isinstance(ready["target"], list)
    assert "runs on the CPU from now on" in capsys.readouterr().out


def test_what_the_workers_get_can_be_pickled(dataset, make_trainer):
    dataset()
    trainer = make_trainer()
    trainer.initialize()
    train, val = trainer.get_dataloaders()
    for loader in (train, val):
        copy = pickle.loads(pickle.dumps(loader.data_loader))
        assert next(copy)["data"].shape == next(loader.loader)["data"].shape


def test_workers_end_with_the_training(dataset, make_trainer):
    dataset(workers=1)
    trainer = make_trainer(epochs=1)
    trainer.run_training()
    assert not multiprocessing.active_children()


def test_workers_end_when_the_training_fails(dataset, make_trainer, monkeypatch):
    dataset(workers=1)
    trainer = make_trainer(epochs=1)
    monkeypatch.setattr(trainer, "on_train_epoch_end", lambda outputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.run_training()
    assert not multiprocessing.active_children()


# nnU-Net's thread that collects the workers' batches ends with an exception of its own
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_killed_worker_ends_the_training_and_is_named(dataset, make_trainer, monkeypatch):
    dataset(workers=1)
    trainer = make_trainer(epochs=1, iterations=200)
    step = trainer.train_step

    def train_step(batch):
        for process in trainer.dataloader_train.loader._processes:
            os.kill(process.pid, signal.SIGKILL)
        return step(batch)

    monkeypatch.setattr(trainer, "train_step", train_step)
    with pytest.raises(RuntimeError, match="worker 0 was ended by signal 9"):
        trainer.run_training()
    assert not multiprocessing.active_children()


def _work(data_loader, queue) -> None:
    batch = next(data_loader)
    queue.put((tuple(batch["data"].shape), tuple(batch["target"].shape), torch.cuda.is_initialized()))


def test_a_spawned_worker_makes_a_batch_without_cuda(dataset, make_trainer):
    dataset()
    trainer = make_trainer()
    trainer.initialize()
    train, _ = trainer.get_dataloaders()
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    worker = context.Process(target=_work, args=(train.loader.data_loader, queue))
    worker.start()
    data, target, cuda = queue.get()
    worker.join()
    size = trainer.configure_rotation_dummyDA_mirroring_and_inital_patch_size()[2]
    assert worker.exitcode == 0
    assert data == target == (2, 1, *size)  # not yet cropped: the device does it
    assert not cuda


def test_the_wrapped_loader_pickles(dataset, make_trainer):
    dataset()
    trainer = make_trainer()
    trainer.initialize()
    train, _ = trainer.get_dataloaders()
    assert next(pickle.loads(pickle.dumps(train)))["data"].shape == (2, 1, 8, 20, 16)
