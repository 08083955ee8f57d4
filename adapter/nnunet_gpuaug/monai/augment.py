"""A whole pipeline as one dictionary transform."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import torch
from monai.config import KeysCollection

from ..errors import AugmentationError
from ..pipeline import Pipeline
from .dictionary import SpatialDictionaryTransform

Json = Mapping[str, Any] | str | os.PathLike


class NNUNetAugmentd(SpatialDictionaryTransform):
    """The training augmentation of an nnU-Net trainer, or any other pipeline, as one dictionary transform.

    It is given by `config`, or by `plans`, `dataset_json` and `configuration`, which needs nnU-Net to be installed.
    With deep supervision the label becomes a list of targets, finest first.

        NNUNetAugmentd(keys=("image", "label"), config="configs/default_3d.yaml")

    Args:
        keys: the key of the image and, after it, that of the label map.
        config: a pipeline, the path of a YAML file or its text. A seed in it is used until `set_random_state` sets
            another, which a `Compose` does as soon as it is built.
        plans, dataset_json: an nnU-Net plans file and dataset.json, or their content.
        configuration: e.g. "3d_fullres".
        trainer: the name of any nnU-Net trainer.
        fold: number of the fold, or "all".
        batched: a value is a batch, (B, C, *S), drawn for sample by sample. False: one item, (C, *S).
        allow_missing_keys: leave out a key that the dictionary lacks, instead of raising.

    Raises:
        AugmentationError: neither or both are given, there is no such trainer, it has a transform without a
            counterpart, or the file is wrong, which is then said line by line.
    """

    def __init__(
        self,
        keys: KeysCollection = ("image", "label"),
        config: Pipeline | str | os.PathLike | None = None,
        *,
        plans: Json | None = None,
        dataset_json: Json | None = None,
        configuration: str | None = None,
        trainer: str = "nnUNetTrainer",
        fold: int | str = 0,
        batched: bool = True,
        allow_missing_keys: bool = False,
    ) -> None:
        of_nnunet = {"plans": plans, "dataset_json": dataset_json, "configuration": configuration}
        given = [name for name, value in of_nnunet.items() if value is not None]
        if len(given) != (3 if config is None else 0):
            named = ([] if config is None else ["config"]) + given
            raise AugmentationError(
                f"NNUNetAugmentd got {', '.join(named) or 'neither'}; it needs either config, or all of "
                f"{', '.join(of_nnunet)}"
            )
        if config is None:
            from ..nnunet.unstarted import pipeline_of  # nnunetv2 is needed only here

            pipeline = pipeline_of(trainer, _content(plans), _content(dataset_json), configuration, fold)
        else:
            pipeline = config if isinstance(config, Pipeline) else Pipeline.from_yaml(config)
        super().__init__(keys, pipeline, batched, allow_missing_keys)
        if pipeline.settings.seed is not None:
            self.set_random_state(seed=pipeline.settings.seed % 2**32)


NNUNetAugmentD = NNUNetAugmentDict = NNUNetAugmentd


class AugmentBatch:
    """For MONAI's trainers, `SupervisedTrainer(prepare_batch=AugmentBatch(transform))`: brings each batch to the
    training device and augments it there.

    Args:
        transform: one dictionary transform or a `Compose` of several, for batches.
        image_key, label_key: what the network and the loss get.
    """

    def __init__(self, transform: Callable, image_key: Hashable = "image", label_key: Hashable = "label") -> None:
        self.transform = transform
        self.keys = (image_key, label_key)

    def __call__(
        self,
        batchdata: Mapping[Hashable, Any],
        device: torch.device | str | None = None,
        non_blocking: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Image and label of the augmented batch; `kwargs` of `Tensor.to`."""
        here = {key: batchdata[key].to(device, non_blocking=non_blocking, **kwargs) for key in self.keys}
        out = self.transform({**batchdata, **here})
        image, label = (out[key] for key in self.keys)
        return image, label


def _content(source: Json) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return dict(source)
    try:
        content = json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise AugmentationError(f"{os.fspath(source)}: {error.strerror}") from error
    except ValueError as error:
        raise AugmentationError(f"{os.fspath(source)} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise AugmentationError(f"{os.fspath(source)} holds a {type(content).__name__}; it must be a JSON object")
    return content
