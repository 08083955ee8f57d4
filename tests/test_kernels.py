"""The Triton kernels against the ops they replace: on CUDA as they are, on the CPU in Triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton")

from nnunet_gpuaug.kernels import warp
from nnunet_gpuaug.ops import geometry

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SIZES = [((9, 7, 8), (6, 5, 7)), ((5, 6, 4), (7, 6, 5)), ((11, 8), (6, 7)), ((1, 9), (1, 6))]
ANGLES = [(0.3, 0.2, -0.1), (0, 0, 1.5707963267948966)]


def matrix_for(rank, angles, scale):
    return geometry.affine_matrix(angles[-rank:], (scale,) * rank)


@pytest.fixture
def poisoned(monkeypatch):
    """New tensors hold values that no kernel writes, so that a voxel left out shows."""

    original = torch.Tensor.new_empty

    def new_empty(self, size, **kwargs):
        if not isinstance(size, tuple):  # the interpreter's own
            return original(self, size, **kwargs)
        return torch.full(size, float("nan") if self.is_floating_point() else 77, dtype=self.dtype, device=self.device)

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)


@pytest.fixture(params=[(False, False), (True, False), (True, True)], ids=["neither", "matmul", "both"])
def fused(request, monkeypatch):
    """What of the host's arithmetic multiplies and adds with one rounding: (matmul, grid_sample)."""
    if INTERPRETED and request.param[1]:
        pytest.skip("the interpreter's fma rounds twice")
    monkeypatch.setattr(geometry, "matmul_is_fused", lambda: request.param[0])
    monkeypatch.setattr(geometry, "grid_sample_is_fused", lambda rank: request.param[1])
    return request.param



def skip_on_plain_cpu(device):
    if device == "cpu" and not INTERPRETED:
        pytest.skip("runs in test_in_the_interpreter")


@pytest.mark.parametrize("size, patch", SIZES)
@pytest.mark.parametrize("angles", ANGLES)
def test_image(size, patch, angles, fused, device, poisoned):
    skip_on_plain_cpu(device)
    torch.manual_seed(0)
    image = torch.randn(2, *size, device=device)
    for view in (image, image.transpose(0, 1).contiguous().transpose(0, 1)):  # strided, too
        matrix = matrix_for(len(size), angles, 0.8)
        out = warp.warp_image(view, matrix, patch, 2.5, *fused)
        expected = geometry.warp_image(view, matrix, patch, "bilinear", "constant", 2.5)
        assert (out - expected).abs().max() <= 2e-5


@pytest.mark.parametrize("size, patch", SIZES)
@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize(
    "tiebreak, dtype", [("nearest", torch.int16), ("lowest", torch.int8), ("highest", torch.int64)]
)
def test_labels(size, patch, angles, tiebreak, dtype, fused, device, poisoned):
    skip_on_plain_cpu(device)
    torch.manual_seed(0)
    seg = torch.randint(-1, 4, (2, *size), device=device).to(dtype)
    for scale in (0.5, 1.0):
        matrix = matrix_for(len(size), angles, scale)
        counts = geometry.reaches_outside(matrix, patch, size)
        out = warp.warp_labels(seg, matrix, patch, -1, tiebreak, *fused, counts)
        assert torch.equal(out, geometry.warp_labels(seg, matrix, patch, -1, "bilinear", tiebreak))


@pytest.mark.skipif(INTERPRETED, reason="is the interpreter run")
def test_in_the_interpreter():
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
