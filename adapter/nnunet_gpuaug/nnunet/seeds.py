"""Seeds: one base seed for a training, and from it one for each rank, stream and batch.

A batch's draws follow from (base seed, stream, rank, number of the batch) alone. So ranks differ, nothing repeats
after a resume, prefetching changes nothing, and a checkpoint has to store only the base seed and a count.
"""

import secrets

import numpy as np
from torch import distributed

MAX_SEED = 2**63 - 1
STREAMS = {"training": 0, "validation": 1}


def choose_base_seed(wanted: int | None) -> int:
    """The training's base seed: the wanted one or entropy. All ranks of a distributed run get rank 0's."""
    seed = secrets.randbelow(2**32) if wanted is None else wanted
    if distributed.is_available() and distributed.is_initialized():
        box = [seed]
        distributed.broadcast_object_list(box, src=0)
        seed = box[0]
    return seed


def batch_seed(base_seed: int, stream: str, rank: int, number: int) -> int:
    """The seed of one batch's draws.

    Args:
        base_seed: the training's base seed.
        stream: "training" or "validation".
        rank: the process's rank in a distributed training, else 0.
        number: how many batches of this stream and rank came before.
    """
    words = np.random.SeedSequence((base_seed, STREAMS[stream], rank, number)).generate_state(1, np.uint64)
    return int(words[0]) & MAX_SEED
