"""What the tests of configuration files share."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """The script that writes the presets."""
    spec = importlib.util.spec_from_file_location("generate_presets", CONFIGS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
