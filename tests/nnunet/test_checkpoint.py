"""A checkpoint is there completely or not at all, and stock nnU-Net can open it."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

from nnunet_gpuaug.nnunet.checkpoint import CheckpointError, read_extra, write_atomically


def test_full_disk_keeps_the_previous_checkpoint(dataset, make_trainer):
    dataset()
    trainer = make_trainer(epochs=1, iterations=1)
    trainer.run_training()
    path = Path(trainer.output_folder) / "checkpoint_final.pth"
    before = path.read_bytes()
    Path(f"{path}.part").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"No space left on device \(the previous one is untouched\)"):
        trainer.save_checkpoint(str(path))
    assert path.read_bytes() == before
    assert not os.path.lexists(f"{path}.part")
    trainer.save_checkpoint(str(path))


def _killed_while_writing(path: str) -> None:
    def write(file):
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    write_atomically(path, write)


def test_kill_during_a_save_keeps_the_previous_file(tmp_path):
    path = tmp_path / "checkpoint_latest.pth"
    path.write_bytes(b"complete")
    process = multiprocessing.get_context("fork").Process(target=_killed_while_writing, args=(str(path),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert path.read_bytes() == b"complete"
    write_atomically(str(path), lambda file: file.write(b"next"))
    assert path.read_bytes() == b"next" and os.listdir(tmp_path) == [path.name]


def test_torch_save_is_put_back(dataset, make_trainer):
    dataset()
    save = torch.save
    trainer = make_trainer(epochs=1, iterations=1)
    trainer.run_training()
    assert torch.save is save
    with pytest.raises(CheckpointError):
        trainer.save_checkpoint(os.path.join(trainer.output_folder, "no_such_folder", "checkpoint.pth"))
    assert torch.save is save


def test_disabled_checkpointing_writes_none(dataset, make_trainer):
    dataset()
    trainer = make_trainer(epochs=1, iterations=1)
    trainer.disable_checkpointing = True
    trainer.run_training()
    assert not list(Path(trainer.output_folder).glob("*.pth"))


def test_our_key_holds_plain_types(dataset, make_trainer):
    dataset()
    trainer = make_trainer(epochs=1, iterations=1)
    trainer.run_training()

    def plain(value) -> bool:
        if type(value) is dict:
            return all(plain(v) for v in [*value, *value.values()])
        return type(value) in (str, int)

    extra = read_extra(os.path.join(trainer.output_folder, "checkpoint_final.pth"))
    assert plain(extra)
    assert set(extra) == {"trainer", "wrapped_trainer", "pipeline", "config", "seed", "batches_used", "versions"}
    assert set(extra["versions"]) == {"nnunet-gpuaug", "nnunetv2", "batchgeneratorsv2", "kornia", "monai", "torch"}


def test_checkpoint_of_stock_nnunet_has_no_key(tmp_path):
    torch.save({"network_weights": {}}, tmp_path / "stock.pth")
    assert read_extra(str(tmp_path / "stock.pth")) is None


def test_stock_predictor_opens_it(dataset, make_trainer):
    dataset()
    trainer = make_trainer("2d", epochs=1, iterations=1)
    trainer.run_training()
    predictor = nnUNetPredictor(device=torch.device("cpu"))
    predictor.initialize_from_trained_model_folder(trainer.output_folder_base, (0,))
    assert predictor.trainer_name == "nnUNetTrainer"
    assert predictor.allowed_mirroring_axes == (0, 1)
