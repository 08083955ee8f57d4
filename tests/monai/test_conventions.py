"""The dictionary transforms behave as MONAI's own do."""

import copy
import inspect
import pickle

import pytest
import torch
from monai.data import CacheDataset, DataLoader, MetaTensor, ThreadDataLoader
from monai.transforms import Compose, MapTransform, RandomizableTransform
from monai.utils import TransformBackends, set_determinism
from twins import BOTH, CLASSES, collated, twin_of

from cases import CASES, SIZES, make_batch
from checks import check
from nnunet_gpuaug import monai as M
from nnunet_gpuaug import transforms as T

ONE_EACH = {case.name: case for case in CASES if case.rank == 3 and not case.name.startswith(("default", "fold"))}
each = pytest.mark.parametrize("case", ONE_EACH.values(), ids=str)
classes = pytest.mark.parametrize("name", CLASSES)


@pytest.fixture(autouse=True)
def undetermined():
    yield
    set_determinism(None)


def gamma(**options):
    return M.RandNNUNetGammad("image", prob=1, **options)


def item(size=SIZES[3], **more):
    batch = make_batch(1, 2, size)
    return {"image": batch.image[0], "label": batch.segmentation[0], **more}


class TestClasses:
    @classes
    def test_names_and_bases(self, name):
        kind = CLASSES[name]
        assert kind is getattr(M, name[:-1] + "D") is getattr(M, name[:-1] + "Dict")
        assert kind.__name__ == name and kind.__module__.startswith("nnunet_gpuaug.monai")
        assert issubclass(kind, MapTransform) and kind.backend == [TransformBackends.TORCH]
        assert issubclass(kind, RandomizableTransform) == (name.startswith("Rand") or name == "NNUNetAugmentd")

    @classes
    def test_documentation(self, name):
        doc, signature = CLASSES[name].__doc__, inspect.signature(CLASSES[name])
        assert "Args:" in doc and "Raises:" in doc and "\n    p:" not in doc
        described = doc.split("Args:")[1].split("Raises:")[0]
        for parameter in signature.parameters:
            if parameter in ("keys", "prob", "batched", "allow_missing_keys", "config", "trainer"):
                assert f"    {parameter}: " in described
        assert max(map(len, doc.splitlines())) <= 130

    def test_defaults(self):
        """0.1 as MONAI's; what has its own probabilities is not gated in addition."""
        assert M.RandNNUNetGammad("image").prob == 0.1
        assert M.RandNNUNetSpatiald(BOTH, patch_size=(4, 4)).prob == 1
        assert "prob" not in inspect.signature(M.RandNNUNetOneOfd).parameters


class TestValues:
    @each
    def test_input_and_other_keys_stay(self, case):
        data = collated(case.batch())
        before = {key: value.clone() for key, value in data.items() if key != "other"}
        for step in case.steps():
            out = twin_of(step)(data)
            assert out is not data and out["other"] is data["other"] and set(out) - set(data) == set()
            assert all(torch.equal(data[key], value) for key, value in before.items())
            assert all(torch.equal(data[key].affine, value.affine) for key, value in before.items())
            data = out
            before = {key: value.clone() for key, value in data.items() if isinstance(value, torch.Tensor)}
            before.pop("other")

    def test_flips_space_and_not_channels(self):
        x = torch.arange(24.0).view(1, 2, 3, 4)
        flip = M.RandNNUNetMirrord("image", prob=1, allowed_axes=(0,))
        results = [flip({"image": x})["image"] for _ in range(20)]
        assert any(torch.equal(y, x.flip(2)) for y in results)
        assert all(torch.equal(y, x.flip(2)) or torch.equal(y, x) for y in results)

    def test_probability_is_per_sample(self):
        x = make_batch(200, 1, (4, 5)).image
        y = M.RandNNUNetGammad("image", prob=0.3)({"image": x})["image"]
        assert 30 < sum(not torch.equal(a, b) for a, b in zip(x, y, strict=True)) < 90

    def test_images_share_a_draw(self):
        x = make_batch(3, 2, SIZES[2]).image
        out = M.RandNNUNetGaussianNoised(("t1", "t2"), prob=1)({"t1": x, "t2": x.clone()})
        assert torch.equal(out["t1"], out["t2"]) and not torch.equal(out["t1"], x)

    def test_image_and_label_move_alike(self):
        label = (make_batch(4, 1, SIZES[3]).image > 0).to(torch.uint8)
        data = {"image": label.float(), "label": label}
        out = M.RandNNUNetMirrord(BOTH, prob=1, allowed_axes=(0, 1, 2))(data)
        assert torch.equal(out["image"], out["label"].float()) and not torch.equal(out["image"], label.float())

    def test_bool_labels_stay_bool(self):
        data = {"image": torch.randn(2, 1, 6, 7), "label": torch.rand(2, 2, 6, 7) > 0.5}
        out = M.RandNNUNetMirrord(BOTH, prob=1, allowed_axes=(0, 1))(data)
        outside = M.RandNNUNetSpatiald(BOTH, patch_size=(8, 8), border_mode_seg="constant", padding_value_seg=-1)
        assert out["label"].dtype == torch.bool and not outside(data)["label"][:, :, 0].any()

    def test_numpy_and_half(self):
        x = make_batch(2, 1, SIZES[2]).image
        assert torch.equal(
            gamma().set_random_state(0)({"image": x.numpy()})["image"],
            gamma().set_random_state(0)({"image": x})["image"],
        )
        assert gamma()({"image": x.half()})["image"].dtype == torch.float16


