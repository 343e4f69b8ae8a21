"""Feeds a pipeline with feedline, and compares each row with the reference."""

import numpy as np
from reference import Candidates, Reference

import feedline
from feedline.numpy import Loader


def _rows_of(value, kind: str, count: int) -> list:
    """Returns what each row of a batch has of an output."""
    if kind in ("dense", "padded"):
        if isinstance(value, np.ndarray) and len(value) == count:
            return list(value)
        return np.split(value, count)
    return ragged_rows(value)


def ragged_rows(part) -> list:
    """Returns the rows of a ragged output, or of a nested one the steps of each row."""
    values, splits = part
    if isinstance(values, tuple):
        values = ragged_rows(values)
    return [values[begin:end] for begin, end in zip(splits, splits[1:])]


def _close(output, given, wanted) -> np.ndarray:
    """Tells of each number whether it may be what the reference wants."""
    given, wanted = given.astype(np.float64), wanted.astype(np.float64)
    near = {"atol": output.tolerance, "rtol": output.relative}
    if output.type == "BOOL":
        return (given == (wanted != 0)) | np.isclose(0.0, wanted, **near)
    return np.isclose(given, wanted, equal_nan=True, **near)


def _same(output, given, wanted) -> bool:
    if isinstance(given, bytes) or isinstance(wanted, bytes):
        return given == wanted
    given, wanted = np.asarray(given), np.asarray(wanted)
    if given.shape != wanted.shape:
        return False
    if output.tolerance or output.relative:
        return given.dtype == output.dtype and bool(_close(output, given, wanted).all())
    if given.dtype == object:
        return given.tolist() == wanted.tolist()
    return given.dtype == wanted.dtype and given.tobytes() == wanted.tobytes()


def _padded(output, wanted, longest: int, pad):
    if isinstance(wanted, list):
        values = np.array([*wanted, *[pad] * (longest - len(wanted))], object)
        return values.reshape(longest, *output.shape)
    return np.stack([*wanted, *[pad] * (longest - len(wanted))]) if longest else wanted


def agrees(reference: Reference, output, given, wanted) -> bool:
    """Tells whether a row has what the reference wants."""
    if isinstance(wanted, Candidates):
        return bool(fits(reference, output, given, wanted))
    if output.kind == "padded":
        return _same(output, given, _padded(output, wanted, len(given), reference.pad_value(output.name)))
    if output.kind == "nested":
        return len(given) == len(wanted) and all(_same(output, a, _plain(b)) for a, b in zip(given, wanted))
    return _same(output, given, _plain(wanted, output.shape if output.kind == "dense" else (-1,)))


def fits(reference: Reference, output, given, wanted: Candidates) -> list[int]:
    """Returns which of the candidates a row has."""
    values = wanted.values
    if (
        output.kind != "dense"
        or values.dtype == object
        or (output.dtype, values.shape[1:]) != (given.dtype, given.shape)
    ):
        return [number for number, value in enumerate(values) if agrees(reference, output, given, value)]
    values, given = values.reshape(len(values), -1), given.reshape(-1)
    left = np.arange(len(values))
    for some in (slice(8), slice(8, 64), slice(64, None)):  # the first numbers rule most of them out
        left = left[_close(output, given[some], values[left, some]).all(1)]
    return left.tolist()


def _plain(wanted, shape=(-1,)):
    return np.array(wanted, object).reshape(shape) if isinstance(wanted, list) else wanted


def differences(text: str, folder) -> list[str]:
    """Returns what differs between feedline and the reference, and how many rows were good and bad."""
    reference = Reference(text, str(folder))
    loader = Loader(feedline.Pipeline(text, folder=str(folder)), threads=1)
    frames = [frame for source in reference.sources for frame in source]
    found = []
    kinds = [(element.name, element.kind, element.dtype, element.shape) for element in loader.elements()]
    mine = [(o.name, o.kind, o.type, tuple(o.shape)) for o in reference.outputs]
    if kinds != mine:
        found.append(f"elements: {kinds} but {mine}")
        return found
    at = 0
    for batch in loader:
        count = len(batch.valid_mask)
        rows = {o.name: _rows_of(batch[o.name], o.kind, count) for o in reference.outputs}
        for r, frame in enumerate(frames[at : at + count]):
            failure = reference.failure(frame)
            valid = bool(batch.valid_mask[r])
            if valid != (failure is None):
                found.append(f"record {frame.record}: {'good' if valid else 'bad'}, but {failure!r}")
            for output in reference.outputs if valid and not failure else ():
                wanted = reference.value(frame, output.name)
                if not agrees(reference, output, rows[output.name][r], wanted):
                    found.append(f"record {frame.record} {output.name}: {rows[output.name][r]!r} but {wanted!r}")
        at += count
    if at < len(frames):
        found.append(f"{at} rows of {len(frames)}")
    report = loader.report()
    given = [(e["category"], None if e["category"] == "malformed_proto" else e["feature"]) for e in report["errors"]]
    wanted = [failure.args for failure in map(reference.failure, frames) if failure]
    if report["bad_records"] <= 100 and sorted(map(str, given)) != sorted(map(str, wanted)):
        found.append(f"errors: {given} but {wanted}")
    return found
