"""Random values, drawn on the host.

Every row of a batch has a stream of its own, derived from the seed of the call and the row's index, so that a row's
draw does not change when the batch grows. Values come from three distributions, written as nnU-Net writes them.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from .errors import AugmentationError

SEED_BITS = 62  # fits a signed 64-bit tensor element


def draw_seed(generator: torch.Generator | None = None) -> int:
    """A seed for one call, from `generator` or from torch's global CPU generator."""
    return int(torch.randint(2**SEED_BITS, (), generator=generator))


def row_streams(seed: int, batch_size: int) -> list[random.Random]:
    """One independent random stream for each row; row i's depends on `seed` and i alone."""
    return [random.Random((seed << 32) | row) for row in range(batch_size)]


@dataclass(frozen=True)
class Constant:
    """Always `value`."""

    value: float

    def __call__(self, rng: random.Random) -> float:
        return self.value


@dataclass(frozen=True)
class Uniform:
    """U(low, high), as `np.random.uniform`."""

    low: float
    high: float

    def __call__(self, rng: random.Random) -> float:
        return rng.uniform(self.low, self.high)


@dataclass(frozen=True)
class SplitRange:
    """Half of the draws below 1, half above: batchgeneratorsv2's `BGContrast`.

    With probability 1/2, if low < 1: U(low, 1); otherwise U(max(low, 1), high). For high < 1 the upper branch is
    U(1, high) and so returns values between high and 1, which is what BGContrast does.
    """

    low: float
    high: float

    def __call__(self, rng: random.Random) -> float:
        if rng.random() < 0.5 and self.low < 1:
            return rng.uniform(self.low, 1)
        return rng.uniform(max(self.low, 1), self.high)


@dataclass(frozen=True)
class Either:
    """One of several ranges, chosen with equal probability, and a value uniform in it."""

    ranges: tuple[Uniform, ...]

    def __call__(self, rng: random.Random) -> float:
        return rng.choice(self.ranges)(rng)


@dataclass(frozen=True)
class LogUniformOfSize:
    """exp(U(log(n // divisor), log(n))) for an axis of n voxels; n // divisor is taken as at least 1."""

    divisor: int

    def of_size(self, rng: random.Random, n: int) -> float:
        return math.exp(rng.uniform(math.log(max(1, n // self.divisor)), math.log(n)))


Distribution = Constant | Uniform | SplitRange | Either
_ALLOWED = (
    "a number, a range [low, high] with low <= high, {split: [low, high]}, or {either: [[low, high], [low, high]]}"
)


def _numbers(values: Any) -> list[float]:
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) or not abs(v) < math.inf for v in values):
        raise AugmentationError(f"must be {_ALLOWED}")
    return [float(v) for v in values]


def as_distribution(value: Any) -> Distribution:
    """Read a value as nnU-Net (`RandomScalar`) or YAML writes it: 0.3, [0.5, 1], {split: [0.7, 1.5]}.

    Raises:
        AugmentationError: for anything else, low > high, and infinite or missing numbers.
    """
    if isinstance(value, (Constant, Uniform, SplitRange, Either)):
        return value
    if isinstance(value, dict) and set(value) == {"either"} and isinstance(value["either"], (list, tuple)):
        ranges = tuple(as_distribution(v) for v in value["either"])
        if ranges and all(isinstance(r, Uniform) for r in ranges):
            return Either(ranges)
        raise AugmentationError(f"must be {_ALLOWED}")
    if isinstance(value, (int, float)):
        return Constant(*_numbers([value]))
    split = isinstance(value, dict) and set(value) == {"split"}
    ends = value["split"] if split else value
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise AugmentationError(f"must be {_ALLOWED}")
    low, high = _numbers(ends)
    if low > high:
        raise AugmentationError(f"must be {_ALLOWED}")
    return SplitRange(low, high) if split else Uniform(low, high)


def as_plain(value: Distribution) -> Any:
    """The form that `as_distribution` reads back."""
    if isinstance(value, Either):
        return {"either": [as_plain(r) for r in value.ranges]}
    if isinstance(value, Constant):
        return float(value.value)
    ends = [float(value.low), float(value.high)]
    return ends if isinstance(value, Uniform) else {"split": ends}


def lowest(value: Distribution) -> float:
    """The lower end of what can be drawn."""
    if isinstance(value, Either):
        return min(r.low for r in value.ranges)
    return value.value if isinstance(value, Constant) else value.low


def highest(value: Distribution) -> float:
    """The upper end of what can be drawn."""
    if isinstance(value, Either):
        return max(r.high for r in value.ranges)
    if isinstance(value, SplitRange):
        return max(value.high, 1)
    return value.value if isinstance(value, Constant) else value.high


def _not_negative(value: Distribution) -> Distribution:
    if lowest(value) < 0:
        raise AugmentationError("reaches below 0; only 0 and above is allowed")
    return value


def _positive(value: Any) -> Any:
    if not isinstance(value, LogUniformOfSize) and lowest(value) <= 0:
        raise AugmentationError("reaches down to 0 or below; only above 0 is allowed")
    return value


def _percentile(value: Distribution) -> Distribution:
    if not 0 <= lowest(value) <= highest(value) <= 100:
        raise AugmentationError(f"{as_plain(value)!r} is not within 0 to 100")
    return value


def as_axis_distribution(value: Any) -> Distribution | LogUniformOfSize:
    """As `as_distribution`, or {log_uniform_of_size: divisor} for values that follow the length of the axis."""
    if isinstance(value, LogUniformOfSize):
        return value
    if isinstance(value, dict) and set(value) == {"log_uniform_of_size"}:
        divisor = value["log_uniform_of_size"]
        if isinstance(divisor, bool) or not isinstance(divisor, int) or divisor < 1:
            raise AugmentationError("must be {log_uniform_of_size: a whole number from 1 on}")
        return LogUniformOfSize(divisor)
    return as_distribution(value)


def axis_distribution_as_plain(value: Distribution | LogUniformOfSize) -> Any:
    """The form that `as_axis_distribution` reads back."""
    return {"log_uniform_of_size": value.divisor} if isinstance(value, LogUniformOfSize) else as_plain(value)


Scalar = Annotated[Distribution, BeforeValidator(as_distribution), PlainSerializer(as_plain)]
NotNegative = Annotated[Scalar, AfterValidator(_not_negative)]
Positive = Annotated[Scalar, AfterValidator(_positive)]
PositiveAxisScalar = Annotated[
    Distribution | LogUniformOfSize,
    BeforeValidator(as_axis_distribution),
    AfterValidator(_positive),
    PlainSerializer(axis_distribution_as_plain),
]
Percentile = Annotated[Scalar, AfterValidator(_percentile)]
Probability = Annotated[float, Field(ge=0, le=1)]

IntegerRange = (
    Annotated[int, Field(ge=1)]
    | Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]], Field(description="[low, high)")]
)


def draw_integer(rng: random.Random, value: int | tuple[int, int]) -> int:
    """`value`, or a whole number from [low, high); low if that is empty."""
    return value if isinstance(value, int) else rng.randrange(value[0], max(value[1], value[0] + 1))
