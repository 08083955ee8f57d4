"""Ranks draw differently, a seed repeats everything."""

import torch
from torch import distributed, nn

from nnunet_gpuaug import DownsampleSegForDS, GaussianNoise, Mirror, Pipeline, RemoveLabel, Spatial
from nnunet_gpuaug.nnunet.augment import DeviceAugmentation
from nnunet_gpuaug.nnunet.seeds import MAX_SEED, batch_seed, choose_base_seed


def test_seeds_of_all_batches_differ():
    seeds = [batch_seed(base, stream, rank, number)
             for base in (0, 1) for stream in ("training", "validation") for rank in range(8) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


def test_base_seed():
    assert choose_base_seed(11) == 11
    assert choose_base_seed(None) != choose_base_seed(None)


def _pipeline() -> Pipeline:
    return Pipeline([
        Spatial(patch_size=(8, 8), p_rotation=0.5, rotation=(-1, 1), border_mode_seg="constant", padding_value_seg=-1),
        GaussianNoise(noise_variance=(0.1, 0.2)),
        Mirror(allowed_axes=(0, 1)),
        RemoveLabel(label_value=-1, set_to=0),
        DownsampleSegForDS(ds_scales=(1.0, 0.5)),
    ])


def _train(raw: dict, base_seed: int, rank: int) -> dict:
    """Three steps of a small network on one raw batch; gives all that was drawn and all gradients."""
    torch.manual_seed(rank)  # the weights differ until DistributedDataParallel makes them equal
    network = nn.parallel.DistributedDataParallel(nn.Conv2d(1, 2, 3, padding=1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    augment = DeviceAugmentation(_pipeline(), torch.device("cpu"), "training", base_seed, rank=rank)

    def loss(net: nn.Module, batch: dict) -> torch.Tensor:
        return nn.functional.cross_entropy(net(batch["data"]), batch["target"][0][:, 0].long())

    done = {"base": base_seed, "batches": [], "own": [], "shared": []}
    for _ in range(3):
        batch = augment(raw)
        done["batches"].append(batch["data"])
        done["own"].append(torch.autograd.grad(loss(network.module, batch), [*network.module.parameters()]))
        optimizer.zero_grad()
        loss(network, batch).backward()
        done["shared"].append([p.grad.clone() for p in network.parameters()])
        optimizer.step()
    return done


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    generator = torch.Generator().manual_seed(0)  # the same raw batch on both ranks: only the draws can differ
    raw = {"data": torch.rand(2, 1, 12, 12, generator=generator),
           "target": torch.randint(0, 2, (2, 1, 12, 12), generator=generator).short()}
    wishes = (5, 5, None)
    runs = [_train(raw, choose_base_seed(wish if rank == 0 else None), rank) for wish in wishes]  # rank 0's wish counts
    torch.save(runs, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_ranks_draw_differently_and_agree_on_the_gradients(tmp_path):
    torch.multiprocessing.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for first, second in zip(*ranks, strict=True):
        assert first["base"] == second["base"]
        batches = first["batches"] + second["batches"]
        assert all(not torch.equal(a, b) for i, a in enumerate(batches) for b in batches[:i])
        torch.testing.assert_close(first["shared"], second["shared"], rtol=0, atol=0)
        for shared, a, b in zip(first["shared"], first["own"], second["own"], strict=True):
            assert not torch.equal(a[0], b[0])
            torch.testing.assert_close(shared, [(x + y) / 2 for x, y in zip(a, b, strict=True)])
    for seeded, again, other in ranks:
        torch.testing.assert_close(seeded, again, rtol=0, atol=0)
        assert seeded["base"] == 5 != other["base"]
