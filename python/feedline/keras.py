"""Steps for training and validation with Keras 3, on TensorFlow, JAX or PyTorch.

    from feedline.keras import Validation, steps
    from feedline.numpy import Loader

    loader, held_out = Loader("chess.textproto"), Loader("chess_held_out.textproto")
    model.fit(
        steps(loader, "board", "score"), steps_per_epoch=len(loader), epochs=10,
        validation_data=Validation(held_out, "board", "score"),
    )
"""

import json
import os
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import keras

from . import _loader
from ._arguments import integer
from ._errors import Error

Names = str | Sequence[str] | Mapping[str, str]

_REST_IS_DONE = "the rest of the feed's epoch is done"


def steps(
    loader: _loader.Loader, x: Names, y: Names | None = None, sample_weight: str | None = None
) -> Generator[tuple, None, None]:
    """Returns a generator for model.fit(): the steps of the loader, epoch after epoch, as (x,), (x, y) or
    (x, y, sample_weight). With `steps_per_epoch=len(loader)` each epoch of Keras is a whole one of the loader.

    Make a generator for each call of fit(). Keras takes more steps than it trains on, so the next generator begins with
    the epoch after those steps. For validation_data, evaluate() and predict() there is Validation, because Keras would
    begin each time with the generator's first two steps.

    Args:
        loader: one whose tensors Keras takes: feedline.numpy's for any backend, feedline.torch's with PyTorch,
            feedline.jax's with JAX, feedline.tf's with TensorFlow.
        x, y: the name of an output, a list of names, which Keras is given as a tuple, or a dict {key of Keras: name}.
        sample_weight: the name of an output, or "@valid": rows of filler (last_batch_policy PAD, bad
            records) then weigh nothing.
    """
    wanted = _wanted(loader, x, y, sample_weight)

    def forever():
        while True:
            for batch in loader:
                yield _taken(batch, wanted)

    return forever()


class Validation(keras.utils.PyDataset):
    """Steps for validation_data, evaluate() and predict(): each time the same epoch, at which the loader is now.

    The arguments are those of steps(). Nothing else may use the loader.
    """

    def __init__(self, loader: _loader.Loader, x: Names, y: Names | None = None, sample_weight: str | None = None):
        super().__init__()
        self._loader, self._wanted = loader, _wanted(loader, x, y, sample_weight)
        self._lock = threading.Lock()  # TensorFlow asks for steps on threads of its own
        self._epoch = loader.epoch
        self._steps: Any = None
        self._next = -1  # the number of the step that `_steps` gives next

    def __len__(self) -> int:
        """Returns the number of steps."""
        return len(self._loader)

    def __getitem__(self, index: int) -> tuple:
        """Returns a step. Keras asks for the steps in order, but tries some of them before."""
        with self._lock:
            if index != self._next:
                self._loader.load_state_dict(self._loader.state_dict(epoch=self._epoch, step=index))
                self._steps = iter(self._loader)
            self._next = index + 1
            return _taken(next(self._steps), self._wanted)