class TestKeys:
    def test_a_missing_key(self):
        with pytest.raises(KeyError, match="image.*RandNNUNetGammad"):
            gamma()({"label": torch.zeros(1, 1, 4, 4)})

    @pytest.mark.parametrize("name", [n for n, k in CLASSES.items() if k.holds == "image and label"])
    def test_all_missing(self, name):
        kind = CLASSES[name]
        options = {
            "RandNNUNetSpatiald": {"patch_size": (4, 4)},
            "RandNNUNetMirrord": {"allowed_axes": (0,)},
            "RandNNUNetTransposeAxesd": {"allowed_axes": (0, 1)},
            "RandNNUNetRot90d": {"num_axis_combinations": 1},
            "RandNNUNetOneOfd": {"transforms": [T.Gamma()]},
            "NNUNetMaskImaged": {"apply_to_channels": (0,)},
            "NNUNetMoveSegAsOneHotd": {"source_channel_idx": 0, "all_labels": (1,)},
            "NNUNetAugmentd": {"config": "pipeline: []"},
        }
        transform = kind(BOTH, allow_missing_keys=True, **options.get(name, {}))
        assert transform({"other": 1}) == {"other": 1}

    @pytest.mark.parametrize("missing", BOTH)
    def test_either_may_be_missing(self, missing):
        data = collated(make_batch(3, 1, SIZES[3]))
        spatial = T.Spatial(patch_size=(7, 8, 9), p_rotation=1, rotation=(-1, 1))
        for step in (spatial, T.Mirror(allowed_axes=(0, 1, 2)), T.OneOf([T.Mirror(allowed_axes=(0, 2))])):
            whole = twin_of(step)(data)
            part = twin_of(step, allow_missing_keys=True)({k: v for k, v in data.items() if k != missing})
            assert missing not in part
            (kept,) = set(BOTH) - {missing}
            assert torch.equal(part[kept], whole[kept]) and torch.equal(part[kept].affine, whole[kept].affine)

    def test_first_image_may_be_missing(self):
        x = make_batch(3, 1, SIZES[2]).image
        both = M.RandNNUNetGammad(("t1", "t2"), prob=1, allow_missing_keys=True)
        assert not torch.equal(both({"t2": x})["t2"], x)


class TestErrors:
    def test_rank(self):
        check(
            lambda: gamma()({"image": torch.zeros(4, 5, 6)}), "RandNNUNetGammad", "image", "(4, 5, 6)", "batched=False"
        )
        one = gamma(batched=False)
        check(lambda: one({"image": torch.zeros(1, 1, 4, 5, 6)}), "(1, 1, 4, 5, 6)", "(C, H, W)", "batched=True")

    def test_values(self):
        check(lambda: gamma()({"image": "a.nii"}), "image", "str", "tensor")
        check(lambda: gamma()({"image": torch.zeros(1, 1, 4, 4).int()}), "RandNNUNetGammad", "int32", "floating")
        mirror = M.RandNNUNetMirrord(BOTH, prob=1, allowed_axes=(0,))
        bad = {"image": torch.zeros(2, 1, 4, 4), "label": torch.full((2, 1, 4, 4), 0.5)}
        check(lambda: mirror(bad), "RandNNUNetMirrord", "label", "whole")
        other = {"image": torch.zeros(2, 1, 4, 4), "label": torch.zeros(2, 1, 4, 5)}
        check(lambda: mirror(other), "(2, 1, 4, 5)", "(2, 1, 4, 4)", "spatial size")
        pair = M.RandNNUNetGammad(("t1", "t2"), prob=1)
        check(lambda: pair({"t1": torch.rand(1, 1, 4, 4), "t2": torch.rand(1, 2, 4, 4)}), "t1", "t2", "channel")

    def test_arguments(self):
        check(lambda: gamma(p=0.5), "RandNNUNetGammad", "prob")
        check(lambda: gamma(gama=2), "gama", "gamma")
        check(lambda: M.RandNNUNetGammad("image", prob=2), "2", "probability")
        check(lambda: M.RandNNUNetMirrord(("a", "b", "c"), allowed_axes=(0,)), "keys", "concatenate")
        with pytest.raises(ValueError, match="non empty"):
            M.RandNNUNetGammad(())


