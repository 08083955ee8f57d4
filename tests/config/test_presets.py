"""The presets are what the installed nnU-Net builds, and every shipped trainer can be written as such a file."""

import contextlib
import importlib
import io
import pkgutil
import warnings
from pathlib import Path

import nnunetv2.training.nnUNetTrainer as shipped
import pytest
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_gpuaug import Pipeline
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.cli.counterparts import COUNTERPARTS, comment
from nnunet_gpuaug.nnunet.mapping import RULES
from nnunet_gpuaug.nnunet.unstarted import pipeline_of

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
REGENERATE = "run configs/generate.py, and look at what changed"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_preset(path, generate):
    text = generate.generate(generate.PRESETS[path.stem])
    assert path.read_text(encoding="utf-8") == text, REGENERATE
    pipeline = Pipeline.from_yaml(path)
    without_comments = "".join(line for line in text.splitlines(True) if not line.lstrip().startswith("#"))
    assert pipeline.to_yaml() == without_comments
    assert sum(line.startswith("  - kind") for line in text.splitlines()) == len(pipeline.transforms)


def test_each_preset_has_a_file(generate):
    assert {path.stem for path in FILES} == set(generate.PRESETS)


def shipped_trainers() -> list[str]:
    """Every trainer class in nnunetv2."""
    found = {nnUNetTrainer}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(shipped.__path__, shipped.__name__ + "."):
            if not module.ispkg:
                classes = [c for c in vars(importlib.import_module(module.name)).values() if isinstance(c, type)]
                found.update(c for c in classes if issubclass(c, nnUNetTrainer))
    return sorted(c.__name__ for c in found)


def test_every_shipped_trainer(generate, monkeypatch):
    """In 3D, 2D, dummy 2D, and in a cascade with regions and an ignore label: mapped, and nothing is lost as YAML."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # which is all that two trainers ask for
    trainers = shipped_trainers()
    assert len(trainers) > 70 and "nnUNetTrainer_onlyMirror01_DA5" in trainers
    plans, labels = generate.example_plans(), generate.LABELS
    asked = [("3d_fullres", labels), ("2d", labels), ("3d_flat", labels), ("3d_cascade_fullres", generate.REGIONS)]
    seen, failed = set(), []
    for trainer in trainers:
        for configuration, names in asked:
            try:
                pipeline = pipeline_of(trainer, plans, generate.example_dataset(names), configuration)
            except ValueError as error:
                failed.append(f"{trainer} {configuration}: {error}")
                continue
            text = pipeline.to_yaml()
            if text in seen:
                continue
            seen.add(text)
            again = Pipeline.from_yaml(text)
            assert again.to_yaml() == text and list(map(repr, again.transforms)) == list(map(repr, pipeline.transforms))
            all(comment(t) for t in pipeline.transforms)
    assert not failed, "\n".join(failed)
    assert len(seen) > 30


class TestCounterparts:
    def test_every_transform_has_one(self):
        assert set(COUNTERPARTS) == set(T.__all__)

    def test_nnunet_names_are_those_that_are_mapped(self):
        mapped = {rule.target.__name__: source.__name__ for source, rule in RULES.items()}
        assert {name: row.nnunet for name, row in COUNTERPARTS.items()} == {**mapped, "OneOf": "OneOfTransform"}

    def test_the_libraries_have_these_classes(self):
        with contextlib.redirect_stdout(io.StringIO()):
            import kornia.augmentation
            import monai.transforms
        for row in COUNTERPARTS.values():
            assert not row.kornia or hasattr(kornia.augmentation, row.kornia)
            assert not row.monai or hasattr(monai.transforms, row.monai)
            assert row.used.split(":")[0] in ("library", "custom")

    def test_lines_are_short(self):
        assert max(len(f"      # {row}") for row in COUNTERPARTS.values()) <= 120
