"""Trainers that users wrote, and how they are found."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform
from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.pseudo2d import Convert2DTo3DTransform, Convert3DTo2DTransform
from batchgeneratorsv2.transforms.utils.remove_label import RemoveLabelTansform
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

import nnunet_gpuaug.nnunet
from nnunet_gpuaug import Settings, UnmappedTransformError
from nnunet_gpuaug.nnunet.find import TrainerNotFoundError, find_trainer
from nnunet_gpuaug.nnunet.loading import HostTransforms, divide
from nnunet_gpuaug.nnunet.mixin import GPUAugMixin
from nnunet_gpuaug.nnunet.trainer import wrap, wrapped_trainer

ON_HOST = Settings(on_unmapped="host")
DISCOVER = os.path.join(os.path.dirname(nnunet_gpuaug.nnunet.__file__), "discover")

CUSTOM = '''
from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

class AddOne(BasicTransform):
    def _apply_to_image(self, img, **params):
        return img + 1
    def _apply_to_segmentation(self, seg, **params):
        return seg

class MyTrainer(nnUNetTrainer):
    steps = 0
    saved = []
    def __init__(self, plans, configuration, fold, dataset_json, device):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.oversample_foreground_percent = 1.0
    def train_step(self, batch):
        MyTrainer.steps += 1
        return super().train_step(batch)
    def save_checkpoint(self, filename):
        MyTrainer.saved.append(filename)
        super().save_checkpoint(filename)
    def on_train_end(self):
        self.ended = type(self.dataloader_train).__name__
        super().on_train_end()

class MyTrainerWithTransform(MyTrainer):
    @staticmethod
    def get_training_transforms(*args, **kwargs):
        compose = nnUNetTrainer.get_training_transforms(*args, **kwargs)
        compose.transforms.insert(0, AddOne())
        return compose
'''


@pytest.fixture
def custom(tmp_path, monkeypatch) -> Path:
    """A user's folder of trainers."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my_trainers.py").write_text(CUSTOM)
    monkeypatch.setenv("nnUNet_extTrainer", str(folder))
    return folder


def test_overrides_stay_alive(dataset, make_trainer, custom):
    dataset()
    trainer = make_trainer(trainer="MyTrainer", iterations=2)
    trainer.run_training()
    mine = trainer.gpuaug_wrapped()
    assert type(trainer).__name__ == "MyTrainerGPUAug" and mine.__name__ == "MyTrainer"
    assert mine.steps == 4 and len(mine.saved) >= 1 and trainer.ended == "SingleThreadedAugmenter"
    saved = torch.load(os.path.join(trainer.output_folder, "checkpoint_final.pth"), weights_only=False)
    assert saved["trainer_name"] == "MyTrainer"


def test_unmapped_transform_is_an_error_that_names_it(dataset, make_trainer, custom):
    dataset()
    trainer = make_trainer(trainer="MyTrainerWithTransform")
    with pytest.raises(UnmappedTransformError, match="AddOne"):
        trainer.run_training()


def test_unmapped_transform_can_stay_on_the_host(dataset, make_trainer, custom):
    dataset(workers=1)
    trainer = make_trainer(trainer="MyTrainerWithTransform", on_unmapped="host", iterations=2, epochs=1)
    trainer.run_training()
    log = Path(trainer.log_file).read_text()
    host, device = log.split("In the workers:")[1].split("On the device:")[:2]
    assert "AddOne" in host and "Spatial(" not in host and "Spatial(" in device
    assert trainer.gpuaug_config is None and not (Path(trainer.output_folder) / "nnunet_gpuaug.yaml").exists()


def test_unmapped_transform_does_not_matter_to_a_given_pipeline(dataset, make_trainer, custom):
    dataset()
    stock = make_trainer(epochs=1, iterations=1)
    stock.run_training()
    saved = os.path.join(stock.output_folder, "nnunet_gpuaug.yaml")
    trainer = make_trainer(trainer="MyTrainerWithTransform", config=saved, epochs=1, iterations=1)
    trainer.run_training()
    assert trainer.gpuaug_config == stock.gpuaug_config
    sizes = [t.configure_rotation_dummyDA_mirroring_and_inital_patch_size()[2].tolist() for t in (stock, trainer)]
    assert sizes[0] == sizes[1]


class Odd(BasicTransform):
    """Has no counterpart."""


def test_divide_keeps_the_shortest_head_on_the_host():
    bright = MultiplicativeBrightnessTransform((0.5, 0.9), False)
    remove = RemoveLabelTansform(-1, 0)
    host, pipeline = divide(ComposeTransforms([bright, Odd(), remove]), ON_HOST)
    assert [type(t).__name__ for t in host] == ["MultiplicativeBrightnessTransform", "Odd"]
    assert len(pipeline.transforms) == 1
    section = [Convert3DTo2DTransform(), Odd(), Convert2DTo3DTransform()]
    host, pipeline = divide(ComposeTransforms([*section, remove]), ON_HOST)
    assert len(host) == 3 and len(pipeline.transforms) == 1
    host, pipeline = divide(ComposeTransforms([remove, Odd()]), ON_HOST)
    assert len(host) == 2 and pipeline is None
    with pytest.raises(UnmappedTransformError, match="Odd"):
        divide(ComposeTransforms([Odd(), remove]), Settings())


