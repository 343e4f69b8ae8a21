"""The value of each output for one record."""

import math
import os
from fnmatch import fnmatchcase
from typing import NamedTuple

import imaging
import numpy as np
import schema
from casts import NUMPY, cast, is_float, name_of, with_nan
from features import Declared, Failure, shaped
from fingerprint import fingerprint
from formulas import Formula, OutOfRange

RESERVED = ("@record", "@file", "@offset", "@source")
_FORMULA_ULPS = 16
_FAST_LEVELS = 5.0  # by which pixels of 165 small JPEGs differ at most, of 255
_PICTURES_KEPT = 64


class Candidates(NamedTuple):
    """What a random output may be: values[i] belongs to choices[i], which is (y, x, height, width, mirrored).

    Outputs of one group have the same choice, if their pictures have one size. Where pictures of one record differ in
    size, a choice is a tuple of such tuples, one for each picture.
    """

    choices: list
    values: np.ndarray


class Row:
    """A record whose features are read, and the outputs that were made of it so far."""

    def __init__(self, frame, features: dict):
        self.frame, self.features, self.made = frame, features, {}

    def scalar(self, name: str):
        """Returns a feature of one number, or a reserved one, as Python's int or float."""
        if name in RESERVED:
            return getattr(self.frame, name[1:])
        return self.features[name].item()


def matching(names: list[str], patterns: list[str]) -> list[str]:
    """Returns the names that a stack takes: those of each pattern in the order of declaration, each once."""
    chosen = [name for pattern in patterns for name in names if name == pattern or fnmatchcase(name, pattern)]
    return list(dict.fromkeys(chosen))


