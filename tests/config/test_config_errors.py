"""All problems of a file in one error, each with its line, the value and what is allowed."""

import pickle

import pytest

from nnunet_gpuaug import AugmentationError, ConfigError, Pipeline
from nnunet_gpuaug import transforms as T
from nnunet_gpuaug.config import read_config
from nnunet_gpuaug.config.document import MAX_DEPTH, MAX_ITEMS


def problems_of(source) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Pipeline.from_yaml(source)
    assert isinstance(caught.value, AugmentationError) and isinstance(caught.value, ValueError)
    assert not any("\n" in problem for problem in caught.value.problems)
    return caught.value.problems


# a file, and for each line with a mark what its error must say: (line, path, parts)
WRONG = """\
# every line with a number is wrong
pipeline:
  - kind: GammaTransform                                                #1
  - kind: Gamma
    p: 1.5                                                              #2
    gama: [0.7, 1.5]                                                    #3
    gamma: {splt: [0.5, 1]}                                             #4
    synchronize_channels: yes                                           #5
  - kind: Spatial
    patch_size: [128, x, 0]                                             #6
    mode_image: bicubic                                                 #7
    rotation: [2, 1]                                                    #8
    p_rotation: true                                                    #9
    padding_value_seg: 1.5                                              #10
    p_scaling: 0.1
    p_scaling: 0.2                                                      #11
  - kind: Mirror                                                        #12
  - kind: BlankRectangle
    rectangle_size: [[1, 2], [x, 3]]                                    #13
    rectangle_value: median                                             #14
    num_rectangles: 1e3                                                 #15
  - kind: OneOf
    transforms:
      - kind: RemoveLabel                                               #16
        label_value: -1
        set_to: 0
      - kind: GaussianNoise
        noise_variance: [-1, 1]                                         #17
      - kind: OneOf                                                     #18
        transforms: []                                                  #19
  - {kind: BrightnessAdditive, mu: 2, sigma: 1}                         #20
  - kind: DownsampleSegForDS
    ds_scales:
      - [1, .nan]                                                       #21
      - -.inf                                                           #22
  - Gamma                                                               #23
  - p: 1                                                                #24
  - kind: RemoveLabel
    p: 0.5                                                              #25
    label_value: -1
    set_to: "0"                                                         #26
settings:
  seed: 1.5                                                             #27
  kernel: off                                                           #28
  prefetch: yes                                                         #29
  on_unmapped: hst                                                      #30
pipelne: 1                                                              #31
"""
EXPECTED = {
    1: ["pipeline[0].kind = GammaTransform: no such transform", "SimulateLowResolution", "did you mean Gamma?"],
    2: ["pipeline[1].p = 1.5", "a probability from 0 to 1"],
    3: ["pipeline[1].gama = [0.7, 1.5]: no such field in Gamma", "p_invert_image", "did you mean gamma?"],
    4: ["pipeline[1].gamma = {splt: [0.5, 1]}", "allowed: a number, a range [low, high]", "{split: [low, high]}"],
    5: ["pipeline[1].synchronize_channels = yes", "allowed: a valid boolean"],
    6: ["pipeline[2].patch_size[1] = x", "integer"],
    7: ["pipeline[2].mode_image = bicubic", "allowed: 'bilinear' or 'nearest'"],
    8: ["pipeline[2].rotation = [2, 1]", "low <= high"],
    9: ["pipeline[2].p_rotation = true", "number"],
    10: ["pipeline[2].padding_value_seg = 1.5", "integer"],
    11: ["pipeline[2].p_scaling: given twice"],
    12: ["pipeline[3].allowed_axes: must be given"],
    13: ["pipeline[4].rectangle_size[1][0] = x", "integer"],
    14: ["pipeline[4].rectangle_value = median", "'mean' or a valid number"],
    15: ["pipeline[4].num_rectangles = 1000.0", "integer"],
    16: ["pipeline[5].transforms[0].kind = RemoveLabel: cannot be left out", "allowed: ", "Gamma"],
    17: ["pipeline[5].transforms[1].noise_variance = [-1, 1]", "0 and above"],
    18: ["pipeline[5].transforms[2].kind = OneOf: cannot be left out"],
    19: ["pipeline[5].transforms[2].transforms = []: empty"],
    20: ["pipeline[6] = {kind: BrightnessAdditive, mu: 2, sigma: 1}", "mu must not exceed sigma"],
    21: ["pipeline[7].ds_scales[0][1] = nan", "finite"],
    22: ["pipeline[7].ds_scales[1] = -inf", "finite"],
    23: ["pipeline[8] = Gamma: not a mapping"],
    24: ["pipeline[9].kind: must be given", "Gamma"],
    25: ["pipeline[10].p = 0.5: no such field in RemoveLabel", "label_value"],
    26: ['pipeline[10].set_to = "0"', "integer"],
    27: ["settings.seed = 1.5", "integer"],
    28: ["settings.kernel = off: no such field in settings", "did you mean kernels?"],
    29: ["settings.prefetch = yes", "boolean"],
    30: ["settings.on_unmapped = hst", "allowed: 'error' or 'host'"],
    31: ["pipelne = 1: no such field in a configuration", "did you mean pipeline?"],
}


