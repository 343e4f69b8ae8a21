"""Batches of TensorFlow tensors, for loops, and as a tf.data.Dataset.

    from feedline.tf import Loader

    loader = Loader("chess.textproto")
    for epoch in range(10):
        for batch in loader:  # a dict of TensorFlow tensors
            loss = network(batch["board"])
"""

import re
import threading
from typing import Any

import tensorflow as tf

from . import _batch, _loader
from ._batch import Ragged
from ._errors import Error
from ._ranks import Place
from .numpy import HostLoader


class Batch(_batch.Batch):
    """A feedline.Batch whose tensors, also `valid_mask`, are TensorFlow's. A ragged output is a tf.RaggedTensor."""

    __slots__ = ()


class Loader(HostLoader):
    """Feeds this process: each step is a Batch, a dict of TensorFlow tensors on the host.

    The arguments are those of feedline.Loader; the devices are the host. Tensors share the memory of the feed; strings,
    which become tf.string, are copied.
    """

    _module = __name__
    _dataset = -1  # the generation of the iteration from which a dataset has taken steps

    def __reduce__(self) -> Any:
        self._own.add("_dataset")
        return super().__reduce__()

    def state_dict(self, *, epoch: int | None = None, step: int | None = None) -> dict:
        """Returns a state, as feedline.Loader does. If the last steps went to a dataset, `epoch` must be given, because
        TensorFlow may have taken more steps from the dataset than the program has used."""
        if epoch is None and self._dataset == self._generation:
            raise Error(
                "state_dict: TensorFlow may have taken more steps of the dataset than the program has used; give the "
                "place of the program, for example state_dict(epoch=2, step=100) after 100 steps of epoch 2"
            )
        return super().state_dict(epoch=epoch, step=step)

    def _place(self):
        """Returns the Place of this process in the cluster of a tf.distribute strategy. TensorFlow knows the devices of
        the cluster as soon as the strategy is made."""
        found = (tf.DeviceSpec.from_string(device.name) for device in tf.config.list_logical_devices())
        tasks = sorted({(device.job, device.task) for device in found if device.job in ("chief", "ps", "worker")})
        here = tf.DeviceSpec.from_string(tf.constant(0).device)
        if len(tasks) < 2 or (here.job, here.task) not in tasks:
            return super()._place()
        if any(job == "ps" for job, _ in tasks):
            return Place(None, None, "TensorFlow's cluster has parameter servers")
        return Place(tasks.index((here.job, here.task)), len(tasks), "TensorFlow's cluster")

    def _present(self, batch):
        step = _batch.mapped(batch, Batch, _tensor, self._string)
        for name, value in step.items():
            step[name] = _ragged(value)
        return step

    def _string(self, name, value, rows):
        return tf.constant(self._string_array(name, value, rows), tf.string)

    def dataset(self) -> tf.data.Dataset:
        """Returns the steps as a tf.data.Dataset, for functions that accept only datasets, such as those of
        tf.distribute.Strategy.

        Each iteration of the dataset is an epoch, and the next iteration is the next epoch. But if an iteration ends
        early, the next one begins where it began, and the older one raises Error if TensorFlow asks it for more. An
        element is a dict, or with `as_tuple` a tuple. The dataset knows its cardinality, unless its first iteration
        begins in the middle of an epoch. TensorFlow does not shard it, because each process already has rows of its
        own. While the dataset is iterated, nothing else may use the loader, except for its state_dict().
        """
        if self._replicas > 1:
            raise Error(
                "dataset: a dataset feeds only one device, but 'devices' names several; leave out 'devices', and let "
                "tf.distribute split the steps"
            )
        data = tf.data.Dataset.from_generator(_Iterations(self), output_signature=self._signature())
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        steps, whole = self._feeder.steps_per_epoch(), self._step == 0 or self._iterated
        if steps >= 0 and whole:
            data = data.apply(tf.data.experimental.assert_cardinality(steps))
        return data.with_options(options)

    def _signature(self):
        frames = [None] if re.search(r"^window \{", str(self.pipeline), re.MULTILINE) else []
        specs = {"@valid": tf.TensorSpec([None, *frames], tf.bool)}
        for element in self._elements:
            dtype = tf.string if element.dtype == "BYTES" else tf.dtypes.as_dtype(element.dtype.lower())
            if element.kind in ("ragged", "nested"):
                rank = 1 if element.kind == "ragged" else 2
                specs[element.name] = tf.RaggedTensorSpec([None] * (1 + rank) + list(element.shape), dtype, rank)
            else:
                longest = [None] if element.kind == "padded" else []
                specs[element.name] = tf.TensorSpec([None, *longest, *element.shape], dtype)
        if self.as_tuple is not None:
            return tuple(specs[name] for name in self.as_tuple)
        return {element.name: specs[element.name] for element in self._elements}


class _Iterations:
    """The generator function of a dataset: each call begins an iteration. tf.data begins some iterations of which it
    only prefetches a few steps, and it asks for steps on threads of its own."""

    def __init__(self, loader):
        self._loader, self._lock = loader, threading.Lock()
        self._begin = None  # the state with which the present iteration began; None after its last step
        self._number = 0  # the number of the present iteration

    def __call__(self):
        with self._lock:
            if self._begin is not None:
                self._loader.load_state_dict(self._begin)
            self._loader._begin()
            steps = iter(self._loader)
            self._begin = _loader.Loader.state_dict(self._loader)
            self._number += 1
            number = self._number
        done = False
        while True:
            with self._lock:
                if number != self._number:
                    if done:
                        return
                    raise Error(
                        "another iteration of this dataset began before this iteration was done; make a second Loader "
                        "to iterate at the same time"
                    )
                step = next(steps, None)
                done = step is None or self._loader._at_end()
                if done:
                    self._begin = None
            if step is None:
                return
            self._loader._dataset = self._loader._generation
            yield step if isinstance(step, tuple) else dict(step)


def _tensor(tensor):
    return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())


def _ragged(value):
    if not isinstance(value, Ragged):
        return value
    return tf.RaggedTensor.from_row_splits(_ragged(value.values), value.row_splits, validate=False)
