"""BackupAndRestore: a callback that lets an interrupted `fit` go on where it ended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tape_tf.keras.callbacks import Callback
from tape_tf.names import exported, published
from tape_tf.typing import Logs, PathLike

if TYPE_CHECKING:
    from tape_tf.keras.training import Trainer

_STATE = "state"
_EPOCH = "epoch.json"


@exported("keras.callbacks.BackupAndRestore")
class BackupAndRestore(Callback):
    """Save the model and its optimizer after each epoch, so that a `fit` that was interrupted goes on from there.

    The same program run again restores the last backup, and trains the epochs that are left. When training ends, the
    backup is deleted.

    Args:
        backup_dir: a folder for the backup alone; it is made if need be.
        save_freq: "epoch", or a number of batches after which to save as well; a run goes on with the epoch that the
            backup was made in.
        double_checkpoint: no effect: a new backup replaces the former one only when it is complete.
        delete_checkpoint: delete the backup at the end of training.

    Raises:
        ValueError: `save_freq` is neither "epoch" nor a positive integer.
    """

    __tf_differs__ = "a run that goes on draws other random numbers than one that was not interrupted"

    def __init__(
        self,
        backup_dir: PathLike,
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(f"BackupAndRestore: save_freq must be 'epoch' or a number of batches; got {save_freq!r}")
        self.backup_dir = Path(os.fspath(backup_dir))
        self.save_freq, self.delete_checkpoint = save_freq, delete_checkpoint
        self._epoch = 0
        self._batches = 0

    def restore(self, model: Trainer) -> int:
        """Restore the backup if there is one; returns the number of the epoch to go on with, else 0.

        Raises:
            ValueError: the weights of the model are not made yet.
        """
        place = self._latest()
        if place is None:
            return 0
        if not model.variables:  # type: ignore[attr-defined]
            raise ValueError(
                "BackupAndRestore: there is a backup, and the model has no weights yet to restore: call it once, or "
                "build(input_shape), before fit"
            )
        self._checkpoint(model).restore(str(place / _STATE))
        return int(json.loads((place / _EPOCH).read_text())["epoch"])

    def _checkpoint(self, model: Any) -> Any:
        parts = {"model": model} | ({} if model.optimizer is None else {"optimizer": model.optimizer})
        return published()["train.Checkpoint"](**parts)

    def _latest(self) -> Path | None:
        """Return the folder of the last complete backup."""
        places = [place.parent for place in self.backup_dir.glob(f"*/{_EPOCH}")]
        return max(places, key=lambda place: int(place.name), default=None)

    def _save(self, epoch: int) -> None:
        """Write a backup, then delete the one before."""
        former = self._latest()
        place = self.backup_dir / str(0 if former is None else int(former.name) + 1)
        shutil.rmtree(place, ignore_errors=True)  # what an interruption left of one
        place.mkdir(parents=True)
        self._checkpoint(self.model).write(str(place / _STATE))
        # The epoch last: a folder without it is no backup.
        partial = place / f"{_EPOCH}.partial"
        partial.write_text(json.dumps({"epoch": epoch}))
        partial.replace(place / _EPOCH)
        if former is not None:
            shutil.rmtree(former)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._batches += 1
        if self.save_freq != "epoch" and self._batches % int(self.save_freq) == 0:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._save(epoch + 1)

    def on_train_end(self, logs: Logs = None) -> None:
        if self.delete_checkpoint and (place := self._latest()) is not None:
            shutil.rmtree(place)