def test_all_problems_at_once(tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    problems = problems_of(path)
    lines = {int(line.split("#")[1]): n for n, line in enumerate(WRONG.splitlines(), 1) if "#" in line[2:]}
    assert list(lines) == list(EXPECTED)
    for number, parts in EXPECTED.items():
        found = [p for p in problems if p.startswith(f"{path}:{lines[number]}: ") and all(part in p for part in parts)]
        assert len(found) == 1, (number, parts, [p for p in problems if f":{lines[number]}:" in p])
    assert len(problems) == len(EXPECTED) + 1  # patch_size has two
    assert problems == tuple(sorted(problems, key=lambda p: int(p.split(":")[1])))


def test_values_of_each_kind_that_do_not_fit():
    """Each parameter of each transform refuses what has a wrong type, and says which parameter it is."""
    skipped = 0
    for kind in (getattr(T, name) for name in T.__all__ if name != "OneOf"):
        for name in kind.Spec.model_fields:
            for value in ("{a: 1}", "[[[a]]]", "a b", ".nan"):
                problems = problems_of(f"pipeline: [{{kind: {kind.__name__}, {name}: {value}}}]")
                found = [p for p in problems if f"pipeline[0].{name}" in p and " = " in p]
                skipped += not found
                assert found, (kind, name, value, problems)
    assert not skipped


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("Gama", "Gamma"),
        ("spatial", "Spatial"),
        ("SpatialTransform", "Spatial"),
        ("BlankRectangleTransform", "BlankRectangle"),
        ("GaussianBlurr", "GaussianBlur"),
    ],
)
def test_suggested_kinds(wrong, meant):
    (problem,) = problems_of(f"pipeline: [{{kind: {wrong}}}]")
    assert f"did you mean {meant}" in problem


