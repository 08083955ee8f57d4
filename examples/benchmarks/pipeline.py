"""What a batch costs on the device and on the host: python examples/benchmarks/pipeline.py OUT.json [--draws N]

Default pipelines of nnU-Net's trainers, float32, label-aware segmentation, nothing left out. Device time is the mean
over the draws between two CUDA events; host time is what the calls themselves take. Stock is batchgeneratorsv2 on one
CPU thread. Nothing is reported unless image and segmentation of each pipeline agree with stock's on the same draws.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import record
import torch
from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.training.nnUNetTrainer.variants.data_augmentation.nnUNetTrainerDA5 import nnUNetTrainerDA5

from nnunet_gpuaug import Batch, Pipeline
from nnunet_gpuaug.ops import _dispatch, geometry

# name: trainer, batch, channels, labels, patch
SETUPS = {
    "3D, batch 2": (nnUNetTrainer, 2, 1, 28, (128, 128, 128)),
    "3D, batch 2, 3 labels": (nnUNetTrainer, 2, 1, 3, (128, 128, 128)),
    "3D, batch 2, 117 labels": (nnUNetTrainer, 2, 1, 117, (128, 128, 128)),
    "3D, batch 8": (nnUNetTrainer, 8, 1, 28, (128, 128, 128)),
    "3D, batch 2, 4 channels": (nnUNetTrainer, 2, 4, 28, (128, 128, 128)),
    "2D, batch 12": (nnUNetTrainer, 12, 1, 28, (512, 512)),
    "DA5, 3D, batch 2": (nnUNetTrainerDA5, 2, 1, 28, (128, 128, 128)),
}
ANGLE = {2: np.pi, 3: np.pi / 6}


def transforms(trainer, patch):
    """The trainer's training transforms with five deep-supervision targets, and the initial patch size."""
    rank, angle = len(patch), ANGLE[len(patch)]
    scales = [[0.5**level] * rank for level in range(5)]
    compose = trainer.get_training_transforms(patch, (-angle, angle), scales, tuple(range(rank)), False)
    return compose, tuple(get_patch_size(patch, *[(-angle, angle)] * 3, (0.85, 1.25)).tolist())


def make_batch(batch, channels, labels, size, device):
    generator = torch.Generator(device).manual_seed(0)
    image = torch.randn(batch, channels, *size, generator=generator, device=device)
    coarse = torch.rand(batch, 1, *[n // 8 for n in size], generator=generator, device=device)
    mode = "trilinear" if len(size) == 3 else "bilinear"
    smooth = torch.nn.functional.interpolate(coarse, size, mode=mode)
    return image, (smooth * labels).clamp(0, labels - 1).to(torch.int16)


def agrees(size, patch, labels) -> dict:
    """Image and labels under one warp, device against batchgeneratorsv2."""
    from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform

    np.random.seed(0)
    image, seg = make_batch(1, 1, labels, size, "cpu")
    stock = SpatialTransform(patch, 0, False, p_rotation=1, rotation=(-0.5, 0.5), p_scaling=1, scaling=(0.7, 1.4),
                             border_mode_seg="constant", padding_value_seg=-1)  # fmt: skip
    drawn = stock.get_parameters(image=image[0])
    expected = stock._apply_to_image(image[0], **drawn), stock._apply_to_segmentation(seg[0], **drawn)
    out = _dispatch.warp_image(image[0].cuda(), drawn["affine"], patch, "bilinear", "zeros", 0.0)
    labels_out = _dispatch.warp_labels(seg[0].cuda(), drawn["affine"], patch, -1, "bilinear", "nearest")
    return {
        "max_abs_diff": (out.cpu() - expected[0]).abs().max().item(),
        "mismatches": (labels_out.cpu() != expected[1]).sum().item(),
        "voxels": expected[1].numel(),
    }


def measure(name, draws):
    trainer, batch, channels, labels, patch = SETUPS[name]
    compose, size = transforms(trainer, patch)
    parity = agrees(size, patch, labels)
    if parity["mismatches"] or parity["max_abs_diff"] > 1e-4:
        return {"setup": name, "parity": parity, "refused": "differs from batchgeneratorsv2"}
    image, seg = make_batch(batch, channels, labels, size, "cuda")
    pipeline = Pipeline.from_nnunet(compose, seed=0)
    for _ in range(30):
        pipeline(image=image, segmentation=seg)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    host, start, end = [], *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(draws):
        began = time.perf_counter()
        pipeline(image=image, segmentation=seg)
        host.append(1000 * (time.perf_counter() - began))
    end.record()
    torch.cuda.synchronize()
    total = start.elapsed_time(end) / draws
    extra = torch.cuda.max_memory_allocated() - before
    return {
        "setup": name,
        "initial_patch": size,
        "parity": parity,
        "ms_per_batch": total,
        "device_ms": device_only(pipeline, image, seg, min(draws, 100)),
        "host_ms": record.summary(host),
        "peak_extra_over_input": extra / (image.numel() * 4 + seg.numel() * 2),
    }


def device_only(pipeline, image, seg, draws) -> float:
    """The device's busy time, with the draws and launches queued behind a long kernel so that it never waits."""
    batch = Batch(image, seg)
    busy = torch.randn(8192, 8192, device="cuda")
    total = 0.0
    for _ in range(draws):
        drawn = pipeline.draw(batch)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        busy @ busy
        start.record()
        pipeline.apply(batch, drawn)
        end.record()
        torch.cuda.synchronize()
        total += start.elapsed_time(end)
    return total / draws


def stock_ms(name, samples) -> dict:
    """batchgeneratorsv2 on one CPU thread, per sample."""
    trainer, _, channels, labels, patch = SETUPS[name]
    compose, size = transforms(trainer, patch)
    torch.set_num_threads(1)
    times = []
    for _ in range(samples):
        image, seg = make_batch(1, channels, labels, size, "cpu")
        began = time.perf_counter()
        compose(image=image[0], segmentation=seg[0])
        times.append(1000 * (time.perf_counter() - began))
    return record.summary(times)


def copy_bandwidth() -> float:
    x = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    y.copy_(x)
    start.record()
    for _ in range(20):
        y.copy_(x)
    end.record()
    torch.cuda.synchronize()
    return 2 * 20 * x.numel() / start.elapsed_time(end) / 1e9  # bytes read and written, TB/s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--stock", type=int, default=10, help="samples for stock, of the first setup; 0 for none")
    args = parser.parse_args()
    results = []
    for name in SETUPS:
        results.append(measure(name, args.draws))
        print(name, {k: v for k, v in results[-1].items() if k.endswith("_ms") or k == "ms_per_batch"}, flush=True)
    content = {
        "what": f"{args.draws} draws of each pipeline",
        "copy_tb_per_s": copy_bandwidth(),
        "matmul_is_fused": geometry.matmul_is_fused(),
        "pipelines": results,
    }
    if args.stock:
        content["stock_ms_per_sample_one_thread"] = stock_ms("3D, batch 2", args.stock)
    record.write(args.out, content)


if __name__ == "__main__":
    main()
