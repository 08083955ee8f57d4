"""Configuration files: a pipeline and settings as YAML."""

from .reading import Config, read_config
from .settings import Settings
from .writing import write_config, write_text

__all__ = ["Config", "Settings", "read_config", "write_config", "write_text"]
