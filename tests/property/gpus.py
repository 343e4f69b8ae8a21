"""Batches that are made on GPUs, read back to the host: on real ones, or on those that fake_gpus/ simulates."""

import ctypes
import importlib.machinery
import importlib.util

import ml_dtypes
import numpy as np

from feedline import _batch, _feedline
from feedline.numpy import Batch, HostLoader

DTYPES = {"bfloat16": ml_dtypes.bfloat16}

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Real:
    """The GPUs that CUDA's driver knows."""

    def __init__(self):
        self.cuda, self.contexts, count = ctypes.CDLL("libcuda.so.1"), {}, ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.count = count.value

    def call(self, name, *arguments):
        if result := getattr(self.cuda, name)(*arguments):
            raise OSError(f"{name}: CUresult {result}")

    def read(self, tensor, array):
        """Copies a tensor on a GPU to an array."""
        device = tensor.__dlpack_device__()[1]
        if device not in self.contexts:  # the one of the feed
            self.contexts[device] = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.contexts[device]), device)
        self.call("cuCtxSetCurrent", self.contexts[device])
        capsule = tensor.__dlpack__(stream=1)  # the default stream, as is the copy's
        self.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), address_of(capsule), ctypes.c_size_t(array.nbytes)
        )


class Fake:
    """So many simulated GPUs, of a build of the Python package that has them."""

    def __init__(self, count):
        loader = importlib.machinery.ExtensionFileLoader("_fake_gpus", _feedline.__file__)
        self.module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_fake_gpus", loader))
        loader.exec_module(self.module)
        self.module.set_fake_gpus(count)
        self.count, self.streams = count, {}

    def read(self, tensor, array):
        """Copies a tensor on a GPU to an array."""
        device = tensor.__dlpack_device__()[1]
        if device not in self.streams:
            self.streams[device] = self.module.FakeStream(device)
        stream = self.streams[device]
        capsule = tensor.__dlpack__(stream=stream.handle)
        array.reshape(-1).view(np.uint8).data[:] = stream.found(stream.read(address_of(capsule).value, array.nbytes))


def address_of(capsule):
    """The address that a DLManagedTensor begins with."""
    return ctypes.c_void_p.from_address(pointer_of(capsule, b"dltensor"))


class Loader(HostLoader):
    """A loader whose arrays are copies of what lies on GPUs."""

    def __init__(self, gpus, *arguments, **options):
        self._gpus = gpus
        super().__init__(*arguments, **options)

    def _check_devices(self, devices):
        pass

    def _fetched(self, tensor):
        array = np.empty(tensor.shape, DTYPES.get(tensor.dtype, tensor.dtype))
        if array.nbytes:
            self._gpus.read(tensor, array)
        return array

    def _present(self, batch):
        fetched = _batch.mapped(batch, _batch.Batch, self._fetched)
        return _batch.mapped(fetched, Batch, lambda array: array, self._string_array)
