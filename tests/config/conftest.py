"""What the tests of configuration files share."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """The script that writes the presets."""
    path = Path(__file__).parents[2] / "configs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_presets", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
