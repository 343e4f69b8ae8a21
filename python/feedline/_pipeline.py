"""Pipelines, which say what to feed. Each is one message of pipeline.proto, written as text or in Python."""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from . import _feedline
from ._arguments import flag, integer, number, string
from ._errors import Error

_SCHEMA = _feedline.schema()
_DTYPES = {bytes: "BYTES", str: "BYTES", int: "INT64", float: "FLOAT32", bool: "BOOL"}
_LOAD = "to read a pipeline from a file, call feedline.Pipeline.load(file)"


def caller():
    """Returns "FILE:LINE" of the code that called into this package."""
    frame = sys._getframe()
    package = os.path.dirname(frame.f_code.co_filename)
    while frame.f_back and os.path.dirname(frame.f_code.co_filename) == package:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def dtype_name(dtype):
    """Returns pipeline.proto's name of `dtype`, which is a Python type, a name, or a dtype of numpy, torch or jax."""
    if dtype in _DTYPES:
        return _DTYPES[dtype]
    name = str(getattr(dtype, "__name__", dtype)).rsplit(".", 1)[-1].upper()
    return {"BOOL_": "BOOL", "DOUBLE": "FLOAT64", "HALF": "FLOAT16"}.get(name, name)


def _refuse(path, why):
    raise Error(f"{path}: {why}")


def _quoted(value):
    data = value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value)
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in data) + '"'


