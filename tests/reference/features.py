"""What the `feature` entries of a pipeline read of one payload."""

import math
from typing import NamedTuple

import numpy as np
import schema
from google.protobuf.message import DecodeError


class Failure(Exception):
    """A bad record: the category of docs/errors.md, and the feature or the formula's output that it is about.

    Of malformed_proto and damage no feature is said: it is that which a parser happens to be in.
    """

    def __init__(self, category: str, feature: str | None = None):
        super().__init__(category, feature)
        self.category, self.feature = category, feature

    def __eq__(self, other):
        return isinstance(other, Failure) and self.args == other.args

    __hash__ = Exception.__hash__


class Declared(NamedTuple):
    """A feature as it is declared, with its defaults filled in."""

    name: str
    key: bytes
    dtype: str
    kind: str  # FIXED, RAGGED (also for VARIABLE) or FIXED_SEQUENCE
    in_list: bool
    shape: tuple
    length: int
    default: list
    max_values: int
    required: bool

    @property
    def is_scalar(self) -> bool:
        return self.kind == "FIXED" and not self.shape


def _plain(value):
    """Returns a value as records have it: of a float its bits."""
    kind = value.WhichOneof("value")
    plain = getattr(value, kind)
    return int(np.float32(plain).view(np.uint32)) if kind == "float32_value" else plain


def declared(message, length: int = 0) -> Declared:
    """Returns what a Feature message declares; `length` counts if the message has none."""
    kind = schema.enum_name(message, "kind")
    return Declared(
        name=message.name,
        key=message.key if message.HasField("key") else message.name.encode(),
        dtype=schema.enum_name(message, "dtype"),
        kind="RAGGED" if kind == "VARIABLE" else kind,
        in_list=schema.enum_name(message, "where") == "FEATURE_LIST",
        shape=tuple(message.shape),
        length=message.length or length,
        default=[_plain(value) for value in message.default_value],
        max_values=message.max_values,
        required=message.required,
    )


_KINDS = {"bytes_list": "BYTES", "float_list": "FLOAT32", "int64_list": "INT64"}
_NUMPY = {"FLOAT32": np.uint32, "INT64": np.int64}  # of floats their bits
_VIEW = {"FLOAT32": np.float32, "INT64": np.int64}


def _parsed(message_class, data: bytes):
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise Failure("malformed_proto") from error


def _values(message, feature: Declared) -> list | None:
    """Returns the values of a Feature message, or None if it has no kind."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    if _KINDS[kind] != feature.dtype:
        raise Failure("wrong_dtype", feature.name)
    return list(getattr(message, kind).value)


def _check(feature: Declared, values: list, is_right_count: bool) -> None:
    """Raises what is wrong with some values: first their count, then their lengths."""
    if not is_right_count:
        raise Failure("wrong_count", feature.name)
    if feature.length and any(len(value) != feature.length for value in values):
        raise Failure("wrong_length", feature.name)


def shaped(values: list, feature: Declared, shape: tuple):
    """Returns numbers as an array, BYTES as a list (of steps, if these have a shape), and one value of BYTES alone."""
    if feature.dtype != "BYTES":
        return np.array(values, _NUMPY[feature.dtype]).view(_VIEW[feature.dtype]).reshape(shape)
    if feature.kind == "FIXED_SEQUENCE" and feature.shape:
        step = math.prod(feature.shape)
        return [values[i : i + step] for i in range(0, len(values), step)]
    return values[0] if shape == () else values


def _default(feature: Declared):
    """Returns the value of a record that lacks a FIXED feature."""
    if not feature.default:
        raise Failure("missing_feature", feature.name)
    count = math.prod(feature.shape) if len(feature.default) == 1 else 1
    return shaped(feature.default * count, feature, feature.shape)


def _context_value(data: bytes | None, feature: Declared):
    values = None if data is None else _values(_parsed(schema.Feature, data), feature)
    size = math.prod(feature.shape)
    if feature.kind == "FIXED":
        if values is None:
            return _default(feature)
        _check(feature, values, len(values) == size)
        return shaped(values, feature, feature.shape)
    if values is None and feature.required:
        raise Failure("missing_feature", feature.name)
    values = values or []
    _check(feature, values, len(values) % size == 0 and not 0 < feature.max_values < len(values))
    return shaped(values, feature, (len(values) // size, *feature.shape))


def _list_value(data: bytes | None, feature: Declared):
    if data is None and feature.kind == "FIXED":
        return _default(feature)
    if data is None and feature.required:
        raise Failure("missing_feature", feature.name)
    step_shape, steps = feature.shape[1:] if feature.kind == "FIXED" else feature.shape, []
    for step in _parsed(schema.FeatureList, data or b"").feature:
        steps.append(_values(step, feature) or [])
        _check(feature, steps[-1], feature.kind == "RAGGED" or len(steps[-1]) == math.prod(step_shape))
    values = [value for step in steps for value in step]
    counted = max(len(values), len(steps) if feature.kind == "RAGGED" else 0)
    _check(feature, [], not 0 < feature.max_values < counted)
    if feature.kind == "RAGGED":
        return [shaped(step, feature, (len(step),)) for step in steps]
    _check(feature, [], feature.kind != "FIXED" or len(steps) == feature.shape[0])
    return shaped(values, feature, (len(steps), *step_shape))


def _entries(entries) -> dict:
    """Returns a map: the last entry of a key counts, and the values of one entry are merged."""
    return {entry.key: b"".join(entry.value) for entry in entries.entry}


def read_features(payload: bytes, record_type: str, features: list[Declared]) -> dict:
    """Returns the value of each feature by its name, or raises the first Failure in the order of declaration.

    A value is an array (FIXED, FIXED_SEQUENCE, RAGGED), a list of bytes, one bytes object (FIXED without a shape), or a
    list of these, one for each step (RAGGED in a feature list).
    """
    if record_type == "RAW":
        for feature in features:
            if feature.length and len(payload) != feature.length:
                raise Failure("wrong_length", feature.name)
        return {feature.name: payload for feature in features}
    if record_type == "EXAMPLE":
        context, lists = _entries(_parsed(schema.Example, payload).features), {}
    else:
        record = _parsed(schema.SequenceExample, payload)
        context, lists = _entries(record.context), _entries(record.feature_lists)
    return {
        feature.name: _list_value(lists.get(feature.key), feature)
        if feature.in_list
        else _context_value(context.get(feature.key), feature)
        for feature in features
    }
