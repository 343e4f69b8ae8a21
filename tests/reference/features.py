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


def _default(value):
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
        default=[_default(value) for value in message.default_value],
        max_values=message.max_values,
        required=message.required,
    )


_KINDS = {"bytes_list": "BYTES", "float_list": "FLOAT32", "int64_list": "INT64"}
_NUMPY = {"FLOAT32": np.uint32, "INT64": np.int64}  # of floats their bits
_VIEW = {"FLOAT32": np.float32, "INT64": np.int64}


def _values(data: bytes, feature: Declared):
    """Returns the values of a Feature message, or None if it has no kind."""
    try:
        message = schema.Feature.FromString(data)
    except DecodeError as error:
        raise Failure("malformed_proto") from error
    return _values_of(message, feature)


def _values_of(message, feature: Declared):
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    if _KINDS[kind] != feature.dtype:
        raise Failure("wrong_dtype", feature.name)
    values = list(getattr(message, kind).value)
    if feature.length and any(len(value) != feature.length for value in values):
        raise Failure("wrong_length", feature.name)
    return values


def _steps(data: bytes, feature: Declared) -> list:
    try:
        steps = schema.FeatureList.FromString(data).feature
    except DecodeError as error:
        raise Failure("malformed_proto") from error
    return [_values_of(step, feature) or [] for step in steps]


def shaped(values: list, feature: Declared, shape: tuple):
    """Returns numbers as an array, BYTES as a list (of steps, if these have a shape), and one value of BYTES alone."""
    if feature.dtype != "BYTES":
        return np.array(values, _NUMPY[feature.dtype]).view(_VIEW[feature.dtype]).reshape(shape)
    if feature.kind == "FIXED_SEQUENCE" and feature.shape:
        step = math.prod(feature.shape)
        return [values[i : i + step] for i in range(0, len(values), step)]
    return values[0] if shape == () else values


def _wrong_count(feature: Declared):
    return Failure("wrong_count", feature.name)


def _context_value(values: list | None, feature: Declared):
    if feature.kind == "FIXED":
        count = math.prod(feature.shape)
        if values is None:
            if not feature.default:
                raise Failure("missing_feature", feature.name)
            values = feature.default * (count if len(feature.default) == 1 else 1)
        if len(values) != count:
            raise _wrong_count(feature)
        return shaped(values, feature, feature.shape)
    if values is None and feature.required:
        raise Failure("missing_feature", feature.name)
    values = values or []
    if len(values) % math.prod(feature.shape) or feature.max_values and len(values) > feature.max_values:
        raise _wrong_count(feature)
    return shaped(values, feature, (-1, *feature.shape) if feature.shape else (len(values),))


def _list_value(steps: list | None, feature: Declared):
    if steps is None and (feature.required or feature.kind == "FIXED"):
        if feature.kind != "FIXED" or not feature.default:
            raise Failure("missing_feature", feature.name)
        count = math.prod(feature.shape)
        return shaped(feature.default * (count if len(feature.default) == 1 else 1), feature, feature.shape)
    steps = steps or []
    values = [value for step in steps for value in step]
    if feature.kind == "RAGGED":
        if feature.max_values and max(len(values), len(steps)) > feature.max_values:
            raise _wrong_count(feature)
        return [shaped(step, feature, (len(step),)) for step in steps]
    step_shape = feature.shape[1:] if feature.kind == "FIXED" else feature.shape
    if feature.kind == "FIXED" and len(steps) != feature.shape[0]:
        raise _wrong_count(feature)
    if any(len(step) != math.prod(step_shape) for step in steps):
        raise _wrong_count(feature)
    if feature.max_values and len(values) > feature.max_values:
        raise _wrong_count(feature)
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
    try:
        if record_type == "EXAMPLE":
            context, lists = _entries(schema.Example.FromString(payload).features), {}
        else:
            record = schema.SequenceExample.FromString(payload)
            context, lists = _entries(record.context), _entries(record.feature_lists)
    except DecodeError as error:
        raise Failure("malformed_proto") from error
    read = {}
    for feature in features:
        data = (lists if feature.in_list else context).get(feature.key)
        if feature.in_list:
            read[feature.name] = _list_value(None if data is None else _steps(data, feature), feature)
        else:
            read[feature.name] = _context_value(None if data is None else _values(data, feature), feature)
    return read
