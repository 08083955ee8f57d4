"""What every record here says about the machine and the software that it was made with."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

PACKAGES = ("torch", "triton", "kornia", "monai", "nnunetv2", "batchgeneratorsv2", "numpy")


def environment() -> dict[str, Any]:
    """Device, processor and versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
        "cpu": cpu[0].split(":")[1].strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def summary(values: list[float]) -> dict[str, float]:
    """Mean, median and quartiles."""
    q25, median, q75 = np.percentile(values, [25, 50, 75]).tolist()
    return {"mean": float(np.mean(values)), "median": median, "q25": q25, "q75": q75, "n": len(values)}


def write(path: str | Path, content: dict[str, Any]) -> None:
    """Write a record."""
    Path(path).write_text(json.dumps({"environment": environment(), **content}, indent=1) + "\n")