# text, line, and what the one problem says
REFUSED = {
    "empty": ("\n", 1, "not a mapping; allowed: pipeline"),
    "only a comment": ("# nothing\n", 1, "not a mapping"),
    "a list on top": ("- kind: Gamma\n", 1, "not a mapping"),
    "a word": ("Gamma\n", 1, "not a mapping"),
    "no pipeline": ("\nsettings: {}\n", 2, "pipeline: must be given"),
    "pipeline null": ("pipeline: \n", 1, "pipeline = null: not a list"),
    "pipeline a mapping": ("pipeline:\n  kind: Gamma\n", 1, "not a list"),
    "settings a list": ("pipeline: []\nsettings: []\n", 2, "settings = []: not a mapping"),
    "duplicate section": ("pipeline: []\npipeline: []\n", 2, "pipeline: given twice"),
    "duplicate in a value": (
        "pipeline:\n  - kind: Gamma\n    gamma: {split: [1, 2],\n      split: [1, 2]}\n",
        4,
        "pipeline[0].gamma.split: given twice",
    ),
    "tab": ("pipeline:\n\t- kind: Gamma\n", 2, "not YAML"),
    "open bracket": ("pipeline: [\n", 2, "not YAML"),
    "anchor": ("pipeline: &all\n  - kind: Gamma\n", 1, "anchors are not allowed"),
    "alias": ("pipeline: []\nsettings: *all\n", 2, "aliases are not allowed"),
    "merge key": ("pipeline: []\nsettings:\n  <<: {}\n", 3, '"<<" = {}: no such field'),
    "python tag": ("pipeline: !!python/object/apply:os.system ['x']\n", 1, "tags are not allowed"),
    "python name": ("pipeline:\n - kind: !!python/name:os.system\n", 2, "tags are not allowed"),
    "yaml tag": ("pipeline: []\nsettings: {seed: !!int '3'}\n", 2, "tags are not allowed"),
    "list as a key": ("? [a]\n: 1\n", 1, "a list or mapping as a key"),
    "two documents": ("pipeline: []\n---\npipeline: []\n", 2, "second document"),
    "large integer": ("pipeline: []\nsettings:\n  seed: " + "9" * 30, 3, "too large"),
    "huge integer": ("pipeline: []\nsettings:\n  seed: " + "9" * 10000, 3, "too large"),
    "seed below 0": ("pipeline: []\nsettings: {seed: -1}", 2, "seed = -1"),
    "overflowing float": ("pipeline:\n - {kind: Gamma, gamma: 1e999}", 2, "gamma = inf"),
    "control character": ("pipeline: []\n\x00", 2, "#x0000"),
    "impossible escape": ('pipeline: "\\UFFFFFFFF"\n', 1, "not YAML"),
    "version": ("%YAML " + "9" * 5000 + ".1\n---\npipeline: []\n", 1, "not YAML"),
    "unknown tag handle": ("a: !x!y z\n", 1, "not YAML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    text, line, part = REFUSED[name]
    (problem,) = problems_of(text)
    assert problem.startswith(f"<text>:{line}: ") and part in problem, problem
    assert len(problem) < 300


def test_limits_are_checked_before_anything_grows():
    """Deep and long documents are refused without recursion; what an alias bomb needs is refused at its first line."""
    (problem,) = problems_of("pipeline: " + "[" * 100_000 + "\n")
    assert f"nested too deeply; allowed: {MAX_DEPTH}" in problem
    (problem,) = problems_of("pipeline: " + "{a: " * 100_000 + "\n")
    assert "nested too deeply" in problem
    (problem,) = problems_of("pipeline:\n  [" + "1," * (MAX_ITEMS + 1) + "]\n")
    assert f"too many entries; allowed: {MAX_ITEMS}" in problem
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    (problem,) = problems_of(bomb)
    assert problem.startswith("<text>:1: ") and "anchors are not allowed" in problem
    (problem,) = problems_of("#" * 2**20 + "\n")
    assert "too large; allowed: up to 1 MiB" in problem


def test_many_problems_are_cut():
    with pytest.raises(ConfigError) as caught:
        read_config("pipeline: [" + "{kind: Gama}, " * 200 + "]")
    assert len(caught.value.problems) == 200
    assert len(str(caught.value).splitlines()) == 51 and str(caught.value).endswith("… and 150 more")


def test_names_that_would_break_a_message():
    (problem,) = problems_of('pipeline: []\n"a\\nb\\uD800": "\\n' + "x" * 1000 + '"\n')
    problem.encode("utf-8")
    assert '"a\\nb\\ud800" = "\\nxxx' in problem and len(problem) < 200


def test_the_error_can_be_pickled():
    with pytest.raises(ConfigError) as caught:
        read_config("pipeline: 1\n")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)


class TestFiles:
    @pytest.mark.parametrize("name", ["mine.yaml", "a\0b", "x" * 5000, "."])
    def test_no_such_file(self, name, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (problem,) = problems_of(name)
        assert "there is no such file" in problem

    def test_not_a_source(self):
        for source in (None, 3, b"pipeline: []"):
            (problem,) = problems_of(source)
            assert "a path or YAML text" in problem

    def test_not_utf_8(self, tmp_path):
        path = tmp_path / "latin.yaml"
        path.write_bytes("# a\npipeline: []\n# größe\n".encode("latin-1"))
        (problem,) = problems_of(path)
        assert problem.startswith(f"{path}:3: not UTF-8")
        path.write_bytes("pipeline: []\n".encode("utf-16"))
        assert "not UTF-8" in problems_of(path)[0]

    def test_a_byte_order_mark_is_fine(self, tmp_path):
        path = tmp_path / "bom.yaml"
        path.write_bytes(b"\xef\xbb\xbfpipeline: []\r\n")
        assert Pipeline.from_yaml(path).transforms == ()

    def test_large(self, tmp_path):
        path = tmp_path / "large.yaml"
        path.write_bytes(b"#" * (2**20 + 1))
        assert "too large" in problems_of(path)[0]
