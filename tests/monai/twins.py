"""Dictionary transforms from transforms, and dictionaries for them."""

from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor, list_data_collate

from nnunet_gpuaug import Batch, OneOf
from nnunet_gpuaug import monai as M
from nnunet_gpuaug.monai.dictionary import DictionaryTransform
from nnunet_gpuaug.transforms.base import Transform

CLASSES = {name: getattr(M, name) for name in M.__all__ if name.endswith("d")}
BOTH = ("image", "label")
KEYS = {"images": "image", "labels": "label", "image and label": BOTH}
AFFINE = torch.tensor([[0.0, -2, 0, 5], [1.5, 0, 0, -7], [0, 0, 3, 11], [0, 0, 0, 1]], dtype=torch.float64)


def class_of(kind: type[Transform]) -> type[DictionaryTransform]:
    """The dictionary transform class of a transform class."""
    return CLASSES.get(f"RandNNUNet{kind.__name__}d") or CLASSES[f"NNUNet{kind.__name__}d"]


def twin_of(transform: Transform, seed: int = 0, **options: Any) -> DictionaryTransform:
    """The dictionary transform with a transform's parameters."""
    twin = class_of(type(transform))
    if isinstance(transform, OneOf):
        options["transforms"] = list(transform.transforms)
    else:
        options |= transform.spec.model_dump()
        if transform.gated:
            options["prob"] = transform.p
    made = twin(KEYS[twin.holds], **options)
    return made.set_random_state(seed) if hasattr(made, "set_random_state") else made


def generator_of(seed: int) -> torch.Generator:
    """What a dictionary transform draws from in its first call after `set_random_state(seed)`."""
    return torch.Generator().manual_seed(int(np.random.RandomState(seed).randint(2**62, dtype=np.int64)))


def collated(batch: Batch, affine: torch.Tensor = AFFINE) -> dict[str, Any]:
    """The batch as MONAI's loader makes it: MetaTensors, each item with its own affine and name."""
    rows = []
    for row in range(len(batch)):
        own = affine.clone()
        own[:3, 3] += row
        values = {"image": batch.image[row], "label": batch.segmentation[row]}
        item = {key: MetaTensor(x.clone(), affine=own.clone(), meta={"name": f"{row}"}) for key, x in values.items()}
        rows.append({**item, "other": row})
    return list_data_collate(rows)
