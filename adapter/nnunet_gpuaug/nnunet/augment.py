"""One pipeline at work: a loader's batch goes in, a batch that is ready for the network comes out."""

import time

import torch

from nnunet_gpuaug.nnunet.seeds import batch_seed


class ReadyBatch(dict):
    """A loader's batch whose `data` and `target` are augmented and on the training device.

    Attributes:
        number: position of the batch in its stream of draws.
        wait_ms: how long the training loop waited for it.
        raw_bytes: size of image and segmentation before the augmentation.
    """

    number: int = 0
    wait_ms: float = 0.0
    raw_bytes: int = 0
    _host_ms: float = 0.0
    _events: tuple | None = None

    def tensors(self) -> list[torch.Tensor]:
        """The device tensors that the batch holds."""
        target = self["target"]
        return [self["data"], *(target if isinstance(target, list) else [target])]

    def ready_bytes(self) -> int:
        """Size of the tensors handed to the network."""
        return sum(t.nelement() * t.element_size() for t in self.tensors())

    def memory_ahead(self) -> str:
        """What a batch like this one takes on the device while the network trains on the one before."""
        raw, ready = self.raw_bytes / 2**20, self.ready_bytes() / 2**20
        return (
            f"Prefetch keeps one more batch on the device: {ready:.0f} MiB when ready; while it is made, "
            f"{raw:.0f} MiB more and the working memory of the augmentation."
        )

    def augment_ms(self) -> float:
        """Time of copy and augmentation; on CUDA that of the device, known once the batch was used, else 0."""
        if self._events is None:
            return self._host_ms
        start, end = self._events
        return start.elapsed_time(end) if end.query() else 0.0


class DeviceAugmentation:
    """Copies a loader's batches to a device and runs a pipeline on them.

    Args:
        pipeline: the pipeline to run.
        device: where the network trains.
        stream: "training" or "validation"; they draw from different seeds.
        base_seed: the training's base seed.
        rank: rank of this process in a distributed training, else 0.
        used: number of batches that earlier parts of this training used.
    """

    def __init__(self, pipeline, device: torch.device, stream: str, base_seed: int, rank: int = 0, used: int = 0):
        self.pipeline = pipeline
        self.device = device
        self.stream = stream
        self.base_seed = base_seed
        self.rank = rank
        self.used = used
        self._drawn = used
        self._work_device = device

    @torch.no_grad()
    def __call__(self, batch: dict) -> ReadyBatch:
        """Copy and augment one batch, on the current CUDA stream if the device is a CUDA one."""
        ready = ReadyBatch(batch)
        ready.number, self._drawn = self._drawn, self._drawn + 1
        self.pipeline.generator.manual_seed(batch_seed(self.base_seed, self.stream, self.rank, ready.number))
        with _Clock(ready, self.device):
            out = self._run(batch["data"], batch["target"])
        ready["data"], ready["target"] = out["image"], out["segmentation"]
        ready.raw_bytes = sum(t.nelement() * t.element_size() for t in (batch["data"], batch["target"]))
        return ready

    def _run(self, image: torch.Tensor, segmentation: torch.Tensor) -> dict:
        image, segmentation = (_send(t, self._work_device) for t in (image, segmentation))
        try:
            out = self.pipeline(image=image, segmentation=segmentation)
        except NotImplementedError as missing:
            if self._work_device.type != "mps":
                raise
            print(f"The augmentation runs on the CPU from now on: {missing}", flush=True)
            self._work_device = torch.device("cpu")
            return self._run(image, segmentation)
        if self._work_device == self.device:
            return out
        target = out["segmentation"]
        target = [t.to(self.device) for t in target] if isinstance(target, list) else target.to(self.device)
        return {"image": out["image"].to(self.device), "segmentation": target}


def _send(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()  # else the copy would block; nnU-Net's workers deliver pinned tensors already
    return tensor.to(device, non_blocking=device.type == "cuda")


class _Clock:
    """Times a block: with CUDA events on the current stream, which wait for nothing, else with the wall clock."""

    def __init__(self, ready: ReadyBatch, device: torch.device):
        self.ready = ready
        self.cuda = device.type == "cuda"

    def __enter__(self):
        if self.cuda:
            self.start = torch.cuda.Event(enable_timing=True)
            self.start.record()
        else:
            self.start = time.perf_counter()

    def __exit__(self, *exc):
        if self.cuda:
            end = torch.cuda.Event(enable_timing=True)
            end.record()
            self.ready._events = (self.start, end)
        else:
            self.ready._host_ms = 1000 * (time.perf_counter() - self.start)
