"""What a configuration file may say besides its transforms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The `settings:` of a configuration file.

    Attributes:
        seed: of the draws; None takes one from the system's entropy.
        prefetch: in a training on CUDA, augment the next batch while the network trains on the current one.
        on_unmapped: what a training does with an nnU-Net transform that has no counterpart: "error" stops, "host"
            leaves it, and all before it, to the data-loading workers.
        kernels: "auto" uses the Triton kernels where there is one, "off" the PyTorch ops alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    prefetch: bool = True
    on_unmapped: Literal["error", "host"] = "error"
    kernels: Literal["auto", "off"] = "auto"
