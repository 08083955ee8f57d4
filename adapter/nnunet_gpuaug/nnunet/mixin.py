"""What makes any nnU-Net trainer run its augmentation on the device."""

import time

import numpy as np
import torch

from nnunet_gpuaug import Pipeline
from nnunet_gpuaug.nnunet import checkpoint
from nnunet_gpuaug.nnunet.augment import DeviceAugmentation, ReadyBatch
from nnunet_gpuaug.nnunet.cascade import previous_stage
from nnunet_gpuaug.nnunet.given import Configured, check_fits, follow
from nnunet_gpuaug.nnunet.loading import HostTransforms, divide, safe_to_fork
from nnunet_gpuaug.nnunet.options import TrainingOptions
from nnunet_gpuaug.nnunet.prefetch import AugmentedBatches
from nnunet_gpuaug.nnunet.progress import SilentProgress
from nnunet_gpuaug.nnunet.seeds import choose_base_seed


class GPUAugMixin:
    """Put before any nnU-Net trainer class: `class Mine(GPUAugMixin, SomeTrainer)`; `wrap` does it for you.

    The trainer's own transforms are mapped to a pipeline, or one is given in their place. The workers load, crop, pad
    and stack; the pipeline runs on the training device. Nothing else of the trainer changes. There is no `__init__`
    here, because nnU-Net reads the constructor's signature.
    """

    gpuaug_options = TrainingOptions()
    gpuaug_progress = SilentProgress()
    gpuaug_seed: int | None = None
    gpuaug_pipelines: dict[str, str] = {}  # text, by stream; nnU-Net's debug.json shows it
    gpuaug_config: str | None = None  # the training pipeline as a configuration file, if it can be written as one
    _gpuaug_training: DeviceAugmentation | None = None
    _gpuaug_validation: DeviceAugmentation | None = None
    _gpuaug_resumed: dict | None = None
    _gpuaug_memory_told = False
    _gpuaug_times: list = []  # a new one each epoch
    _gpuaug_bad_losses = 0

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        before = cls.__mro__[: cls.__mro__.index(GPUAugMixin)]
        for name in ("get_training_transforms", "get_validation_transforms"):
            for owner in before:
                if name in vars(owner):
                    raise TypeError(
                        f"{owner.__name__}.{name} would hide the step that moves the transforms to the device. "
                        f"Define it in a trainer that derives from nnU-Net's, and wrap that one."
                    )

    @classmethod
    def gpuaug_wrapped(cls) -> type:
        """The trainer class behind the mixin."""
        return cls.__mro__[cls.__mro__.index(GPUAugMixin) + 1]

    def gpuaug_configure(self, options: TrainingOptions, progress: SilentProgress | None = None) -> None:
        """Apply options. To be called before `initialize`, which builds the learning rate schedule.

        Args:
            options: the options.
            progress: where to report to.

        Raises:
            ConfigError: a pipeline is given that does not fit this training.
        """
        self.gpuaug_options = options
        self.gpuaug_progress = progress or self.gpuaug_progress
        if options.epochs is not None:
            self.num_epochs = options.epochs
        if options.iterations is not None:
            ratio = self.num_val_iterations_per_epoch / self.num_iterations_per_epoch
            self.num_val_iterations_per_epoch = max(1, round(options.iterations * ratio))
            self.num_iterations_per_epoch = options.iterations
        for note in options.notes:
            self.print_to_log_file(note)
        if options.transforms is not None:
            configured = self.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
            self.print_to_log_file(
                f"From the given pipeline follow: dummy 2D {configured.dummy_2d}, initial patch size "
                f"{[int(n) for n in configured.initial_patch_size]}, mirroring at test time {configured.mirror_axes}"
            )

    # --- the transforms go to the device ---

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> tuple:
        """The trainer's own, or what follows from the given pipeline, which has to fit."""
        own = Configured(*super().configure_rotation_dummyDA_mirroring_and_inital_patch_size())
        given = self.gpuaug_options.transforms
        if given is None:
            return own
        configured = follow(given, self, own)
        check_fits(given, self, configured.initial_patch_size, self.gpuaug_options.source)
        self.inference_allowed_mirroring_axes = configured.mirror_axes
        return configured

    def get_training_transforms(self, *args, **kwargs) -> HostTransforms:
        """Take the training transforms, given or the trainer's own, to the device; return the workers' rest."""
        if self.gpuaug_options.transforms is not None:
            return self._gpuaug_take("training", None)
        return self._gpuaug_take("training", super().get_training_transforms(*args, **kwargs))

    def get_validation_transforms(self, *args, **kwargs) -> HostTransforms:
        """Take the trainer's own validation transforms to the device; return what is left for the workers."""
        return self._gpuaug_take("validation", super().get_validation_transforms(*args, **kwargs))

    def gpuaug_own_training_transforms(self, *args, **kwargs):
        """The wrapped trainer's training transforms as they are, for whoever wants to look at them."""
        return super().get_training_transforms(*args, **kwargs)

    def gpuaug_own_validation_transforms(self, *args, **kwargs):
        """The wrapped trainer's validation transforms as they are."""
        return super().get_validation_transforms(*args, **kwargs)

    def _gpuaug_choose_seed(self) -> None:
        if self.gpuaug_seed is not None:
            return
        wanted, before = self.gpuaug_options.settings.seed, (self._gpuaug_resumed or {}).get("seed")
        self.gpuaug_seed = choose_base_seed(before if wanted is None else wanted)
        self.print_to_log_file(f"Seed of the augmentation: {self.gpuaug_seed}")
        if before not in (None, self.gpuaug_seed):
            self.print_to_log_file(f"NOTE: until now this training used seed {before}")

    def _gpuaug_take(self, stream: str, compose) -> HostTransforms:
        self._gpuaug_choose_seed()
        options, resumed = self.gpuaug_options, self._gpuaug_resumed or {}
        settings = options.settings.model_copy(update={"seed": self.gpuaug_seed})
        if compose is None:
            host, pipeline = [], Pipeline(options.transforms, settings=settings)
        else:
            host, pipeline = divide(compose, settings)
        # Without the pipeline's seed, so that the text tells whether two pipelines are the same.
        listing = "  (nothing)" if pipeline is None else "\n".join(f"  {t!r}" for t in pipeline.transforms)
        self.gpuaug_pipelines = {**self.gpuaug_pipelines, stream: listing}
        rest = HostTransforms(host, listing)
        self.print_to_log_file(f"Transforms of {stream}:\n{rest}")
        if stream == "training":
            self.gpuaug_config = None if host or pipeline is None else pipeline.to_yaml()
            if resumed.get("pipeline", listing) != listing:
                self.print_to_log_file(f"NOTE: until now this training used another pipeline:\n{resumed['pipeline']}")
        if pipeline is not None:
            used = resumed.get("batches_used", {}).get(stream, 0)
            part = DeviceAugmentation(pipeline, self.device, stream, self.gpuaug_seed, self.local_rank, used)
            setattr(self, f"_gpuaug_{stream}", part)
        return rest

    def get_dataloaders(self) -> tuple:
        """The trainer's own loaders, the augmentation attached."""
        with safe_to_fork():
            train, val = super().get_dataloaders()
        if train is not None and self._gpuaug_training is None:
            self.print_to_log_file("NOTE: no training transforms run on the device")
        if train is not None and self._gpuaug_training is not None:
            train = AugmentedBatches(train, self._gpuaug_training, self._gpuaug_prefetches())
        if val is not None and self._gpuaug_validation is not None:
            # Not ahead of time: these steps are cheap, and a second batch would wait on the device all epoch.
            val = AugmentedBatches(val, self._gpuaug_validation, prefetch=False)
        if self.local_rank == 0:
            checkpoint.write_provenance(self.output_folder, self.gpuaug_provenance())
        return train, val

    def _gpuaug_prefetches(self) -> bool:
        return self.gpuaug_options.settings.prefetch and self.device.type == "cuda"

    # --- steps ---

    def train_step(self, batch: dict) -> dict:
        """The trainer's own step, on an augmented batch."""
        batch = _ready(batch, self._gpuaug_training)
        result = super().train_step(batch)
        if isinstance(batch, ReadyBatch):
            self._gpuaug_count(batch, result)
        return result

    def validation_step(self, batch: dict) -> dict:
        """The trainer's own validation step, on a batch whose labels were prepared on the device."""
        batch = _ready(batch, self._gpuaug_validation)
        result = super().validation_step(batch)
        if isinstance(batch, ReadyBatch):
            self._gpuaug_validation.used = batch.number + 1
        self.gpuaug_progress.validation_step()
        return result

    def _gpuaug_count(self, batch: ReadyBatch, result: dict) -> None:
        self._gpuaug_training.used = batch.number + 1
        augment_ms, loss = batch.augment_ms(), None
        if "loss" in result:
            loss = float(np.mean(result["loss"]))
            self._gpuaug_check_loss(loss, batch)
        if not self._gpuaug_memory_told:
            self._gpuaug_memory_told = True
            if self._gpuaug_prefetches():
                self.print_to_log_file(batch.memory_ahead())
        self._gpuaug_times.append((batch.wait_ms, augment_ms))
        self.gpuaug_progress.step(loss, batch.wait_ms, augment_ms)

    def _gpuaug_check_loss(self, loss: float, batch: ReadyBatch) -> None:
        if np.isfinite(loss):
            return
        self._gpuaug_bad_losses += 1
        if self._gpuaug_bad_losses == 1:
            finite = all(bool(torch.isfinite(t).all()) for t in batch.tensors() if t.is_floating_point())
            origin = "the network or the loss function (the augmented batch is finite)" if finite else "the batch"
            cases = list(batch.get("keys", ()))
            self.print_to_log_file(f"WARNING: the loss is {loss}. It comes from {origin}. Cases: {cases}")

    def on_train_epoch_start(self) -> None:
        """The trainer's own, and a fresh set of timings."""
        super().on_train_epoch_start()
        self._gpuaug_times, self._gpuaug_bad_losses = [], 0
        self._gpuaug_started = time.perf_counter()
        self.gpuaug_progress.start_epoch(self.current_epoch, self.num_epochs, self.num_iterations_per_epoch)

    def on_train_epoch_end(self, train_outputs: list) -> None:
        """The trainer's own, and a log line with the epoch's timings."""
        super().on_train_epoch_end(train_outputs)
        if self._gpuaug_times:
            wait, augment = np.mean(self._gpuaug_times, axis=0)
            rate = len(self._gpuaug_times) / (time.perf_counter() - self._gpuaug_started)
            self.print_to_log_file(
                f"{rate:.2f} iterations/s, loader wait {wait:.1f} ms, augmentation {augment:.1f} ms (means)"
            )
        if self._gpuaug_bad_losses:
            self.print_to_log_file(f"WARNING: {self._gpuaug_bad_losses} losses of this epoch were not finite")
        if self.grad_scaler is not None and self.grad_scaler.get_scale() < 1:
            self.print_to_log_file(f"WARNING: the gradient scale fell to {self.grad_scaler.get_scale()}")

    def on_validation_epoch_start(self) -> None:
        """The trainer's own, and a note to the progress display."""
        super().on_validation_epoch_start()
        self.gpuaug_progress.start_validation(self.num_val_iterations_per_epoch)

    # --- the end, and whatever may end it ---

    def on_train_end(self) -> None:
        """The trainer's own; nnU-Net gets its loaders back, so that it can end their workers."""
        self.gpuaug_progress.close()
        for name in ("dataloader_train", "dataloader_val"):
            loader = getattr(self, name)
            if isinstance(loader, AugmentedBatches):
                loader.close()
                setattr(self, name, loader.loader)
        super().on_train_end()

    def run_training(self) -> None:
        """The trainer's own; workers and threads end even if the training fails."""
        try:
            super().run_training()
        finally:
            self.gpuaug_progress.close()
            for loader in (self.dataloader_train, self.dataloader_val):
                if hasattr(loader, "_finish"):
                    loader._finish()

    # --- checkpoints and the cascade ---

    def gpuaug_provenance(self) -> dict:
        """What made this training's batches, in plain types: for the checkpoint and the results folder."""
        parts = {"training": self._gpuaug_training, "validation": self._gpuaug_validation}
        return {
            "trainer": type(self).__name__,
            "wrapped_trainer": self.gpuaug_wrapped().__name__,
            "pipeline": self.gpuaug_pipelines.get("training"),
            "config": self.gpuaug_config,
            "seed": self.gpuaug_seed,
            "batches_used": {name: part.used for name, part in parts.items() if part is not None},
            "versions": checkpoint.versions(),
        }

    def save_checkpoint(self, filename: str) -> None:
        """The trainer's own, written atomically, and with a trainer name that nnU-Net alone can find."""
        stock, ours = self.gpuaug_wrapped(), type(self)
        # A class derived from a wrapped one may bring its own network; then only that class can rebuild it.
        same_network = ours.build_network_architecture is stock.build_network_architecture
        name = stock.__name__ if same_network else ours.__name__
        with checkpoint.amended_checkpoint(name, self.gpuaug_provenance()):
            super().save_checkpoint(filename)

    def load_checkpoint(self, filename_or_checkpoint) -> None:
        """The trainer's own, and where the draws had got to."""
        super().load_checkpoint(filename_or_checkpoint)
        if isinstance(filename_or_checkpoint, dict):
            self._gpuaug_resumed = filename_or_checkpoint.get(checkpoint.KEY)
        else:
            self._gpuaug_resumed = checkpoint.read_extra(filename_or_checkpoint)

    def initialize(self) -> None:
        """The trainer's own; a cascade may build on the low-resolution results of the wrapped trainer."""
        super().initialize()
        folder = self.folder_with_segs_from_previous_stage
        if folder is None:
            return
        self.folder_with_segs_from_previous_stage = previous_stage(
            folder, type(self).__name__, self.gpuaug_wrapped().__name__, self.configuration_manager.previous_stage_name
        )
        self.print_to_log_file(f"Previous stage of the cascade: {self.folder_with_segs_from_previous_stage}")


def _ready(batch: dict, augmentation: DeviceAugmentation | None) -> dict:
    # A trainer with a loop or loader of its own may hand over raw batches.
    return batch if augmentation is None or isinstance(batch, ReadyBatch) else augmentation(batch)
