"""What feedline must deliver of each record, going only by the documents. It shares no code with feedline.

Windows, mixtures, shuffles, batches and filler are not here: `sources` says which records there are, and `value` what
each output has of one of them.
"""

import glob
import os
import re
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import records
import schema
from casts import NUMPY
from features import Declared, Failure, declared, read_features
from formulas import Formula, OutOfRange
from outputs import Candidates, Output, Row, Scalars

__all__ = ["Candidates", "Failure", "Frame", "Output", "Reference"]

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("IB", 1024))
}


class Frame(NamedTuple):
    """A record of a source, and where it lies."""

    source: int
    file: int  # over all sources
    path: str
    offset: int
    record: int  # good records of the source before it, those outside of `range` included
    payload: bytes | None  # None if the record is damaged
    damage: str = ""


def size_in_bytes(text: str, default: int) -> int:
    if not text:
        return default
    number, unit = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text).groups()
    return int(Fraction(number) * _UNITS[unit.upper()])


def _matches(path: str, pattern: str, folder: str) -> bool:
    """Compares a file with a pattern: its name, or with a '/' the whole path, relative to `folder`, part by part."""
    pattern = pattern.replace("[^", "[!")
    if "/" not in pattern:
        return fnmatchcase(os.path.basename(path), pattern)
    parts, wanted = (os.path.normpath(os.path.join(folder, name)).split("/") for name in (path, pattern))
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def files_of(source, folder: str) -> list[str]:
    """Returns the files of a source: in the order of the patterns, sorted by byte, each once, without indexes."""
    paths, seen = [], set()
    for pattern in source.files:
        pattern = os.path.join(folder, pattern)
        found = [pattern] if os.path.exists(pattern) else glob.glob(pattern.replace("[^", "[!"))
        if not found:
            raise FileNotFoundError(pattern)
        for path in sorted(found, key=os.fsencode):
            identity = os.stat(path).st_dev, os.stat(path).st_ino
            excluded = any(_matches(path, other, folder) for other in source.exclude)
            if not (identity in seen or excluded or path.endswith(".feedline-index") or os.path.isdir(path)):
                seen.add(identity)
                paths.append(os.path.normpath(path))
    return paths


def _bound(text: str, count: int, default: int) -> int:
    """Returns a side of a range as a number of records. A percentage is rounded down."""
    if not text.strip():
        return default
    if text.strip().endswith("%"):
        return int(Fraction(text.strip()[:-1]) * count / 100)
    return min(int(text), count)


