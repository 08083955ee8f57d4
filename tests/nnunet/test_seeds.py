"""Ranks draw differently, a seed repeats everything."""

import torch
from torch import distributed

from nnunet_gpuaug import Pipeline
from nnunet_gpuaug.nnunet.augment import DeviceAugmentation
from nnunet_gpuaug.nnunet.seeds import MAX_SEED, batch_seed, choose_base_seed
from nnunet_gpuaug.transforms import GaussianNoise


def test_seeds_of_all_batches_differ():
    seeds = [batch_seed(base, stream, rank, number)
             for base in (0, 1) for stream in ("training", "validation") for rank in range(8) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


def test_base_seed():
    assert choose_base_seed(11) == 11
    assert choose_base_seed(None) != choose_base_seed(None)


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    zeros = {"data": torch.zeros(2, 1, 8, 8), "target": torch.zeros(2, 1, 8, 8).short()}
    runs = []
    for wanted in (5, 5, None):
        base = choose_base_seed(wanted if rank == 0 else None)  # only rank 0's wish counts
        pipeline = Pipeline([GaussianNoise(noise_variance=[0.1, 0.2])])
        augment = DeviceAugmentation(pipeline, torch.device("cpu"), "training", base, rank=rank)
        runs.append({"base": base, "batches": [augment(zeros)["data"] for _ in range(3)]})
    torch.save(runs, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_share_the_base_seed_and_draw_differently(tmp_path):
    torch.multiprocessing.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for first, second in zip(*ranks, strict=True):
        assert first["base"] == second["base"]
        batches = first["batches"] + second["batches"]
        assert all(not torch.equal(a, b) for i, a in enumerate(batches) for b in batches[:i])
    for seeded, again, other in ranks:
        assert all(torch.equal(a, b) for a, b in zip(seeded["batches"], again["batches"], strict=True))
        assert seeded["base"] == 5 != other["base"]
