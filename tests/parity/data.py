"""Images and label maps for the parity tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

# (batch size, channels, *spatial): odd and unequal sizes, 2D and 3D, one and four channels
FORMS = {
    "2d": (1, 1, 37, 52),
    "2d-4ch": (5, 4, 33, 46),
    "3d": (2, 1, 19, 22, 27),
    "3d-4ch": (2, 4, 17, 12, 21),
    "3d-5rows": (5, 1, 13, 18, 11),
}


def unit_image(*shape: int, seed: int = 0) -> Tensor:
    """Rough image with mean 0 and standard deviation 1."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def label_map(
    shape: Sequence[int], labels: Sequence[int], smooth: bool = True, seed: int = 0, dtype: torch.dtype = torch.int16
) -> Tensor:
    """Labels (B, K, *S): blobs some voxels wide, any labels side by side; not `smooth`: each voxel on its own."""
    generator = torch.Generator().manual_seed(seed)
    rows, channels, *size = shape
    if smooth:
        coarse = torch.randn((rows * channels, 3, *(n // 8 + 2 for n in size)), generator=generator)
        fields = interpolate(coarse, size, mode="trilinear" if len(size) == 3 else "bilinear")
        steps = (fields * 1.3).floor().long().unflatten(0, (rows, channels))
        index = (3 * steps[:, :, 0] + 7 * steps[:, :, 1] + 11 * steps[:, :, 2]) % len(labels)
    else:
        index = torch.randint(len(labels), tuple(shape), generator=generator)
    return torch.tensor(list(labels), dtype=dtype)[index]