def part_of(source, count: int) -> range:
    """Returns the numbers of the good records of a source that range and shard leave."""
    begin, end = 0, count
    if source.range:
        low, high = source.range.split(":")
        begin, end = _bound(low, count, 0), _bound(high, count, count)
    shards, length = source.num_shards or 1, max(end - begin, 0)
    return range(begin + length * source.shard_id // shards, begin + length * (source.shard_id + 1) // shards)


class Reference:
    """What feedline must deliver of each record, going only by the documents.

    `folder` is what paths in the pipeline are relative to. `damaged_later` has the paths of files whose damage was made
    after they had been counted: there a record with a bad payload checksum keeps its place and its number. Elsewhere
    such a record is no sample with SKIP_RECORD, SKIP_FILE leaves its file out, and with RAISE it is a frame without a
    payload, at its place: the feed ends there. If a filter was evaluated before that damage, `damaged_later` is a dict
    {path: path of a sound copy}.
    """

    def __init__(self, text: str, folder: str, damaged_later: set[str] | dict[str, str] = frozenset()):
        self.pipeline = schema.parse_pipeline(text)
        self._folder = os.path.abspath(folder)
        copies = damaged_later if isinstance(damaged_later, dict) else dict.fromkeys(damaged_later)
        self._later = {os.path.abspath(path): copy for path, copy in copies.items()}
        self._rows: dict = {}
        self._record_type = schema.enum_name(self.pipeline.source[0], "record_type")
        self._declared = self._declare()
        self._every = self._make_outputs()
        self.outputs = [output for output in self._every.values() if not output.is_internal]
        integers = {feature.name for feature in self._declared.values() if feature.dtype == "INT64"}
        self._filter = Formula(self.pipeline.filter, integers, {}) if self.pipeline.filter else None
        self.sources = self._read_sources()

    def value(self, frame: Frame, output_name: str):
        """Returns the value of an output, or raises the Failure of parsing or of this output.

        Dense: an array of the output's dtype and shape, or Candidates; of BYTES bytes, or a list of them (row-major).
        Padded: the steps, without padding. Ragged: the values. Nested: a list of these, one for each step.
        """
        return self._every[output_name].value(self._row(frame))

    def feature(self, frame: Frame, name: str):
        """Returns the value of a feature, or raises the Failure of parsing."""
        return self._sound_row(frame).features[name]

    def failure(self, frame: Frame) -> Failure | None:
        """Returns the first Failure of a record, or None if it is good.

        The order is: the payload's checksum; the message; each feature in the order of declaration; the filter; each
        expression, internal ones included, after those that it reads (also where an `if` does not look at them); each
        other output that is delivered. Other internal outputs are not made.
        """
        try:
            row = self._row(frame)
            if self._filter:
                self._passes(row)
            for output in self._order:
                output.value(row)
        except Failure as failure:
            return failure
        return None

    def pad_value(self, output_name: str):
        """Returns the step that pads rows of a padded output."""
        return self._every[output_name].pad_value()

    def _declare(self) -> dict[str, Declared]:
        messages = list(self.pipeline.source[0].feature) or list(self.pipeline.feature)
        if self._record_type == "RAW" and not messages:
            messages = [schema.pipeline_class()().feature.add(name="record")]
        lengths = {}
        for output in self.pipeline.output:
            if output.WhichOneof("from") == "decode_raw":
                stored = schema.enum_name(output.decode_raw, "stored")
                size = 1 if stored == "DTYPE_UNSET" else NUMPY[stored].itemsize
                lengths[output.feature] = size * int(np.prod(output.decode_raw.shape, dtype=np.int64))
        features = [declared(message, lengths.get(message.name, 0)) for message in messages]
        if self._record_type == "RAW":
            features = [feature._replace(dtype="BYTES") for feature in features]
        return {feature.name: feature for feature in features}

    def _make_outputs(self) -> dict[str, Output]:
        messages = list(self.pipeline.output)
        if not messages:
            messages = [schema.pipeline_class()().output.add(name=name, feature=name) for name in self._declared]
        waiting, made = {message.name: message for message in messages}, {}

        def make(name: str) -> None:
            message = waiting.pop(name)
            for other in re.findall(r"out\.(\w+)", message.expression.formula):
                if other in waiting:
                    make(other)
            made[name] = Output(message, self._declared, made, self._folder)

        for message in messages:
            if message.name in waiting:
                make(message.name)
        expressions = [output for output in made.values() if output.message.HasField("expression")]
        every = {message.name: made[message.name] for message in messages}
        others = [output for output in every.values() if not output.message.HasField("expression")]
        self._order = expressions + [output for output in others if not output.is_internal]
        return every

    def _row(self, frame: Frame) -> Row:
        key = (frame.file, frame.offset)
        if key not in self._rows:
            try:
                if frame.payload is None:
                    raise Failure(frame.damage)
                features = read_features(frame.payload, self._record_type, list(self._declared.values()))
                self._rows[key] = Row(frame, features)
            except Failure as failure:
                self._rows[key] = failure
        if isinstance(self._rows[key], Failure):
            raise self._rows[key]
        return self._rows[key]

    def _read_sources(self) -> list[list[Frame]]:
        on_error = schema.enum_name(self.pipeline.errors, "on_error")
        read: dict = {}
        sources, files_before = [], 0
        self.files = []  # the numbers of the files of each source
        self.counted = []  # of each file how many records it has, and how many of them counting finds damaged
        for number, source in enumerate(self.pipeline.source):
            frames, good = [], 0
            compression = schema.enum_name(source, "compression")
            paths = files_of(source, self._folder)
            self.files.append(range(files_before, files_before + len(paths)))
            for file, path in enumerate(paths, files_before):
                key = (path, compression, source.record_limit)
                if key not in read:
                    read[key] = records.read(path, compression, size_in_bytes(source.record_limit, 256 << 20))
                later = path in self._later
                damaged = 0 if later else sum(bool(record.damage) for record in read[key])
                self.counted.append((len(read[key]), damaged))
                if on_error == "SKIP_FILE" and damaged:
                    continue
                for record in read[key]:
                    if not record.damage or later or on_error == "RAISE":
                        place = (number, file, path, record.offset, good)
                        frames.append(Frame(*place, record.payload, record.damage))
                        good += not record.damage or later
            files_before += len(paths)
            part = part_of(source, good)
            chosen = [f for f in frames if f.record in part or f.damage and f.record == good == part.stop]
            sources.append(self._filtered(chosen, on_error) if self._filter else chosen)
        return sources

    def _passes(self, row: Row) -> bool:
        try:
            return self._filter(Scalars(row, {})) != 0
        except OutOfRange:
            raise Failure("wrong_value", "filter") from None

    def _sound_row(self, frame: Frame) -> Row:
        """Returns the row as it was when the filter was evaluated, before the damage."""
        if not frame.damage or frame.path not in self._later:
            return self._row(frame)
        if not self._later[frame.path]:
            return self._row(frame)
        payload = next(r.payload for r in records.read(self._later[frame.path]) if r.offset == frame.offset)
        return Row(frame, read_features(payload, self._record_type, list(self._declared.values())))

    def _filtered(self, frames: list[Frame], on_error: str) -> list[Frame]:
        """Leaves out what the filter is 0 for, and bad records, unless they end the feed."""
        kept = []
        for frame in frames:
            try:
                if self._passes(self._sound_row(frame)):
                    kept.append(frame)
            except Failure:
                if on_error == "RAISE":
                    kept.append(frame)
        return kept
