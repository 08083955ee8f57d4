"""Imports go downward only, and the package works without nnU-Net, MONAI and Triton."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nnunet_gpuaug

PACKAGE = Path(nnunet_gpuaug.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# What each part of the package may import of the others.
BELOW = {
    "errors": set(),
    "kernels": set(),
    "ops": {"kernels", "errors"},
    "sampling": {"errors"},
    "batch": {"errors"},
    "transforms": {"ops", "sampling", "batch", "errors"},
    "config": {"transforms", "errors"},
    "pipeline": {"config", "transforms", "ops", "sampling", "batch", "errors"},
}
BELOW["__init__"] = BELOW["pipeline"] | {"pipeline"}
BELOW["nnunet"] = BELOW["__init__"] | {"__init__"}
BELOW["monai"] = BELOW["nnunet"] | {"nnunet"}
BELOW["cli"] = BELOW["monai"] | {"monai"}

# Who may import what of others' packages.
OPTIONAL = {
    "nnunetv2": {"nnunet", "cli"},
    "batchgeneratorsv2": {"nnunet", "cli"},
    "batchgenerators": {"nnunet", "cli"},
    "dynamic_network_architectures": {"nnunet", "cli"},
    "acvl_utils": {"nnunet", "cli"},
    "monai": {"monai", "cli"},
    "triton": {"kernels"},
}

# nnU-Net is needed only if this is called, and it has to be a method of Pipeline.
ALLOWED_UPWARD = ("pipeline", "nnunet", "from_nnunet")


class Import(NamedTuple):
    part: str
    target: str
    ours: bool
    function: str | None

    def __str__(self) -> str:
        return f"{self.part} imports {self.target}" + (f" in {self.function}()" if self.function else "")


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[Import]:
    """Every import in a file, at any depth, with the function that it is in."""
    package = ("nnunet_gpuaug", *path.relative_to(PACKAGE).parts[:-1])

    def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        base = [*package[: len(package) - node.level + 1]] if node.level else []
        base += node.module.split(".") if node.module else []
        if base == ["nnunet_gpuaug"]:  # `from nnunet_gpuaug import x`: a part of it, or a public name
            parts = [a.name if a.name in BELOW else "__init__" for a in node.names]
            return [f"nnunet_gpuaug.{part}" for part in parts]
        return [".".join(base)]

    def walk(node: ast.AST, function: str | None) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            if isinstance(child, ast.Import | ast.ImportFrom):
                for target in targets(child):
                    top, *rest = target.split(".")
                    ours = top == "nnunet_gpuaug"
                    name = (rest[0] if rest else "__init__") if ours else top
                    yield Import(part_of(path), name, ours, inside)
            yield from walk(child, inside)

    yield from walk(ast.parse(path.read_text()), None)


def upward(found: Import) -> bool:
    if (found.part, found.target, found.function) == ALLOWED_UPWARD:
        return False
    return found.ours and found.target != found.part and found.target not in BELOW[found.part]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downward(path):
    assert part_of(path) in BELOW, f"{path} belongs to no part; say above what it may import"
    assert [str(found) for found in imports_of(path) if upward(found)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_optional_packages_are_imported_where_they_belong(path):
    found = [i for i in imports_of(path) if not i.ours and i.target in OPTIONAL]
    assert [str(i) for i in found if i.part not in OPTIONAL[i.target]] == []


def test_the_one_import_upward_is_still_there():
    """Otherwise the exception above would hide others."""
    found = [i for path in FILES for i in imports_of(path) if (i.part, i.target, i.function) == ALLOWED_UPWARD]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from ..pipeline import Pipeline", True),
        ("def f():\n    from ..nnunet import mapping", True),
        ("import nnunet_gpuaug.cli.train", True),
        ("from nnunet_gpuaug import Pipeline", True),
        ("from .. import pipeline as p", True),
        ("from ..transforms import base", True),
        ("from . import geometry", False),
        ("from ..errors import AugmentationError", False),
        ("from torch import Tensor", False),
    ],
)
def test_the_check_itself(text, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "new.py").write_text(text)
    assert [upward(found) for found in imports_of(tmp_path / "ops" / "new.py")] == [expected]


def test_the_trainers_folder_holds_one_file():
    """nnU-Net imports every file beside the one that it looks for."""
    assert len(list((PACKAGE / "nnunet" / "discover").rglob("*.py"))) == 1


USE = """
import sys
for name in {blocked}:
    sys.modules[name] = None
import torch
import nnunet_gpuaug as aug
steps = [aug.Spatial(patch_size=(4, 5, 6), p_rotation=1), aug.GaussianBlur(), aug.Mirror(allowed_axes=(0,))]
pipeline = aug.Pipeline(steps)
out = pipeline(image=torch.randn(2, 1, 6, 7, 8), segmentation=torch.ones(2, 1, 6, 7, 8, dtype=torch.int16))
print(tuple(out["image"].shape), *sorted(set({blocked}) & {{n.split(".")[0] for n, m in sys.modules.items() if m}}))
"""


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_works_without_the_optional_packages():
    done = python(USE.format(blocked=sorted(OPTIONAL)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2, 1, 4, 5, 6)"


def test_says_what_is_missing_for_nnunet():
    block = "import sys; sys.modules['batchgeneratorsv2'] = None"
    done = python(f"{block}; from nnunet_gpuaug import Pipeline; Pipeline.from_nnunet(1)")
    assert done.returncode == 1 and "batchgeneratorsv2" in done.stderr.splitlines()[-1]