class Draw(BasicTransform):
    """Adds a torch random number."""

    def _apply_to_image(self, img, **params):
        return img + torch.rand(())

    def _apply_to_segmentation(self, seg, **params):
        return seg


def test_host_transforms_draw_differently_in_each_worker():
    transforms = HostTransforms([Draw()], "")
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    workers = [torch.multiprocessing.get_context("fork").Process(target=_work, args=(transforms, queue))
               for _ in range(4)]
    for worker in workers:
        worker.start()
    drawn = {queue.get() for _ in workers}
    for worker in workers:
        worker.join()
    assert len(drawn) == 4


def _work(transforms, queue):
    import numpy as np

    np.random.seed(None)  # as nnU-Net's workers do
    out = transforms(image=torch.zeros(1), segmentation=torch.zeros(1))
    queue.put(float(out["image"]))


def test_wrapping_twice_changes_nothing():
    assert wrap(nnUNetTrainer) is wrap(nnUNetTrainer) is wrap(wrap(nnUNetTrainer))
    assert wrapped_trainer("nnUNetTrainerGPUAug") is wrapped_trainer("nnUNetTrainer") is wrap(nnUNetTrainer)


def test_wrapped_classes_pickle_into_another_process(custom):
    classes = [wrapped_trainer(name) for name in ("nnUNetTrainer", "nnUNetTrainerDA5", "MyTrainer")]
    data = pickle.dumps(classes)
    assert pickle.loads(data) == classes
    code = "import sys, pickle; print(*(c.__name__ for c in pickle.load(sys.stdin.buffer)))"
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    last_line = done.stdout.decode().splitlines()[-1]
    assert last_line == "nnUNetTrainerGPUAug nnUNetTrainerDA5GPUAug MyTrainerGPUAug"


def test_hiding_the_hook_is_an_error_at_once():
    with pytest.raises(TypeError, match="Bad.get_training_transforms would hide"):
        class Bad(wrap(nnUNetTrainer)):
            def get_training_transforms(self, *args, **kwargs):
                return None


def test_nnunet_finds_the_trainers_after_the_export(custom, monkeypatch):
    monkeypatch.setenv("nnUNet_extTrainer", os.pathsep.join([DISCOVER, str(custom)]))
    assert recursive_find_trainer_class_by_name("nnUNetTrainerGPUAug") is wrap(nnUNetTrainer)
    assert issubclass(recursive_find_trainer_class_by_name("nnUNetTrainerDA5GPUAug"), GPUAugMixin)
    assert recursive_find_trainer_class_by_name("MyTrainerGPUAug").gpuaug_wrapped().__name__ == "MyTrainer"
    assert recursive_find_trainer_class_by_name("MyTrainer").__name__ == "MyTrainer"
    with pytest.raises(RuntimeError, match="Could not find requested nnunet trainer NoSuchGPUAug"):
        recursive_find_trainer_class_by_name("NoSuchGPUAug")


def test_discover_folder_holds_one_file():
    assert [f for f in os.listdir(DISCOVER) if f != "__pycache__"] == ["nnunet_gpuaug_trainers.py"]


def test_unknown_trainer_suggests_close_names(custom):
    with pytest.raises(TrainerNotFoundError, match="Did you mean nnUNetTrainerDA5"):
        find_trainer("nnUnetTrainerDA5")
    with pytest.raises(TrainerNotFoundError, match="Did you mean MyTrainer"):
        wrapped_trainer("MyTrainr")


def test_broken_file_beside_the_trainer_is_named(custom):
    (custom / "a_broken.py").write_text("import no_such_package_anywhere\n")
    with pytest.raises(TrainerNotFoundError, match="no_such_package_anywhere"):
        wrapped_trainer("MyTrainer")


def test_name_clash_is_told(custom, capsys):
    (custom / "clash.py").write_text("class nnUNetTrainerDA5(object):\n    pass\n")
    assert find_trainer("nnUNetTrainerDA5").__module__.startswith("nnunetv2.")
    assert "nnU-Net ignores" in capsys.readouterr().out


def test_class_derived_from_a_wrapped_one_is_found(dataset, make_trainer, custom):
    dataset()
    (custom / "derived.py").write_text(
        "from nnunet_gpuaug.nnunet.trainer import nnUNetTrainerGPUAug\n"
        "class FastGPUAug(nnUNetTrainerGPUAug):\n"
        "    pass\n"
    )
    trainer = make_trainer(trainer="FastGPUAug", epochs=1, iterations=1)
    trainer.run_training()
    saved = torch.load(os.path.join(trainer.output_folder, "checkpoint_final.pth"), weights_only=False)
    assert saved["trainer_name"] == "nnUNetTrainer" and saved["nnunet_gpuaug"]["trainer"] == "FastGPUAug"
