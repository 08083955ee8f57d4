"""What a user can choose about a training, from a configuration file and the command line."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from nnunet_gpuaug import AugmentationError, Settings
from nnunet_gpuaug.config import read_config
from nnunet_gpuaug.transforms.base import Transform


@dataclass(frozen=True)
class TrainingOptions:
    """What a user can choose about a training beyond nnU-Net's own options.

    Attributes:
        settings: what a configuration file can set besides the pipeline.
        transforms: the training pipeline; None takes the trainer's own.
        epochs: number of epochs; None leaves the trainer's.
        iterations: training iterations per epoch; None leaves the trainer's. Validation iterations scale along.
        source: where `transforms` come from, for messages.
        notes: lines for the log that say what was taken from where.
    """

    settings: Settings = Settings()
    transforms: tuple[Transform, ...] | None = None
    epochs: int | None = None
    iterations: int | None = None
    source: str = "the given pipeline"
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("epochs", "iterations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise AugmentationError(f"{name}={value} must be at least 1")


def read_options(
    config: str | None = None, epochs: int | None = None, iterations: int | None = None, **chosen
) -> TrainingOptions:
    """The options that a configuration file and the command line give together; the command line wins.

    Args:
        config: path of the file, if there is one.
        epochs, iterations: as in `TrainingOptions`.
        chosen: fields of `Settings` from the command line; None where nothing was chosen.

    Raises:
        ConfigError: the file cannot be used; lists all that is wrong with it.
        AugmentationError: a value from the command line is not allowed.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    transforms, from_file = None, {}
    if config is not None:
        content = read_config(Path(config))
        transforms, from_file = tuple(content.transforms), content.settings.model_dump(exclude_unset=True)
    try:
        settings = Settings(**{**from_file, **chosen})
    except ValidationError as error:
        wrong = error.errors()[0]
        option = wrong["loc"][0].replace("_", "-")
        raise AugmentationError(f"--{option} {wrong['input']}: {wrong['msg']}") from None
    origins = {**dict.fromkeys(Settings.model_fields, "default"), **dict.fromkeys(from_file, config)}
    origins.update(dict.fromkeys(chosen, "command line"))
    notes = ["Training pipeline: the trainer's own" if config is None else f"Training pipeline: from {config}"]
    notes += [f"Setting {name}: {getattr(settings, name)} ({origin})" for name, origin in origins.items()]
    return TrainingOptions(settings, transforms, epochs, iterations, config or TrainingOptions.source, tuple(notes))
