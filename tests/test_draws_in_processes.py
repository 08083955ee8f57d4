"""One pipeline in several processes, and what a pipeline does with unusual arguments."""

import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from nnunet_gpuaug import (
    AugmentationError,
    Gamma,
    GaussianNoise,
    Mirror,
    MultiplicativeBrightness,
    OneOf,
    Pipeline,
    RemoveLabel,
    Spatial,
)


def noise(pipeline: Pipeline) -> float:
    return pipeline(image=torch.zeros(1, 1, 2, 2))["image"].flatten()[0].item()


class Samples(Dataset):
    def __init__(self, seed):
        self.pipeline = Pipeline([GaussianNoise(noise_variance=1.0)], seed=seed)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return noise(self.pipeline)


@pytest.mark.parametrize("seed", [None, 3])
def test_workers_and_epochs_draw_differently(seed):
    torch.manual_seed(0)
    loader = DataLoader(Samples(seed), batch_size=1, num_workers=2, multiprocessing_context="fork")
    epochs = [[float(x) for x in loader] for _ in range(2)]
    assert len({*epochs[0], *epochs[1]}) == 12
    torch.manual_seed(0)
    again = [[float(x) for x in loader] for _ in range(2)]
    assert (again == epochs) == (seed is not None)


@pytest.mark.parametrize("seed, different", [(None, 3), (3, 1)])
def test_forked_processes(seed, different):
    pipeline = Pipeline([GaussianNoise(noise_variance=1.0)], seed=seed)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [context.Process(target=lambda: queue.put(noise(pipeline))) for _ in range(2)]
    for child in children:
        child.start()
    values = [queue.get() for _ in children] + [noise(pipeline)]
    for child in children:
        child.join()
    assert len(set(values)) == different


def test_any_iterable_of_transforms():
    assert len(Pipeline(t for t in [Gamma(), Mirror(allowed_axes=(0,))]).transforms) == 2
    assert len(OneOf(t for t in [Gamma(), Gamma()]).transforms) == 2
    for container in (Pipeline, OneOf):
        with pytest.raises(AugmentationError, match="list of transforms"):
            container(3)


@pytest.mark.parametrize("shape", [(2, 1, 6, 6, 6), (1, 2, 6, 6, 6), (1, 1, 6, 6)])
@pytest.mark.parametrize(
    "transform", [Spatial(patch_size=(4, 4, 4)), MultiplicativeBrightness(multiplier_range=2.0)], ids=str
)
def test_parameters_of_another_batch(transform, shape):
    params = transform.forward_parameters((1, 1, 6, 6, 6))
    with pytest.raises(AugmentationError):
        transform(torch.ones(shape), params=params)


def outside(value):
    return Spatial(patch_size=(9, 9, 9), border_mode_seg="constant", padding_value_seg=value)


@pytest.mark.parametrize(
    "transforms, dtype, labels",
    [
        ([outside(-1), RemoveLabel(label_value=-1, set_to=0)], torch.uint8, {0, 1}),
        ([RemoveLabel(label_value=-1, set_to=0), outside(-1)], torch.int16, {-1, 1}),
        ([RemoveLabel(label_value=1, set_to=300), RemoveLabel(label_value=-1, set_to=0)], torch.int16, {300}),
        ([outside(300), RemoveLabel(label_value=-1, set_to=0)], torch.int16, {1, 300}),
        ([Mirror(allowed_axes=(0,))], torch.uint8, {1}),
    ],
)
def test_uint8_labels_never_wrap_around(transforms, dtype, labels):
    seg = torch.ones(1, 1, 6, 6, 6, dtype=torch.uint8)
    out = Pipeline(transforms)(image=torch.zeros(1, 1, 6, 6, 6), segmentation=seg)["segmentation"]
    assert out.dtype == dtype and set(out.unique().tolist()) == labels
