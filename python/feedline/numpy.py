"""Batches of numpy arrays.

    from feedline.numpy import Loader

    loader = Loader("chess.textproto")
    for epoch in range(10):
        for batch in loader:  # a dict of numpy arrays
            board = batch["board"]
"""

import ctypes
import importlib.util
import math
import os
from typing import Any

import numpy as np

from . import _batch, _loader
from ._errors import Error
from ._pipeline import Pipeline

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Batch(_batch.Batch):
    """A feedline.Batch whose tensors, `valid_mask` among them, are numpy's. A ragged output is a tuple
    (values, row_splits), and strings are an array of bytes objects."""

    __slots__ = ()


class HostLoader(_loader.Loader):
    """Base class of loaders that make their batches on the host, and strings as numpy arrays of bytes objects."""

    _module = __name__  # the module that messages name

    def __init__(self, pipeline: Pipeline | str | os.PathLike | list, **arguments: Any):
        self._check_devices(arguments.get("devices", "host"))
        super().__init__(pipeline, **arguments)

    def _check_devices(self, devices):
        for device in devices if isinstance(devices, (list, tuple)) else [devices]:
            if not str(device).startswith(("host", "cpu")):
                raise Error(
                    f"devices: {device!r}: a loader of {self._module} makes its batches only on the host; leave out "
                    "'devices'"
                )

    def _string_array(self, name, strings, rows):
        """Returns the strings of an output: [rows, shape...] if it is dense, [rows, longest, shape...] if it is padded,
        else [number of values, shape...]."""
        texts = strings.tolist()
        array = np.empty(len(texts), object)
        array[:] = texts
        kind, shape = next((element.kind, element.shape) for element in self._elements if element.name == name)
        if kind not in ("dense", "padded"):
            return array.reshape(-1, *shape)
        longest = (len(texts) // (rows * math.prod(shape)),) if kind == "padded" else ()
        return array.reshape(rows, *longest, *shape)


class Loader(HostLoader):
    """Feeds this process: each step is a Batch, a dict of numpy arrays.

    The arguments are those of feedline.Loader; the devices are the host. Arrays share the memory of the feed, and may
    be kept and written into. Only strings are copied, each into an object of its own. bfloat16 needs the package
    ml_dtypes; Error says so if it is not installed.
    """

    def __init__(self, pipeline: Pipeline | str | os.PathLike | list, **arguments: Any):
        super().__init__(pipeline, **arguments)
        for element in self._elements:
            if element.dtype == "BFLOAT16" and importlib.util.find_spec("ml_dtypes") is None:
                raise Error(
                    f"output {element.name!r} is bfloat16, which numpy has only with the package ml_dtypes; install "
                    "ml_dtypes, or give the output a different dtype"
                )

    def _present(self, batch):
        return _batch.mapped(batch, Batch, array_of, self._string_array)


class _Memory:
    """The memory of a bfloat16 tensor as unsigned integers, because numpy takes no bfloat16 by DLPack."""

    def __init__(self, tensor):
        self._capsule = tensor.__dlpack__()  # keeps the memory; the struct in it begins with the address
        address = ctypes.c_void_p.from_address(_pointer(self._capsule, b"dltensor")).value or 0
        self.__array_interface__ = {"version": 3, "shape": tensor.shape, "typestr": "<u2", "data": (address, False)}


def array_of(tensor: Any) -> np.ndarray:
    """Returns a numpy array that shares the memory of a feedline.Tensor on the host."""
    if tensor.dtype != "bfloat16":
        return np.from_dlpack(tensor)
    import ml_dtypes

    return np.asarray(_Memory(tensor)).view(ml_dtypes.bfloat16)