class Output:
    """A tensor of the pipeline.

    `kind` is "dense", "padded", "ragged" or "nested", `type` its DType by name, `dtype` a numpy type or "BYTES", and
    `shape` that of a value (of a step, if it is padded). A value may be off by `tolerance` and by `relative` of itself.
    With a tolerance, integers and BOOL are not yet rounded.
    """

    def __init__(self, message, declared: dict[str, Declared], every: dict, folder: str):
        self.name, self.is_internal, self.message = message.name, message.internal, message
        self.tolerance = self.relative = 0.0
        self._every, self._folder, self._cache = every, folder, {}
        self._axis, self._rounds, self._stored = -1, False, None
        self.kind, self.shape, self._transposed = "dense", (), False
        self.feature = declared.get(message.feature)
        way = message.WhichOneof("from") or ("number" if message.feature in RESERVED else "passed")
        natural = getattr(self, "_resolve_" + way)(declared)
        self._finish_type(natural)
        self._make = getattr(self, "_" + way)

    def value(self, row: Row):
        """Returns the value of a record, or raises Failure. Candidates are large, so rows do not keep them."""
        if self.name in row.made:
            return row.made[self.name]
        value = self._make(row)
        if not isinstance(value, Candidates):
            row.made[self.name] = value
        return value

    def pad_value(self):
        """Returns what a row that is shorter than the longest one is padded with, a step of `shape`."""
        if self.dtype == "BYTES":
            value = (self.feature.default or [b""])[0]
            return [value] * math.prod(self.shape) if self.shape else value
        if self.message.WhichOneof("from") == "decode_image":
            return np.zeros(self.shape, self.dtype)
        default = shaped((self.feature.default or [0])[:1], self.feature, ())
        return self._finished(np.full(self.feature.shape, default))

    # What is known of each way before there is a record. Each returns the natural type of the values.

    def _resolve_passed(self, _) -> str:
        feature = self.feature
        kinds = {"FIXED": "dense", "FIXED_SEQUENCE": "padded", "RAGGED": "nested" if feature.in_list else "ragged"}
        self.kind, self.shape = kinds[feature.kind], feature.shape
        wanted = schema.enum_name(self.message, "dtype")
        if feature.dtype != "BYTES" or feature.kind != "FIXED" or not feature.length or wanted == "BYTES":
            return feature.dtype
        self.shape += (feature.length,)
        return "UINT8"

    def _resolve_number(self, _) -> str:
        return "INT64"

    def _resolve_unpack_bits(self, _) -> str:
        spec = self.message.unpack_bits
        self.shape = tuple(spec.shape)
        self._stored = "HWC"
        if spec.scale or spec.bias:
            return "FLOAT32"
        bits = next(bits for bits in (8, 16, 32) if (spec.width or 1) <= bits)
        return f"{'' if spec.sign_extend else 'U'}INT{bits}"

    def _resolve_decode_raw(self, _) -> str:
        spec = self.message.decode_raw
        self.shape, self._stored = tuple(spec.shape), schema.enum_name(spec, "layout")
        stored = schema.enum_name(spec, "stored")
        self._raw = np.dtype(NUMPY["UINT8" if stored == "DTYPE_UNSET" else stored])
        self._shaping = imaging.Shaping(self.message)
        if self._shaping.does_something:
            channels_first = self._stored == "CHW"
            stored_size = self.shape[1:] if channels_first else self.shape[:2]
            channels = self.shape[0] if channels_first else self.shape[2]
            size = self._shaping.size(stored_size)
            self.shape = (channels, *size) if channels_first else (*size, channels)
            self._resolve_inexact(1)
        return name_of(self._raw)

    def _resolve_decode_image(self, _) -> str:
        spec, feature = self.message.decode_image, self.feature
        if spec.scale and self.message.HasField("crop"):
            raise NotImplementedError("windows of pictures that are decoded to a smaller size")
        self._shaping, self._stored = imaging.Shaping(self.message), "HWC"
        self.shape = (*self._shaping.size(None), spec.channels or 3)
        self._is_clip = feature.kind != "FIXED" or bool(feature.shape)
        self._lead = feature.shape if feature.kind == "FIXED" else ()
        self.kind = "padded" if feature.kind == "FIXED_SEQUENCE" else "dense"
        self._resolve_inexact(257 if spec.bit_depth == 16 else 1)
        return "UINT16" if spec.bit_depth == 16 else "UINT8"

    def _resolve_inexact(self, unit: int) -> None:
        """Sets the tolerance of pictures: sums are in another order, and Pillow has no fast transforms."""
        self._rounds = True
        self.tolerance = 1e-4 * unit if self._shaping.is_inexact else 0.0
        if schema.enum_name(self.message.decode_image, "dct") == "FAST":
            self.tolerance += _FAST_LEVELS * unit

    def _resolve_one_hot(self, _) -> str:
        lead = self.feature.shape if self.feature.kind == "FIXED" else ()
        self.shape = (*lead, self.message.one_hot.classes)
        return "FLOAT32"

    def _resolve_lookup(self, _) -> str:
        spec = self.message.lookup
        self._table = np.load(os.path.join(self._folder, spec.table), mmap_mode="r")
        if spec.keys_file:
            self._rows = self._numbers_of_names(spec.keys_file)
        self.shape = (*self.feature.shape, *self._table.shape[1:])
        return name_of(self._table.dtype)

    def _resolve_vocabulary(self, _) -> str:
        self._rows = self._numbers_of_names(self.message.vocabulary.keys_file)
        self.shape = self.feature.shape
        return "INT64"

    def _resolve_hash(self, _) -> str:
        self.shape = self.feature.shape
        return "INT64"

    def _numbers_of_names(self, file_name: str) -> dict[bytes, int]:
        with open(os.path.join(self._folder, file_name), "rb") as file:
            names = [line.removesuffix(b"\n").removesuffix(b"\r") for line in file]
        return {name: i for i, name in enumerate(names)}

    def _resolve_stack(self, declared) -> str:
        self._names = matching(list(declared), list(self.message.stack.features))
        self.shape = (len(self._names),)
        return declared[self._names[0]].dtype

    def _resolve_expression(self, declared) -> str:
        spec = self.message.expression
        integers = {feature.name for feature in declared.values() if feature.dtype == "INT64"}
        self._formula = Formula(spec.formula, integers, dict(spec.constants))
        self.relative = 0.0 if self._formula.is_exact else _FORMULA_ULPS * 2.0**-53
        for name in self._formula.names:
            if name.startswith("out."):
                other = self._every[name[4:]]
                self.relative = max(self.relative, other.relative)
                self.tolerance = max(self.tolerance, other.tolerance)
        return "FLOAT64"

    def _finish_type(self, natural: str) -> None:
        """Settles dtype, tolerance and the order of the axes."""
        message = self.message
        wanted = schema.enum_name(message, "dtype")
        default = "FLOAT32" if message.HasField("normalize") else natural
        self.type = default if wanted == "DTYPE_UNSET" else wanted
        self.dtype = "BYTES" if self.type == "BYTES" else NUMPY[self.type]
        if self._stored == "CHW":
            self._axis = -3
        layout = schema.enum_name(message, "layout")
        if layout != "AS_IS" and layout != self._stored:
            self._transposed = True
            self.shape = (self.shape[2], *self.shape[:2]) if layout == "CHW" else (*self.shape[1:], self.shape[0])
        if getattr(self, "_lead", ()):
            self.shape = (*self._lead, *self.shape)
        if self.tolerance or self.relative:
            self._loosen()

    def _loosen(self) -> None:
        """Widens the tolerance by what normalising and casting make of it."""
        spec = self.message.normalize
        self.tolerance *= abs(spec.scale if spec.HasField("scale") else 1.0) / min(spec.std or [1.0])
        if not is_float(self.type) and self.type != "BOOL":
            self.tolerance += 0.5 if self._rounds else 1.0
        self.relative += {"FLOAT16": 2.0**-10, "BFLOAT16": 2.0**-7, "FLOAT32": 2.0**-22}.get(self.type, 0.0)

    # What becomes of a record in each way.

    def _finished(self, values) -> np.ndarray:
        """Returns values normalised, cast and laid out. Axes before those of the output stay."""
        values = np.asarray(values)
        if self.message.HasField("normalize"):
            values = self._normalized(values)
        if (self.tolerance or self.relative) and not is_float(self.type):
            limits = np.finfo(float) if self.type == "BOOL" else np.iinfo(self.dtype)
            values = np.nan_to_num(values.astype(float), nan=float(self.type == "BOOL"))
            values = np.clip(values, limits.min, limits.max)
        elif self._rounds and values.dtype.kind == "f" and self.type != "BOOL" and not is_float(self.type):
            values = cast(np.rint(values), self.type)
        else:
            values = cast(values, self.type)
        if self._transposed:
            values = np.moveaxis(values, -1, -3) if self._stored == "HWC" else np.moveaxis(values, -3, -1)
        return np.ascontiguousarray(values).reshape(values.shape)

    @np.errstate(all="ignore")
    def _normalized(self, values: np.ndarray) -> np.ndarray:
        def along_channels(numbers, default):
            numbers = np.array(numbers or [default], np.float32)
            return numbers if len(numbers) == 1 or self._axis == -1 else numbers.reshape(-1, 1, 1)

        spec = self.message.normalize
        scale = np.float32(spec.scale if spec.HasField("scale") else 1.0)
        shape = np.shape(values)
        result = cast(values, "FLOAT32") * scale - along_channels(spec.mean, 0.0)
        result = (result / along_channels(spec.std, 1.0)).astype(np.float32).reshape(shape)
        return with_nan(result, np.isnan(result))

    def _passed(self, row: Row):
        value = row.features[self.feature.name]
        if self.type == "BYTES":
            return value
        if self.feature.dtype == "BYTES":
            joined = value if isinstance(value, bytes) else b"".join(value)
            return self._finished(np.frombuffer(joined, np.uint8).reshape(self.shape))
        if self.kind == "nested":
            return [self._finished(step) for step in value]
        return self._finished(value)

    def _number(self, row: Row):
        return self._finished(np.int64(row.scalar(self.message.feature)))

    def _unpack_bits(self, row: Row):
        spec = self.message.unpack_bits
        width, count = spec.width or 1, math.prod(spec.shape)
        order = "little" if spec.bit_order else "big"
        bits = np.unpackbits(np.frombuffer(row.features[self.feature.name], np.uint8), bitorder=order)
        bits = bits[spec.bit_offset : spec.bit_offset + count * width].reshape(count, width).astype(np.int64)
        places = np.arange(width) if spec.bit_order else np.arange(width)[::-1]
        fields = (bits << places).sum(1)
        if spec.sign_extend:
            fields -= (fields >> (width - 1)) << width
        fields = fields.reshape(tuple(spec.shape))
        if spec.channel_order:
            fields = fields[..., list(spec.channel_order)]
        fields = fields.astype(np.int32 if spec.sign_extend else np.uint32)
        if spec.scale or spec.bias:
            scale, bias = np.array(spec.scale or [1], np.float32), np.array(spec.bias or [0], np.float32)
            with np.errstate(all="ignore"):
                product = (scale * cast(fields, "FLOAT32")).astype(np.float32)
                fields = (product + bias).astype(np.float32).reshape(fields.shape)
            fields = with_nan(fields, np.isnan(fields))
        return self._finished(fields)

    def _decode_raw(self, row: Row):
        spec = self.message.decode_raw
        raw = self._raw.newbyteorder(">" if spec.big_endian else "<")
        stored = np.frombuffer(row.features[self.feature.name], np.uint8 if raw == np.bool_ else raw)
        stored = (stored != 0 if raw == np.bool_ else stored.astype(self._raw)).reshape(tuple(spec.shape))
        if not self._shaping.does_something:
            return self._finished(stored)
        return self._shaped([np.moveaxis(stored, 0, -1) if self._stored == "CHW" else stored], False)

    def _decode_image(self, row: Row):
        value = row.features[self.feature.name]
        frames = list(value) if self._is_clip else [value]
        key = tuple(frames)
        if key not in self._cache:
            if len(self._cache) >= _PICTURES_KEPT:
                self._cache.pop(next(iter(self._cache)))
            try:
                self._cache[key] = self._shaped(
                    [imaging.decode(frame, self.message.decode_image, self._shaping.wanted) for frame in frames], self._is_clip
                )
            except Failure:
                self._cache[key] = Failure("bad_image", self.feature.name)
        if isinstance(self._cache[key], Failure):
            raise self._cache[key]
        return self._cache[key]

    def _shaped(self, frames: list[np.ndarray], is_clip: bool):
        """Returns the tensor of a picture or of all frames of a clip, or what it may be."""
        try:
            ways = [self._shaping.candidates(pixels) for pixels in frames]
        except Failure:
            raise Failure("bad_image", self.feature.name) from None
        if not ways:
            empty = np.zeros((0, *self.shape), self.dtype)
            return Candidates([()], empty[None]) if self._shaping.is_random else empty
        if len({pixels.shape for pixels in frames}) == 1:
            choices, stacked = ways[0][0], np.stack([values for _, values in ways], 1)
        else:
            choices, stacked = self._of_all_sizes(ways)
        if stacked.dtype == np.float64:
            stacked = stacked.astype(np.float32)
        if self._stored == "CHW":
            stacked = np.moveaxis(stacked, -1, -3)
        stacked = self._finished(stacked)
        stacked = stacked if is_clip else stacked[:, 0]
        return Candidates(choices, stacked) if self._shaping.is_random else stacked[0]

    @staticmethod
    def _of_all_sizes(ways: list) -> tuple[list, np.ndarray]:
        """Returns every combination of the frames' windows in which all frames are mirrored, or none."""
        combined = [((), ())]
        for choices, values in ways:
            combined = [
                ((*chosen, choice), (*taken, value))
                for chosen, taken in combined
                for choice, value in zip(choices, values)
                if not chosen or chosen[0][-1] == choice[-1]
            ]
            if len(combined) > 100_000:
                raise NotImplementedError("clips of many random frames of several sizes")
        return [chosen for chosen, _ in combined], np.stack([np.stack(taken) for _, taken in combined])

    def _one_hot(self, row: Row):
        spec, numbers = self.message.one_hot, np.asarray(row.features[self.feature.name])
        if not spec.ignore_outside and not np.all((numbers >= 0) & (numbers < spec.classes)):
            raise Failure("wrong_value", self.feature.name)
        on = spec.on_value if spec.HasField("on_value") else 1.0
        places = np.arange(spec.classes) == numbers[..., None]
        if self.feature.kind != "FIXED":
            places = places.any(0)
        return self._finished(np.where(places, on, spec.off_value))

    def _lookup(self, row: Row):
        if self.message.lookup.keys_file:
            numbers = [self._rows.get(name, -1) for name in self._names_of(row)]
        else:
            numbers = np.ravel(row.features[self.feature.name]).tolist()
        lost = [not 0 <= number < len(self._table) for number in numbers]
        if any(lost) and not self.message.lookup.HasField("unknown"):
            raise Failure("wrong_value", self.feature.name)
        numbers = [self.message.lookup.unknown if is_lost else number for number, is_lost in zip(numbers, lost)]
        return self._finished(self._table[numbers].reshape(self.shape))

    def _vocabulary(self, row: Row):
        spec = self.message.vocabulary
        numbers = [self._rows.get(name) for name in self._names_of(row)]
        if spec.unknown_buckets:
            hashes = [len(self._rows) + fingerprint(name) % spec.unknown_buckets for name in self._names_of(row)]
            numbers = [other if number is None else number for number, other in zip(numbers, hashes)]
        elif spec.HasField("unknown"):
            numbers = [spec.unknown if number is None else number for number in numbers]
        elif None in numbers:
            raise Failure("wrong_value", self.feature.name)
        return self._finished(np.array(numbers, np.int64).reshape(self.shape))

    def _hash(self, row: Row):
        buckets = self.message.hash.buckets
        return self._finished(np.array([fingerprint(n) % buckets for n in self._names_of(row)]).reshape(self.shape))

    def _names_of(self, row: Row) -> list[bytes]:
        """Returns the values of the feature as names; that of a number is its decimal text."""
        value = row.features[self.feature.name]
        if self.feature.dtype == "INT64":
            return [str(number).encode() for number in np.ravel(value).tolist()]
        return [value] if isinstance(value, bytes) else list(value)

    def _stack(self, row: Row):
        to = "FLOAT32" if self.message.HasField("normalize") else self.type
        return self._finished(np.array([cast(row.features[name], to) for name in self._names]))

    def _expression(self, row: Row):
        env = Scalars(row, self._every)
        try:
            number = self._formula(env)
        except OutOfRange:
            raise Failure("wrong_value", self.name) from None
        if self._formula.is_int:
            return self._finished(np.int64(number))
        return self._finished(np.float64("nan" if math.isnan(number) else number))


class Scalars:
    """The names that a formula reads: features of a row, and outputs as FLOAT64."""

    def __init__(self, row: Row, every: dict):
        self._row, self._every = row, every

    def __getitem__(self, name: str):
        if name.startswith("out."):
            return float(cast(self._every[name[4:]].value(self._row), "FLOAT64"))
        return self._row.scalar(name)
