"""Compares what two feeds have delivered, and says where they differ first."""

import numpy as np
from comparing import ragged_rows


class Differs(Exception):
    """What was delivered is not what it must be."""


def category(fed):
    return fed.error.category if fed.error else ""


def end_of(fed, exactly):
    """What two feeds must have in common that end with an error."""
    return (category(fed), fed.error.record, fed.error.feature) if fed.error and exactly else category(fed)


def equal(a, b):
    """Whether two tensors are the same, byte for byte."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def told(array):
    return repr(array)[:300]


def compare(what, wanted, got, exactly=True, laws=None):
    """Raises Differs unless the two are the same: byte for byte with all filler, or else as rows that replicas share, whose
    filler keeps the laws."""
    for mine, other in zip(wanted.steps, got.steps):
        where = f"{what}: {other}"
        if (mine.epoch, mine.step) != (other.epoch, other.step):
            raise Differs(f"{where} in place of {mine}")
        if exactly:
            same_batches(where, mine.batches, other.batches)
        else:
            same_sharing(where, mine.batches, other.batches)
            same_rows(where, mine.batches, other.batches, laws.pads)
    if len(wanted.steps) != len(got.steps) or end_of(wanted, exactly) != end_of(got, exactly):
        raise Differs(
            f"{what}: {len(got.steps)} steps and then {got.error}; wanted {len(wanted.steps)} and {wanted.error}"
        )
    if not exactly:
        laws.check_filler(got)


def same_batches(where, wanted, got):
    for a, b in zip(wanted, got, strict=True):
        if not equal(a.valid_mask, b.valid_mask):
            raise Differs(f"{where}: the mask is {told(b.valid_mask)}, not {told(a.valid_mask)}")
        same_names(where, a, b)
        for name in b:
            if not equal(a[name], b[name]):
                raise Differs(
                    f"{where}: '{name}' is {told(b[name])}, not {told(a[name])}{first_difference(a[name], b[name])}"
                )


def same_names(where, wanted, got):
    if {name for name in wanted if not name.startswith("@@")} != {name for name in got if not name.startswith("@@")}:
        raise Differs(f"{where}: there are {sorted(got)}, not {sorted(wanted)}")


def first_difference(a, b):
    """Says where two arrays of one shape differ first."""
    if isinstance(a, tuple) or a.dtype != b.dtype or a.shape != b.shape or a.dtype == object:
        return ""
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(a.size, -1) for array in (a, b))
    differ = np.flatnonzero((x != y).any(1))
    at = np.unravel_index(differ[0], a.shape)
    return f"; {len(differ)} of {a.size} differ, the first at {tuple(map(int, at))}: {b[at]!r}, not {a[at]!r}"


def rows_of(batches, name):
    """Returns the rows of an output that are samples, over all replicas: an array of them, or a list if each is of its
    own size. Windows give their frames."""
    parts = [batch[name] for batch in batches]
    masks = [batch.valid_mask for batch in batches]
    if isinstance(parts[0], tuple):
        return [row for part, mask in zip(parts, masks) for row, valid in zip(ragged_rows(part), mask) if valid]
    if len({part.shape[mask.ndim :] for part, mask in zip(parts, masks)}) == 1:
        return np.concatenate([part[mask] for part, mask in zip(parts, masks)])
    return [row for part, mask in zip(parts, masks) for row in part[mask]]


def same_sharing(where, wanted, got):
    """The replicas share the rows of a step evenly, in order. If there are too few, each has one row, or one of filler."""
    mask, masks = np.concatenate([batch.valid_mask for batch in wanted]), [batch.valid_mask for batch in got]
    counts = [len(one) for one in masks]
    if len(mask) < len(got):
        if set(counts) != {1}:
            raise Differs(f"{where}: replicas have {counts} rows, not one each")
    elif max(counts) > min(counts) + 1 or not equal(np.concatenate(masks), mask):
        raise Differs(f"{where}: replicas have {counts} rows, whose masks are {masks}, not {told(mask)}")


def same_rows(where, wanted, got, pads):
    for batch in got:
        same_names(where, wanted[0], batch)
    for name in got[0]:
        a, b = rows_of(wanted, name), rows_of(got, name)
        if len(a) != len(b):
            raise Differs(f"{where}: '{name}' has {len(b)} rows, not {len(a)}")
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
            if not equal(a, b):
                row = next(r for r in range(len(a)) if not equal(a[r : r + 1], b[r : r + 1]))
                raise Differs(f"{where}: row {row} of '{name}' is {told(b[row])}, not {told(a[row])}")
            continue
        for row, (x, y) in enumerate(zip(a, b)):
            if not equal_but_padding(x, y, pads.get(name)):
                raise Differs(f"{where}: row {row} of '{name}' is {told(y)}, not {told(x)}")


def equal_but_padding(x, y, pad):
    """Compares two rows: ragged or nested ones, or padded ones of which one is padded further."""
    if isinstance(x, list):
        return len(x) == len(y) and all(equal_but_padding(i, j, pad) for i, j in zip(x, y))
    shorter, longer = (x, y) if len(x) <= len(y) else (y, x)
    rest = longer[len(shorter) :]
    return equal(shorter, longer[: len(shorter)]) and (
        not len(rest)
        or pad is not None
        and all(
            pad == one if rest.dtype == object else equal(np.broadcast_to(pad, one.shape).astype(one.dtype), one)
            for one in rest
        )
    )