class SaveState(keras.callbacks.Callback):
    """Saves the model, its optimizer and the position of the feed together, and continues from there.

        save = SaveState(loader, "run/state", every=1000)
        model.fit(
            steps(loader, "board", "score"), steps_per_epoch=len(loader),
            initial_epoch=loader.epoch, epochs=10, callbacks=[save],
        )

    It saves after every so many batches, and at the end of each epoch. If the folder has a state when the callback is
    made, the loader moves to the position of that state, and fit() loads the weights. So each batch counts once in the
    model, and a first epoch that continues in the middle has only the batches that are left. Make one SaveState for
    each call of fit(). The model must be built. The state of other callbacks, such as EarlyStopping, is not saved.

    Args:
        loader: the loader that the model is trained from, by steps().
        folder: where the state is kept: state.json, and a file of weights, epoch-E-step-S.weights.h5, of which older
            ones are removed. With several ranks, rank 0 writes the files, and all read them.
        every: the number of batches. None: only at the end of each epoch.
    """

    def __init__(self, loader: _loader.Loader, folder: str | os.PathLike, every: int | None = None):
        super().__init__()
        if not isinstance(loader, _loader.Loader):
            raise Error(
                f"SaveState: {loader!r} is not a loader of feedline; give the loader that fit() takes its steps from"
            )
        self._loader, self._folder = loader, os.path.abspath(folder)
        self._every = None if every is None else integer("every", every, range(1, 2**31))
        self._weights = None  # the file of weights to load
        self._file = os.path.join(self._folder, "state.json")
        if os.path.exists(self._file):
            with open(self._file, encoding="utf-8") as file:
                state = json.load(file)
            loader.load_state_dict(state["feed"])
            self._weights = os.path.join(self._folder, state["weights"])
        loader._begin()
        self._epoch = loader.epoch
        self._first = self._step = loader.step  # Keras's epoch began with step _first
        self._saved = self._epoch, self._step

    def on_train_begin(self, logs: Any = None) -> None:
        """Loads the weights. Raises Error if the epochs of fit() are not the feed's."""
        found, steps, at_a_time = self.params["steps"], len(self._loader), self.model.steps_per_execution
        if found != steps:
            raise Error(
                f"SaveState: an epoch of fit() has {found or 'an unknown number of'} steps, but an epoch of the feed "
                f"has {steps}; call fit() with steps_per_epoch=len(loader); to change the length, set epoch.steps of "
                "the pipeline"
            )
        if steps % at_a_time or self._first % at_a_time:
            raise Error(
                f"SaveState: steps_per_execution={at_a_time} would take steps of two epochs at a time, because an "
                f"epoch has {steps} steps and this epoch begins with step {self._first}; give compile() a "
                "steps_per_execution that divides both numbers"
            )
        if not self.model.built:
            raise Error(
                "SaveState: the model is not built; give the model an Input, or call the model on a batch before fit()"
            )
        if self._weights is not None:
            if self.model.optimizer is not None and not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)
            self.model.load_weights(self._weights)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Raises Error if the epoch is not the feed's."""
        if epoch != self._epoch:
            raise Error(
                f"SaveState: fit() began epoch {epoch}, but the feed is in epoch {self._epoch}; call fit() with "
                "initial_epoch=loader.epoch, and make a new SaveState for each call of fit()"
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves if it is time to, and ends the epoch after the feed's last step."""
        self._step = self._first + batch + 1
        if self._step >= len(self._loader):
            if self._first and not self.model.stop_training:
                self.model.stop_training = _REST_IS_DONE
        elif self._every is not None and self._step - self._saved[1] >= self._every:
            self._save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves."""
        if self.model.stop_training == _REST_IS_DONE:
            self.model.stop_training = False
        if self._step >= len(self._loader):
            self._epoch, self._step, self._first = epoch + 1, 0, 0
        self._save()

    def _save(self):
        if self._saved == (self._epoch, self._step):
            return  # to write the same file again would put the only saved weights at risk
        self._saved = self._epoch, self._step
        if self._loader._arguments["rank"] != 0:
            return
        os.makedirs(self._folder, exist_ok=True)
        weights = os.path.join(self._folder, f"epoch-{self._epoch}-step-{self._step}.weights.h5")
        self.model.save_weights(weights)
        feed = self._loader.state_dict(epoch=self._epoch, step=self._step)
        with open(self._file + ".new", "w", encoding="utf-8") as file:
            json.dump({"feed": feed, "weights": os.path.basename(weights)}, file)
        os.replace(self._file + ".new", self._file)  # from here on the state is the new one
        for name in os.listdir(self._folder):
            if re.fullmatch(r"epoch-\d+-step-\d+\.weights\.h5", name) and name != os.path.basename(weights):
                os.remove(os.path.join(self._folder, name))


def _wanted(loader, x, y, sample_weight):
    """Returns the parts of a step that Keras wants."""
    if not isinstance(loader, _loader.Loader) or type(loader) is _loader.Loader or loader.as_tuple is not None:
        raise Error(
            f"{loader!r}: Keras needs a loader whose steps are dicts of arrays; give a feedline.numpy.Loader without "
            "as_tuple"
        )
    parts = [part for part in (x, y, sample_weight) if part is not None]
    if sample_weight is not None and y is None:
        raise Error("sample_weight is given without y; give y, too")
    names = [*(element.name for element in loader.elements()), "@valid"]
    for part in parts:
        for name in [part] if isinstance(part, str) else part.values() if isinstance(part, Mapping) else part:
            if name not in names:
                raise Error(f"the loader has no output {name!r}; its outputs are {', '.join(names)}")
    return parts


def _taken(batch, parts):
    def of(name):
        return batch.valid_mask if name == "@valid" else batch[name]

    def part_of(part):
        if isinstance(part, str):
            return of(part)
        if isinstance(part, Mapping):
            return {key: of(name) for key, name in part.items()}
        return tuple(of(name) for name in part)

    return tuple(map(part_of, parts))