def _scalar(path, kind, value):
    """Returns a value in protobuf's text format."""
    if isinstance(kind, list):
        name = dtype_name(value) if "FLOAT32" in kind else str(value).upper()
        if name not in kind:
            near = difflib.get_close_matches(name, kind, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            _refuse(path, f"{value!r} is not one of {', '.join(kind)}{hint}")
        return name
    if kind in ("string", "bytes"):
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        return _quoted(value if isinstance(value, bytes) else string(path, value))
    if kind == "bool":
        return "true" if flag(path, value) else "false"
    return str(integer(path, value)) if kind == "int" else repr(number(path, value))


def _value(number):
    """Returns the fields of a Value message, which has one of three types."""
    if isinstance(number, (str, bytes)):
        return {"bytes_value": number}
    return {"float32_value": number} if isinstance(number, float) else {"int64_value": number}


def _text(message, fields, path=""):
    """Returns the fields of a message in protobuf's text format. Fields that are None are left out."""
    parts = []
    known = _SCHEMA[message]
    for name, value in fields.items():
        here = f"{path}.{name}" if path else name
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"its fields are {', '.join(known)}"
            _refuse(here, f"{message} has no field {name!r}; {hint}")
        kind, repeated = known[name]
        if value is None:
            continue
        if kind == "map" and not isinstance(value, dict):
            _refuse(here, f"{value!r} is not a dict of names and values")
        if kind == "map":
            parts += [f"{name} {{ key: {_scalar(here, 'string', k)} "
                      f"value: {_scalar(here, 'string' if isinstance(v, str) else 'float', v)} }}"
                      for k, v in value.items()]
            continue
        values = [value]
        if repeated and (isinstance(value, (list, tuple)) or hasattr(value, "tolist")):
            values = value.tolist() if hasattr(value, "tolist") else value
            values = values if isinstance(values, (list, tuple)) else [values]
        for one in values:
            if isinstance(kind, str) and kind in _SCHEMA:
                if kind == "Value" and not isinstance(one, dict):
                    one = _value(one)
                if not isinstance(one, dict):
                    wanted = f"give a dict with fields of {kind}, which are {', '.join(_SCHEMA[kind])}"
                    _refuse(here, f"{one!r} is not a dict; {wanted}")
                parts.append(f"{name} {{ {_text(kind, one, here)} }}")
            else:
                parts.append(f"{name}: {_scalar(here, kind, one)}")
    return " ".join(parts)


class Pipeline:
    """Says what to feed. A pipeline is immutable: its methods return other pipelines.

    Make one from text or a file, or with `feedline.tfrecords(...)` and the methods below. Their keywords are the fields
    of pipeline.proto (docs/pipeline.md): a name that is no field, or a value of another type, is an Error that names
    the field and the line of the caller. The rest is checked when a Loader is made, because it depends on the data.

    str(pipeline) is its text, without the folder to which file patterns are relative. Pipelines can be pickled.
    """

    __slots__ = ("_message", "_lines")

    def __init__(self, text: str = "", *, folder: str | os.PathLike = "", name: str = "pipeline"):
        """Makes a pipeline from protobuf's text format. Relative file patterns are relative to `folder`, or to the
        current working directory if it is empty. Error messages call the text `name`."""
        string("text", text, _LOAD)
        try:
            self._message = _feedline.parse_pipeline(text, folder, string("name", name))
        except Error as error:
            if not _is_file(text):
                raise
            raise Error(f"{error}; {_LOAD}") from None
        self._lines = {}

    @classmethod
    def load(cls, file: str | os.PathLike) -> "Pipeline":
        """Makes a pipeline from a text file. Relative file patterns are relative to the file's folder."""
        return cls._of(_feedline.load_pipeline(file), {})

    @classmethod
    def _of(cls, message, lines):
        self = cls.__new__(cls)
        self._message, self._lines = message, lines
        return self

    def overlaid(self, other: "str | dict | Pipeline", name: str = "overlay") -> "Pipeline":
        """Returns this pipeline with `other` laid over it. `other` is text, a dict of fields, or a pipeline. File
        patterns in it are relative to the folder of this pipeline.

        Scalars and repeated fields that `other` names are replaced as a whole, and so are all sources if it names any.
        A feature or output replaces the one of its name, or is appended. Other messages are merged field by field."""
        if isinstance(other, dict):
            return self._laid(other)
        if not isinstance(other, (str, Pipeline)):
            raise Error(
                f"{other!r} (of type {type(other).__name__}) cannot be laid over a pipeline; give a pipeline as text, "
                "a dict of its fields, or a feedline.Pipeline"
            )
        return self._of(self._message.overlaid(str(other), string("name", name)), self._lines)

    def with_field(self, path: str, value: Any) -> "Pipeline":
        """Returns this pipeline with one field changed: with_field("output.board.dtype", "FLOAT16"). An empty text
        clears the field."""
        try:
            message = self._message.with_field(string("path", path), str(value))
        except Error as error:
            raise Error(f"{caller()}: {error}") from None
        return self._of(message, self._lines)

    def _laid(self, fields):
        where = caller()
        try:
            message = self._message.overlaid(_text("Pipeline", fields), where)
        except Error as error:
            raise Error(f"{where}: {error}" if where not in str(error) else str(error)) from None
        lines = dict(self._lines)
        for name, value in fields.items():
            one = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) else None
            lines[f"{name} '{one['name']}'" if one and "name" in one else name] = where
        return self._of(message, lines)

    def _explain(self, error):
        """Returns the Error. Adds the line of the program that set the field which the message names, if it is
        known."""
        match = re.match(r"(\w+)(?: '([^']*)')?", error.message)
        line = match and (self._lines.get(match.group(0)) or self._lines.get(match.group(1)))
        if not line:
            return error
        return Error(f"{error} (written at {line})", error.category, f"{error.message} (written at {line})", error.file,
                     error.offset, error.record, error.feature)

    def source(self, *files: str | os.PathLike | Sequence[str | os.PathLike], **fields: Any) -> "Pipeline":
        """Returns this pipeline with one more source: paths or patterns of TFRecord files, or lists of these."""
        where = caller()
        try:
            each = [one for given in files for one in (given if isinstance(given, (list, tuple)) else [given])]
            source = _text("Source", {"files": each, **fields}, "source")
        except Error as error:
            raise Error(f"{where}: {error}") from None
        message = _feedline.parse_pipeline(f"{self.text()}source {{ {source} }}", self._message.folder(), where)
        return self._of(message, {**self._lines, "source": where})

    def feature(
        self,
        name: str,
        dtype: Any,
        *,
        shape: list[int] | None = None,
        length: int | None = None,
        default: Any = None,
        **fields: Any,
    ) -> "Pipeline":
        """Adds a feature, which is read from each record. `dtype` is bytes, int, float or a name."""
        if default is not None:
            default = default.tolist() if hasattr(default, "tolist") else default
            values = default if isinstance(default, (list, tuple)) else [default]
            kind = {"FLOAT32": "float32_value", "INT64": "int64_value"}.get(dtype_name(dtype), "bytes_value")
            fields["default_value"] = [{kind: value} for value in values]
        return self._laid({"feature": [{"name": name, "dtype": dtype, "shape": shape, "length": length, **fields}]})

    def output(self, name: str, **fields: Any) -> "Pipeline":
        """Adds an output: a tensor of the batch. Without any output, every feature becomes an output.

        unpack_bits, decode_raw and expression take a dict of their fields; expression also takes just the formula,
        and stack a list of features."""
        if isinstance(fields.get("expression"), str):
            fields["expression"] = {"formula": fields["expression"]}
        if isinstance(fields.get("stack"), (str, list, tuple)):
            fields["stack"] = {"features": fields["stack"]}
        return self._laid({"output": [{"name": name, **fields}]})

    def filter(self, formula: str) -> "Pipeline":
        """Leaves out the samples for which the formula is 0."""
        return self._laid({"filter": formula})

    def interleave(self, cycle_length: int, **fields: Any) -> "Pipeline":
        """Takes samples of several files in turn."""
        return self._laid({"interleave": {"cycle_length": cycle_length, **fields}})

    def window(self, size: int, **fields: Any) -> "Pipeline":
        """Makes each sample of `size` records."""
        return self._laid({"window": {"size": size, **fields}})

    def mixture(self, **fields: Any) -> "Pipeline":
        """Draws samples from all sources by their weight."""
        return self._laid({"mixture": fields})

    def shuffle(self, buffer_size: int | None = None, **fields: Any) -> "Pipeline":
        """Shuffles. The mode is BLOCK unless `mode` says otherwise."""
        return self._laid({"shuffle": {"buffer_size": buffer_size, **fields}})

    def epoch(self, **fields: Any) -> "Pipeline":
        """Says what an epoch is."""
        return self._laid({"epoch": fields})

    def batch(self, global_batch_size: int | None = None, **fields: Any) -> "Pipeline":
        """Sets the number of rows of a step, of all replicas of all ranks together."""
        return self._laid({"batch": {"global_batch_size": global_batch_size, **fields}})

    def distribute(self, mode: str, **fields: Any) -> "Pipeline":
        """Says which ranks read, and for which others, if several ranks feed one training."""
        return self._laid({"distribute": {"mode": mode, **fields}})

    def cache(self, limit: str, **fields: Any) -> "Pipeline":
        """Caches what is the same in every epoch, in memory or on a disk, up to `limit` bytes, such as "8GiB"."""
        return self._laid({"cache": {"limit": limit, **fields}})

    def seed(self, seed: int) -> "Pipeline":
        """Sets the seed of all random choices."""
        return self._laid({"seed": seed})

    def errors(self, **fields: Any) -> "Pipeline":
        """Says what to do about bad records."""
        return self._laid({"errors": fields})

    def memory(self, **fields: Any) -> "Pipeline":
        """Says how many bytes the feed may take."""
        return self._laid({"memory": fields})

    def parallelism(self, **fields: Any) -> "Pipeline":
        """Sets the number of threads, the CPUs and the number of prefetched batches; keywords are fields of
        `parallelism`."""
        return self._laid({"parallelism": fields})

    def text(self) -> str:
        """Returns the pipeline in protobuf's text format."""
        return self._message.text()

    __str__ = text

    def __repr__(self):
        return f"feedline.Pipeline({self.text()!r}, folder={self.folder!r})"

    def __eq__(self, other):
        return isinstance(other, Pipeline) and self.text() == other.text() and self.folder == other.folder

    def __hash__(self):
        return hash(self.text())

    @property
    def folder(self) -> str:
        """The folder to which relative file patterns are relative, as an absolute path. So a pipeline names the same
        files after the program has changed its working directory, and so does its pickle in another process."""
        return self._message.folder()

    def __reduce__(self):
        return (_unpickle, (self.text(), self._message.folder(), self._lines))


