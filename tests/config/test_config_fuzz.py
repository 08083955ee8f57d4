"""Whatever the text is, reading it gives a configuration or a ConfigError, and what was read can be written."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnunet_gpuaug import ConfigError
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.config import read_config, write_config

PRESET = (Path(__file__).parents[2] / "configs" / "da5_cascade.yaml").read_text()
NAMES = sorted({name for kind in T.__all__ for name in getattr(T, kind).Spec.model_fields})
fuzzing = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def read(text: str) -> bool:
    """Whether the text is a configuration."""
    try:
        config = read_config(text)
    except ConfigError as error:
        assert error.problems and str(error).encode("utf-8")
        return False
    written = write_config(*config)
    assert write_config(*read_config(written)) == written
    return True


@settings(fuzzing, max_examples=300)
@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("[]{}:,-&*!|>%?#\"'\\\n\t ~019.e")), max_size=60))
def test_any_text(text):
    read(text)
    read("pipeline: \n" + text)


words = st.sampled_from(["mean", "bilinear", "off", "no", ""])
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words, st.text())
values = st.recursive(
    st.one_of(scalars, st.floats(0, 1), st.integers(0, 3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.floats(0, 2), min_size=2, max_size=2).map(sorted),
        st.dictionaries(st.one_of(st.sampled_from(["split", "either"]), scalars), inner, max_size=2),
    ),
    max_leaves=6,
)
steps = st.one_of(
    values,
    st.fixed_dictionaries(
        {"kind": st.one_of(st.sampled_from(T.__all__), scalars)},
        optional={"p": values, "transforms": values, **dict.fromkeys(NAMES, values)},
    ),
)
fitting = st.sampled_from(T.__all__).flatmap(
    lambda kind: st.fixed_dictionaries(
        {"kind": st.just(kind)}, optional=dict.fromkeys(getattr(T, kind).Spec.model_fields, values)
    )
)
documents = st.fixed_dictionaries(
    {"pipeline": st.lists(st.one_of(steps, fitting), max_size=2)},
    optional={"settings": st.one_of(values, st.fixed_dictionaries({}, optional={"seed": values, "kernels": values}))},
)


@settings(fuzzing, max_examples=80)
@given(documents)
def test_any_values(document):
    read(yaml.safe_dump(document, allow_unicode=True) + "\n")
    read(json.dumps(document) + "\n")


@settings(fuzzing, max_examples=40)
@given(st.data())
def test_a_damaged_preset(data):
    start = data.draw(st.integers(0, len(PRESET)))
    stop = data.draw(st.integers(start, min(len(PRESET), start + 200)))
    put = data.draw(st.sampled_from(["", " ", "\n", "- ", ": ", "1", "[", "null", "{}"]))
    read(PRESET[:start] + put + PRESET[stop:])


def test_the_fuzz_reads_configurations_too():
    assert read(PRESET)


def test_nothing_is_executed(monkeypatch):
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("executed"))
    assert not read("pipeline: [{kind: !!python/object/apply:os.system [exit 3]}]\n")
