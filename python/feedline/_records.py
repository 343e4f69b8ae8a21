"""Reads and writes TFRecord files, for programs that need no loader."""

import contextlib
import math
import numbers
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Self

from . import _feedline
from ._arguments import integer, one_of
from ._errors import Error
from ._pipeline import caller


def records(
    file: str | os.PathLike, *, compression: str = "auto", record_limit: int = 256 << 20, on_error: str = "raise"
) -> Iterator[bytes]:
    """Opens a TFRecord file, and yields its records as bytes, each verified by both of its checksums.

    `compression` is "auto", "none", "gzip" or "zlib". With on_error="raise" damage raises its Error; with "skip"
    reading continues at the next record that provably belongs to the file."""
    one_of("on_error", on_error, "raise", "skip")
    one_of("compression", compression, "auto", "none", "gzip", "zlib")
    record_limit = integer("record_limit", record_limit, range(2**63), "give the size of the longest record, in bytes")
    return _records(_feedline.RecordReader(file, compression, record_limit), on_error)


def _records(reader, on_error):
    while True:
        try:
            record = reader.next()
        except Error as error:
            if on_error == "skip" and error.category != "io_error":
                continue
            raise
        if record is None:
            return
        yield record[0]


def parse_example(record: bytes) -> dict[str, list]:
    """Returns the features of a tf.train.Example: {name: list of bytes, floats or ints}."""
    if not isinstance(record, (bytes, bytearray, memoryview)):
        raise Error(f"a record must be bytes, not {type(record).__name__}", "wrong_dtype")
    return _feedline.parse_example(bytes(record))


def _typed(values):
    """Returns ("bytes", list), ("floats", buffer of float32) or ("ints", buffer of int64); None for no values."""
    if isinstance(values, (str, bytes)):  # numpy's str_ and bytes_, too: an array drops zeros at their end
        values = [values]
    elif hasattr(values, "__dlpack__") or hasattr(values, "__array__"):
        import numpy as np

        if np.ma.is_masked(values):
            raise ValueError(
                "some values are masked, and a record cannot store a mask; give values.compressed() or values.filled()"
            )
        values = np.asarray(values)
        if values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                floats = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
            if values.dtype.itemsize > 4 and (lost := np.isinf(floats) & np.isfinite(values.reshape(-1))).any():
                raise OverflowError(
                    f"{values.reshape(-1)[lost][0]} is outside the range of float32, as which a record stores it"
                )
            return "floats", floats
        if values.dtype.kind in "mM":
            raise TypeError(f"an array of {values.dtype} is neither numbers nor bytes; give array.astype('int64')")
        if values.dtype.kind == "u" and values.size and values.max() > 2**63 - 1:
            raise OverflowError(f"{values.max()} is outside the range of int64, as which a record stores it")
        if values.dtype.kind in "iub":
            return "ints", np.ascontiguousarray(values, dtype=np.int64).reshape(-1)
        values = values.reshape(-1).tolist()
    if isinstance(values, memoryview) and values.format not in ("B", "b", "c"):
        values = values.tolist()  # numbers, such as those of an array.array
    if isinstance(values, (bytearray, memoryview, int, float)):
        values = [values]
    if isinstance(values, (Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(
            f"a {type(values).__name__} is neither a value nor a sequence; give a number, str, bytes, or a sequence of "
            "these"
        )
    values = list(values)
    if not values:
        return None
    if all(isinstance(v, (str, bytes, bytearray, memoryview)) for v in values):
        return "bytes", [v.encode() if isinstance(v, str) else bytes(v) for v in values]
    if any(isinstance(v, numbers.Real) and not isinstance(v, numbers.Integral) for v in values):
        floats = _array("f", values)
        for given, stored in zip(values, floats):
            if math.isinf(stored) and not math.isinf(given):
                raise OverflowError(f"{given} is outside the range of float32, as which a record stores it")
        return "floats", floats
    return "ints", _array("q", values)


def _array(kind, values):
    try:
        return array(kind, values)
    except (TypeError, OverflowError):
        for value in values:
            if not isinstance(value, numbers.Real):
                raise TypeError(
                    f"{value!r:.60} is neither a number nor bytes; give a flat sequence of numbers or of bytes"
                ) from None
            if kind == "q" and not -(2**63) <= value < 2**63:
                raise OverflowError(f"{value} is outside the range of int64, as which a record stores it") from None
        raise


def _is_utf8(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class RecordWriter:
    """Writes a TFRecord file, which appears under its name only when it is complete: close() gives it its name. `with`
    closes the writer; if the body of `with` raises, no file is left.

    `compression` is "none" or "gzip"."""

    def __init__(self, file: str | os.PathLike, *, compression: str = "none"):
        self._file = os.fsdecode(file)
        path = self._file
        with contextlib.suppress(FileNotFoundError):  # if the working directory was removed; opening fails then
            path = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
        self._writer = _feedline.RecordWriter(path, one_of("compression", compression, "none", "gzip"))
        self._keys, self._examples, self._records = None, None, 0

    def write(self, record: bytes | dict) -> None:
        """Appends a record: bytes, or a dict that becomes a tf.train.Example. A value of the dict is one value or a
        sequence: str and bytes become a bytes_list, floats a float_list, integers and bools an int64_list; arrays are
        flattened. A number that its list cannot hold, such as 1e39, is an Error, and so are masked values. (numpy's
        arrays of dtype S lose zero bytes at the end of a value; a list of bytes does not.) An empty list has no type,
        so its feature is left out, which readers understand as no values."""
        if self._writer is None:
            raise Error("the writer is closed, so it can write no more records", "io_error", file=self._file)
        if not isinstance(record, (dict, bytes, bytearray, memoryview)):
            wrong = f"a record must be bytes or a dict, not {type(record).__name__}"
            raise Error(wrong, "wrong_dtype", file=self._file)
        self._writer.write(self._example(record) if isinstance(record, dict) else bytes(record))
        self._records += 1

    def _example(self, features):
        keys = list(features)
        if keys != self._keys:
            for key in keys:
                if not isinstance(key, str) or not _is_utf8(key):
                    wrong = f"{caller()}: {key!r} cannot name a feature; give a string that can be encoded as UTF-8"
                    raise Error(wrong, "wrong_dtype", file=self._file)
            self._keys, self._examples = keys, _feedline.ExampleWriter(keys)
        typed = []
        for key, values in features.items():
            try:
                typed.append(_typed(values))
            except (TypeError, ValueError, OverflowError) as error:
                raise Error(f"feature '{key}': {error}", "wrong_dtype", feature=key) from None
        for i, one in enumerate(typed):
            if one:
                getattr(self._examples, "set_" + one[0])(i, one[1])
        return self._examples.finish()

    @property
    def records(self) -> int:
        """The number of records that have been written."""
        return self._records

    def close(self) -> None:
        """Completes the file and gives it its name."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._writer = None


def write(file: str | os.PathLike, records: Iterable[bytes | dict], *, compression: str = "none") -> int:
    """Writes a TFRecord file of these records, each bytes or a dict (see RecordWriter.write), and returns their
    number."""
    with RecordWriter(file, compression=compression) as writer:
        for record in records:
            writer.write(record)
        return writer.records