def _unpickle(text, folder, lines):
    return Pipeline._of(_feedline.parse_pipeline(text, folder, "pipeline"), lines)


def _is_file(text):
    """Returns whether a str seems to be the name of a file, and not the text of a pipeline."""
    return "{" not in text and (":" not in text or os.path.exists(text))


def tfrecords(*files: str | os.PathLike | Sequence[str | os.PathLike], **fields: Any) -> Pipeline:
    """Begins a pipeline that reads these TFRecord files: paths or patterns with * ? [...], or lists of these, relative
    to the current working directory. Keywords are fields of `source`: compression="GZIP", range="0%:90%", ..."""
    return Pipeline().source(*files, **fields)


def pipeline_of(given, overrides=None):
    """Returns the pipeline that `given` describes: a Pipeline, the name of a file, text, or a list of these, of which
    each is laid over those before it (Pipeline.overlaid). The fields of `overrides` are laid over the result."""
    parts = list(given) if isinstance(given, (list, tuple)) else [given]
    if not parts:
        raise Error(
            "the list of pipelines is empty; give the path of a pipeline file, the pipeline as text, or a "
            "feedline.Pipeline"
        )
    result = None
    for part in parts:
        if isinstance(part, Pipeline):
            result = part if result is None else result.overlaid(part.text())
        elif isinstance(part, os.PathLike) or (isinstance(part, str) and _is_file(part)):
            if result is None:
                result = Pipeline.load(part)
            else:
                try:
                    with open(part, encoding="utf-8") as file:
                        text = file.read()
                except OSError as error:
                    raise Error(f"{os.fspath(part)}: cannot be read: {error.strerror}", "io_error") from None
                result = result.overlaid(text, os.fsdecode(part))
        elif isinstance(part, str):
            result = Pipeline(part) if result is None else result.overlaid(part)
        else:
            raise Error(
                f"{part!r} (of type {type(part).__name__}) is not a pipeline; give the path of a pipeline file, the "
                "pipeline as text, or a feedline.Pipeline"
            )
    return result._laid(overrides) if overrides else result
