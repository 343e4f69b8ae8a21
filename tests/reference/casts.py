"""Casts between types of elements, as the table in unpack/README.md has them."""

import ml_dtypes
import numpy as np

NUMPY = {"BOOL": np.dtype(np.bool_)} | {
    name: np.dtype(name.lower())
    for name in ("UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "INT64", "FLOAT16", "FLOAT32", "FLOAT64")
}
NUMPY["BFLOAT16"] = np.dtype(ml_dtypes.bfloat16)
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_NAN = {"FLOAT16": 0x7E00, "BFLOAT16": 0x7FC0, "FLOAT32": 0x7FC00000, "FLOAT64": 0x7FF8000000000000}


def name_of(dtype) -> str:
    """Returns pipeline.proto's name of a numpy type."""
    return next(name for name, known in NUMPY.items() if known == dtype)


def is_float(name: str) -> bool:
    return name in _NAN


def with_nan(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Returns floats with the positive quiet NaN without payload at some places."""
    result = np.array(values, copy=True, order="C")
    result.view(_BITS[values.dtype.itemsize])[where] = _NAN[name_of(values.dtype)]
    return result


def _wide(values: np.ndarray) -> np.ndarray:
    """Returns FLOAT64 that may be rounded once more to 24 bits or fewer: inexact integers are rounded to odd."""
    if values.dtype != np.int64:
        return values.astype(np.float64)
    exact = np.abs(values.astype(np.float64)) <= 2.0**53
    odd = (values >> 11 | (values & 2047 != 0)).astype(np.float64) * 2048
    return np.where(exact, values.astype(np.float64), odd)


def _to_bfloat16(wide: np.ndarray) -> np.ndarray:
    """Rounds FLOAT64 to the nearest BFLOAT16 once, by way of a FLOAT32 that is rounded to odd."""
    narrow = wide.astype(np.float32)
    narrow = np.where(np.abs(narrow.astype(np.float64)) > np.abs(wide), np.nextafter(narrow, np.float32(0)), narrow)
    bits = narrow.astype(np.float32).view(np.uint32) | (narrow.astype(np.float64) != wide).astype(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16).view(ml_dtypes.bfloat16)


def _saturated(values: np.ndarray, to: np.dtype) -> np.ndarray:
    """Returns the nearest integers in range."""
    limits = np.iinfo(to)
    if values.dtype.kind in "iu":
        wide = values.astype(object)
        return np.array(np.clip(wide, limits.min, limits.max), object).astype(to).reshape(values.shape)
    whole = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    high, low = whole >= float(limits.max), whole <= float(limits.min)
    inside = np.where(high | low, 0.0, whole).astype(to)
    return np.where(high, to.type(limits.max), np.where(low, to.type(limits.min), inside))


@np.errstate(all="ignore")
def cast(values, to: str) -> np.ndarray:
    """Returns an array in the type `to`, by its name in pipeline.proto."""
    values = np.asarray(values)
    source, target = name_of(values.dtype), NUMPY[to]
    if source == to:
        return values
    if to == "BOOL":
        return np.asarray(values != 0)
    if source == "BOOL":
        return values.astype(target)
    if to not in _NAN:
        small = values.dtype.kind in "iu" and np.can_cast(values.dtype, target)
        return values.astype(target) if small else _saturated(values, target)
    if to == "BFLOAT16":
        result = _to_bfloat16(np.atleast_1d(_wide(values))).reshape(values.shape)
    elif to == "FLOAT16":
        result = _wide(values).astype(target)
    else:
        result = values.astype(target)
    return with_nan(result, np.isnan(values)) if source in _NAN else result
