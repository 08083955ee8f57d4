"""The loader that the training loop sees: an iterator over augmented batches, one of them ahead of time on CUDA."""

import queue
import threading
import time

import torch

from nnunet_gpuaug.nnunet.augment import DeviceAugmentation, ReadyBatch


class AugmentedBatches:
    """Wraps a loader of raw batches and yields augmented ones that are on the device.

    With prefetch a thread copies and augments the next batch on a CUDA stream of its own while the network trains on
    the current one. Exactly one batch is ahead, so the extra memory is one batch and the working memory of one
    augmentation. Without prefetch the work happens in `next()`, on the current stream.

    Everything else that is asked of it (`generator`, `num_processes`, `restart`, ...) is the loader's.

    Args:
        loader: nnU-Net's loader, already started.
        augment: what to do with each batch.
        prefetch: whether to work ahead.
    """

    def __init__(self, loader, augment: DeviceAugmentation, prefetch: bool):
        self.loader = loader
        self._augment = augment
        self._workers = list(getattr(loader, "_processes", ()))
        self._ahead = _Ahead(self._next_ready, augment.device) if prefetch else None

    def __iter__(self):
        return self

    def __next__(self) -> ReadyBatch:
        if self._ahead is None:
            return self._next_ready()
        start = time.perf_counter()
        batch = self._ahead.take()
        batch.wait_ms = 1000 * (time.perf_counter() - start)
        return batch

    def __getattr__(self, name):
        if name == "loader":  # not set yet, while unpickling
            raise AttributeError(name)
        return getattr(self.loader, name)

    def close(self) -> None:
        """Stop working ahead. The loader itself, which is nnU-Net's, stays open."""
        if self._ahead is not None:
            self._ahead.stop()

    def _finish(self, *args, **kwargs) -> None:
        # What nnU-Net calls on its own loaders to end their workers.
        self.close()
        if hasattr(self.loader, "_finish"):
            self.loader._finish(*args, **kwargs)

    def _next_ready(self) -> ReadyBatch:
        start = time.perf_counter()
        try:
            raw = next(self.loader)
        except RuntimeError as err:
            raise RuntimeError(self._why_workers_ended(err)) from err
        wait_ms = 1000 * (time.perf_counter() - start)
        ready = self._augment(raw)
        ready.wait_ms = wait_ms
        return ready

    def _why_workers_ended(self, err: RuntimeError) -> str:
        killed = [f"worker {i} was ended by signal {-p.exitcode}" for i, p in enumerate(self._workers)
                  if _exitcode(p) is not None and p.exitcode < 0]
        if not killed:
            return str(err)
        return f"The data loader stopped: {'; '.join(killed)} (signal 9 usually means out of memory)."


def _exitcode(process) -> int | None:
    try:
        return process.exitcode
    except ValueError:  # the process object was closed
        return None


_LAUNCHING = 0.5  # share of an iteration that is left to the training loop alone


class _Ahead:
    """Runs `make` in a thread, at most one result ahead of `take`, on a CUDA stream of its own if there is CUDA."""

    def __init__(self, make, device: torch.device):
        self._make = make
        self._device = device
        self._cuda = device.type == "cuda"
        self._results = queue.Queue(maxsize=1)
        self._room = threading.Semaphore(1)
        self._used = None  # CUDA event: all work on the batches handed out before the latest one
        self._taken = []  # when the latest batches were handed out
        self._stopped = threading.Event()
        self._thread = None

    def take(self):
        """The next batch; the current CUDA stream is made to wait for it."""
        if self._stopped.is_set():
            raise RuntimeError("the prefetching loader was closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="nnunet_gpuaug prefetch", daemon=True)
            self._thread.start()
        batch, done = self._results.get()
        if isinstance(batch, BaseException):
            self._stopped.set()
            raise batch
        if self._cuda:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(done)
            for tensor in batch.tensors():
                # Its memory belongs to the other stream, which must not reuse it while this one still reads it.
                tensor.record_stream(current)
            self._used = current.record_event()
        self._taken = [*self._taken[-8:], time.perf_counter()]
        self._room.release()
        return batch

    def stop(self) -> None:
        """End the thread and drop what it made ahead. Safe to call twice."""
        self._stopped.set()
        self._room.release()
        if self._thread is not None:
            self._thread.join(timeout=60)
        while not self._results.empty():
            self._results.get_nowait()

    def _launching(self) -> float:
        # the shortest of the latest iterations: between two lie now and then a validation and a checkpoint
        taken = self._taken
        return _LAUNCHING * min((b - a for a, b in zip(taken, taken[1:], strict=False)), default=0.0)

    def _work(self) -> None:
        try:
            if self._cuda:
                torch.cuda.set_device(self._device)
                stream = torch.cuda.Stream(self._device)
            while True:
                self._room.acquire()
                if self._stopped.is_set():
                    return
                if not self._cuda:
                    self._results.put((self._make(), None))
                    continue
                # The training loop now launches its forward and backward pass. Launching beside it would slow it
                # down, for only one thread at a time runs Python; later it waits for the device and there is time.
                self._stopped.wait(self._launching())
                if self._used is not None:
                    # Not needed for the order of things but for the memory: a loop that never waits for the device
                    # could otherwise pile up batches.
                    self._used.synchronize()
                with torch.cuda.stream(stream):
                    self._results.put((self._make(), stream.record_event()))
        except BaseException as err:  # handed to the training loop, which raises it
            self._results.put((err, None))
