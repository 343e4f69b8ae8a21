"""Tensors on GPUs that are simulated on the host: order, lifetimes, and what is refused."""

import ctypes
import importlib.machinery
import importlib.util
import os
import sys

import numpy as np
import pytest

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@pytest.fixture(scope="module")
def fake():
    """The module that drives the fake GPUs; it is in the file of the extension module."""
    import feedline._feedline as built

    try:
        loader = importlib.machinery.ExtensionFileLoader("_fake_gpus", built.__file__)
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_fake_gpus", loader))
    except ImportError:
        pytest.skip("this build of the package has no fake GPUs")
    loader.exec_module(module)
    module.set_fake_gpus(2)
    return module


def address_of(capsule):
    return ctypes.c_void_p.from_address(pointer_of(capsule, b"dltensor")).value


def test_a_slow_consumer_reads_what_it_was_given(numbers, fake):
    import feedline

    loader = feedline.Loader(numbers, devices="cuda:1")
    stream = fake.FakeStream(1)
    reads = []
    for _ in range(3):
        for batch in loader:
            if batch.step % 2 == 0:
                stream.hold()
            tensor = batch["n"]
            assert tensor.__dlpack_device__() == (2, 1)
            capsule = tensor.__dlpack__(stream=stream.handle)
            reads.append((batch.step, stream.read(address_of(capsule), 80)))
            del batch, tensor, capsule  # the memory is free when the stream has read it, and not sooner
            if len(reads) % 2 == 0:
                stream.let_go()
        stream.let_go()
    assert len(reads) == 15
    for step, number in reads:
        assert np.frombuffer(stream.found(number), np.int64).tolist() == list(range(10 * step, 10 * step + 10))


def test_what_is_refused_on_a_gpu(numbers, fake):
    import feedline

    loader = feedline.Loader(numbers, devices="cuda:0")
    tensor = next(iter(loader))["n"]
    assert repr(tensor) == "feedline.Tensor(int64 [10], cuda:0)"
    for arguments, message in [
        ({"stream": 0}, "ambiguous"),
        ({"dl_device": (1, 0)}, "another device"),
        ({"copy": True}, "not copied here"),
    ]:
        with pytest.raises(BufferError, match=message):
            tensor.__dlpack__(**arguments)
    with pytest.raises(BufferError, match="GPU"):
        bytes(tensor)
    with pytest.raises(BufferError, match="a stream is"):
        tensor.__dlpack__(stream=-5)
    tensor.__dlpack__(stream=-1, max_version=(1, 0))
    one, two = fake.FakeStream(0), fake.FakeStream(0)
    tensor.__dlpack__(stream=one.handle)
    tensor.__dlpack__(stream=one.handle)
    with pytest.raises(BufferError, match="another stream"):
        tensor.__dlpack__(stream=two.handle)


def test_gpus_that_share_their_bytes(numbers, fake):
    import feedline

    loader = feedline.Loader(numbers, devices="cuda:0,1", distribute={"mode": "REPLICATE"})
    for batch in next(iter(loader)):
        with pytest.raises(BufferError, match="not copied here"):  # another GPU may still copy them
            batch["n"].__dlpack__(stream=1)