class TestRandomState:
    def test_a_seed(self):
        data = {"image": make_batch(3, 1, SIZES[2]).image}
        first, second = (gamma().set_random_state(5) for _ in range(2))
        a = [first(data)["image"] for _ in range(3)]
        b = [second(data)["image"] for _ in range(3)]
        assert all(map(torch.equal, a, b)) and not torch.equal(a[0], a[1])

    def test_instances_do_not_share_a_state(self):
        data = {"image": make_batch(3, 1, SIZES[2]).image}
        one, two = gamma().set_random_state(5), gamma().set_random_state(5)
        expected = copy.deepcopy(two)(data)["image"]
        for _ in range(3):
            one(data)
        assert torch.equal(two(data)["image"], expected)
        assert gamma().R is not gamma().R and gamma().R is not RandomizableTransform.R

    def test_compose(self):
        data = collated(make_batch(3, 1, SIZES[3]))
        steps = [T.GaussianNoise(p=0.5), T.Gamma(p=0.5), T.Mirror(allowed_axes=(0, 1, 2))]
        runs = [Compose([twin_of(step) for step in steps]).set_random_state(7)(data) for _ in range(2)]
        other = Compose([twin_of(step) for step in steps]).set_random_state(8)(data)
        assert torch.equal(runs[0]["image"], runs[1]["image"]) and torch.equal(runs[0]["label"], runs[1]["label"])
        assert not torch.equal(runs[0]["image"], other["image"])

    @pytest.mark.parametrize("wrap", [lambda t: t, Compose], ids=["alone", "Compose"])
    def test_set_determinism(self, wrap):
        data = {"image": make_batch(3, 1, SIZES[2]).image}
        results = []
        for seed in (1, 1, 2):
            set_determinism(seed)
            transform = wrap(gamma())
            results.append([transform(data)["image"] for _ in range(2)])
        assert torch.equal(results[0][0], results[1][0]) and not torch.equal(results[0][0], results[2][0])
        assert not torch.equal(results[0][0], results[0][1])

    @pytest.mark.parametrize("step", [T.Gamma(), T.Mirror(allowed_axes=(0, 1))], ids=str)
    def test_copies(self, step):
        data = collated(make_batch(3, 1, SIZES[2]))
        transform = twin_of(step, 1)
        transform(data)
        copies = [pickle.loads(pickle.dumps(transform)), copy.deepcopy(transform)]
        out = transform(data)
        assert all(torch.equal(other(data)["image"], out["image"]) for other in copies)

    def test_a_draw_can_be_repeated(self):
        batch = make_batch(3, 1, SIZES[2])
        transform = gamma()
        out = transform({"image": batch.image})["image"]
        assert torch.equal(transform.pipeline.apply(batch, transform.drawn).image, out)


class TestLoaders:
    def test_thread_loader(self):
        """Batches are augmented as they come; a background thread loads the next."""
        rows = [item(name=index) for index in range(6)]
        load = Compose([M.RandNNUNetGammad("image", prob=1, batched=False)]).set_random_state(0)
        augment = Compose([twin_of(T.Mirror(allowed_axes=(0, 1, 2))), twin_of(T.GaussianNoise())]).set_random_state(1)
        loader = ThreadDataLoader(CacheDataset(rows, load, progress=False), batch_size=2, num_workers=0)
        epochs = [[augment(batch) for batch in loader] for _ in range(2)]
        assert [batch["name"].tolist() for batch in epochs[0]] == [[0, 1], [2, 3], [4, 5]]
        assert all(batch["image"].shape == (2, 2, *SIZES[3]) for batch in epochs[0])
        assert not torch.equal(epochs[0][0]["image"], epochs[1][0]["image"])  # not cached: CacheDataset sees it draws

    def test_workers_differ(self):
        same = [item() for _ in range(4)]
        data = CacheDataset(same, Compose(M.RandNNUNetGammad("image", prob=1, batched=False)), progress=False)
        images = [batch["image"][0] for batch in DataLoader(data, batch_size=1, num_workers=2)]
        assert all(not torch.equal(a, b) for i, a in enumerate(images) for b in images[:i])

    def test_metadata_through_a_loader(self):
        rows = [{k: MetaTensor(v) for k, v in item().items()} for _ in range(4)]
        loader = DataLoader(rows, batch_size=2)
        out = twin_of(T.Mirror(allowed_axes=(0, 1, 2)))(next(iter(loader)))
        assert out["image"].is_batch and out["image"].affine.shape == (2, 4, 4)


def test_dummy_2d_needs_its_fold():
    check(lambda: M.NNUNetConvert2DTo3Dd(BOTH)(collated(make_batch(1, 2, (4, 4)))), "Convert2DTo3D", "Convert3DTo2D")
