"""The batches that the steps of a loader deliver."""

import builtins
from typing import Any, NamedTuple

from . import _feedline


class Strings(NamedTuple):
    """Strings of bytes. `bytes`, uint8, holds them one after another. `offsets`, int64, has the position in `bytes` at
    which each string begins, and as its last value the position at which the last string ends."""

    bytes: _feedline.Tensor
    offsets: _feedline.Tensor

    def tolist(self) -> list[builtins.bytes]:
        """Returns the strings as a list of bytes objects. The tensors must be on the host."""
        text = _bytes_of(self.bytes)
        at = memoryview(_bytes_of(self.offsets)).cast("q")
        return [text[at[i] : at[i + 1]] for i in range(len(at) - 1)]


def _bytes_of(tensor):
    """Returns the bytes of a tensor on the host, which may be of any framework."""
    if isinstance(tensor, _feedline.Tensor):
        return bytes(tensor)
    import numpy  # the frameworks of other tensors need numpy, too

    return numpy.asarray(tensor).tobytes()


class Ragged(NamedTuple):
    """Rows of different lengths: row i has values[row_splits[i]:row_splits[i + 1]]. `values` is a tensor, or Strings,
    or again a Ragged if each row has steps of different lengths. `row_splits` is int64 [rows + 1]."""

    values: "_feedline.Tensor | Strings | Ragged"
    row_splits: _feedline.Tensor


class Batch(dict[str, Any]):
    """The tensors of one replica for one step: {name: tensor}. They are yours for as long as you keep them.

    A dense or padded output NAME is a `Tensor`. A ragged or nested one is a `Ragged`, and strings are `Strings`; both
    are tuples of tensors.

    Attributes:
        epoch, step: the number of the epoch, and of the step in it, both counted from 0.
        rows: the length of the first axis of every dense tensor.
        valid_count: how many of the rows are samples; the others are filler.
        valid_mask: bool tensor [rows] ([rows, frames] with windows), 0 where a row is filler.
    """

    __slots__ = ("epoch", "step", "rows", "valid_count", "valid_mask")
    epoch: int
    step: int
    rows: int
    valid_count: int
    valid_mask: _feedline.Tensor

    def __repr__(self) -> str:
        return f"feedline.Batch(epoch {self.epoch}, step {self.step}, {dict.__repr__(self)})"


class Element(NamedTuple):
    """Describes one output of a pipeline, which is the same in every batch.

    `kind` is "dense" (NAME: [rows, shape...]), "padded" ([rows, longest of the batch, shape...]), "ragged" (values of
    `shape`, and row_splits) or "nested" (values, step_splits and row_splits). `dtype` is a name of pipeline.proto;
    "BYTES" are strings. `tensors` are the names that `feedline dump` and C++ have for its tensors.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    tensors: tuple[str, ...]


def assembler(elements):
    """Returns a function that makes a Batch of what Feeder.next() returns."""
    simple = all(len(element.tensors) == 1 for element in elements)

    def assemble(given):
        batch = Batch()
        batch.epoch, batch.step, batch.rows, batch.valid_count, tensors = given
        batch.valid_mask = tensors.pop("@valid")
        if simple:
            batch.update(tensors)
            return batch
        for element in elements:
            parts = [tensors[name] for name in element.tensors]
            values = Strings(*parts[:2]) if element.dtype == "BYTES" else parts[0]
            for splits in parts[2 if element.dtype == "BYTES" else 1 :]:
                values = Ragged(values, splits)
            batch[element.name] = values
        return batch

    return assemble


def mapped(batch, kind, change, strings=None):
    """Returns a copy of the batch, of the class `kind`, in which change(tensor) replaces each tensor, also
    `valid_mask`, and strings(name, value, rows) replaces each Strings. If `strings` is None, these stay tuples, as
    ragged outputs do."""
    result = kind((name, _changed(name, value, batch.rows, change, strings)) for name, value in batch.items())
    result.epoch, result.step, result.rows, result.valid_count = batch.epoch, batch.step, batch.rows, batch.valid_count
    result.valid_mask = change(batch.valid_mask)
    return result


def _changed(name, value, rows, change, strings):
    if strings is not None and isinstance(value, Strings):
        return strings(name, value, rows)
    if isinstance(value, tuple):
        return type(value)(*(_changed(name, part, rows, change, strings) for part in value))
    return change(value)
