"""Tensors on GPUs that are simulated on the host: order, lifetimes, and what is refused."""

import ctypes
import importlib.machinery
import importlib.util
import sys
import threading

import numpy as np
import pytest
from conftest import free_port, run_ranks

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.restype, set_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
DELETER = 56  # where DLManagedTensor has it, after a DLTensor of 48 bytes and a pointer


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


@pytest.fixture
def stream_on(fake):
    """Returns a function that makes a stream on a GPU. The streams outlive all that the test has used on them."""
    streams = []

    def make(device):
        streams.append(fake.FakeStream(device))
        return streams[-1]

    yield make


@pytest.fixture
def no_switches():
    """Threads get the interpreter's lock only from a thread that gives it away."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    yield
    sys.setswitchinterval(before)


def address_of(capsule):
    return ctypes.c_void_p.from_address(pointer_of(capsule, b"dltensor")).value


def test_a_slow_consumer_reads_what_it_was_given(numbers, stream_on):
    import feedline

    loader = feedline.Loader(numbers, devices="cuda:1")
    stream = stream_on(1)
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


def read(stream, tensor):
    capsule = tensor.__dlpack__(stream=stream.handle)
    return np.frombuffer(stream.found(stream.read(address_of(capsule), tensor.nbytes)), np.int64).tolist()


def test_batches_that_are_kept(numbers, stream_on):
    import feedline

    stream = stream_on(1)
    loader = feedline.Loader(numbers, devices="cuda:1")
    with pytest.warns(RuntimeWarning, match="the program keeps more batches"):
        batches = [batch for _ in range(4) for batch in loader]
    assert 0 < loader.report()["batches_copied"] < 20
    loader.close()
    for number, batch in enumerate(batches):
        step = number % 5
        assert (batch.step, read(stream, batch["n"])) == (step, list(range(10 * step, 10 * step + 10)))


def test_a_loop_that_keeps_one_batch_copies_nothing(numbers, stream_on):
    import feedline

    loader = feedline.Loader(numbers, devices="cuda:0")
    kept = None
    for _ in range(4):
        for batch in loader:
            kept = batch  # the one before it is dropped now
    assert kept.step == 4
    assert loader.report()["batches_copied"] == 0


def test_copies(numbers, stream_on):
    import feedline

    stream = stream_on(0)
    batch = next(iter(feedline.Loader(numbers, devices="cuda:0")))
    plain = batch["n"].__dlpack__(stream=stream.handle)
    copy = batch["n"].__dlpack__(stream=stream.handle, copy=True)
    assert address_of(plain) != address_of(copy)
    del plain, batch
    assert np.frombuffer(stream.found(stream.read(address_of(copy), 80)), np.int64).tolist() == list(range(10))


def test_default_streams_are_those_of_the_tensor(numbers, stream_on):
    import feedline

    tensor = next(iter(feedline.Loader(numbers, devices="cuda:1")))["n"]  # the current device is another one
    for stream in (None, 1, 2):
        tensor.__dlpack__(stream=stream)


def test_several_streams_use_a_batch(numbers, stream_on):
    import feedline

    slow, quick = stream_on(0), stream_on(0)
    loader = feedline.Loader(numbers, devices="cuda:0")
    reads = []
    for _ in range(2):
        for batch in loader:
            slow.hold()
            capsule = batch["n"].__dlpack__(stream=slow.handle)
            reads.append((batch.step, slow.read(address_of(capsule), 80)))
            capsule = batch["n"].__dlpack__(stream=quick.handle)  # has nothing to do, and must not free the memory
            del batch, capsule
            slow.let_go()
    for step, number in reads:
        assert np.frombuffer(slow.found(number), np.int64).tolist() == list(range(10 * step, 10 * step + 10))


def test_rows_that_nccl_carries(numbers, stream_on):
    import feedline

    port = free_port()
    found, streams = [[], []], [stream_on(rank) for rank in range(2)]
    done = threading.Barrier(2)

    def run(rank):
        loader = feedline.Loader(
            numbers,
            devices=f"cuda:{rank}",
            rank=rank,
            world_size=2,
            communicator=feedline.Tcp("127.0.0.1", port),
            gpu_communicator="nccl",
            distribute={"mode": "REPLICATE"},
        )
        for _ in range(2):
            for batch in loader:
                found[rank] += read(streams[rank], batch["n"])
        done.wait(timeout=60)  # a loader that goes ends the feed of the other rank

    run_ranks(2, run)
    assert found[0] == found[1] == list(range(50)) * 2


def test_what_is_refused_on_a_gpu(numbers, stream_on):
    import feedline

    loader = feedline.Loader(numbers, devices="cuda:0")
    tensor = next(iter(loader))["n"]
    assert repr(tensor) == "feedline.Tensor(int64 [10], cuda:0)"
    for arguments, message in [
        ({"stream": 0}, "ambiguous"),
        ({"dl_device": (1, 0)}, "leave out dl_device"),
    ]:
        with pytest.raises(BufferError, match=message):
            tensor.__dlpack__(**arguments)
    with pytest.raises(BufferError, match="the tensor is on cuda:0, .* copy the tensor with your framework"):
        bytes(tensor)
    with pytest.raises(TypeError, match="the tensor is on cuda:0, .* copy the tensor with your framework"):
        np.asarray(tensor)
    with pytest.raises(TypeError, match="stream is 'x'; it must be None"):
        tensor.__dlpack__(stream="x")
    with pytest.raises(BufferError, match="stream must be -1"):
        tensor.__dlpack__(stream=-5)
    tensor.__dlpack__(stream=-1, max_version=(1, 0))


def test_gpus_that_share_their_bytes(numbers, stream_on):
    import feedline

    streams = [stream_on(0), stream_on(1)]
    loader = feedline.Loader(numbers, devices="cuda:0,1", distribute={"mode": "REPLICATE"})
    for batches in loader:
        for batch, stream in zip(batches, streams):
            assert read(stream, batch["n"]) == list(range(10 * batch.step, 10 * batch.step + 10))
        with pytest.raises(BufferError, match="only a copy can be exported"):  # another GPU may still copy them
            batches[0]["n"].__dlpack__(stream=1, copy=False)


class LateCopy:
    """What JAX makes of a tensor on a GPU: a copy on a stream that comes to it when it is waited for. The stream waits
    for what the one that was named has had to do."""

    def __init__(self, named, stream, address, size):
        self.named, self.stream = named, stream
        stream.hold()
        self.before, self.number = named.read(address, size), stream.read(address, size)

    def is_deleted(self):
        return False

    def is_ready(self):
        return False

    def block_until_ready(self):
        self.named.found(self.before)
        self.stream.let_go()
        return np.frombuffer(self.stream.found(self.number), np.int32)


def test_jax_is_late(numbers, stream_on, monkeypatch):
    """JAX is played: it names a stream that has nothing to do, and gives a tensor back when its array goes."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    jax = pytest.importorskip("jax")
    import feedline.jax

    narrow = [{"name": "n", "feature": "n", "dtype": "INT32"}]
    with pytest.raises(feedline.Error, match="JAX cannot take batches from cuda:1 .*; leave out 'devices'"):
        feedline.jax.Loader(numbers, devices="cuda:1", output=narrow)
    idle, copies, places = stream_on(1), [], []

    def from_dlpack(tensor):
        address = address_of(tensor.__dlpack__(stream=idle.handle))
        return range(address, address + tensor.nbytes)

    def copy(batch):
        copies.append(LateCopy(idle, stream_on(1), batch["n"].start, 40))
        return batch, copies[-1]

    monkeypatch.setattr(feedline.jax, "_device_of", lambda *place: places.append(place) or jax.devices()[0])
    monkeypatch.setattr(feedline.jax, "_copy", copy)
    monkeypatch.setattr(jax.dlpack, "from_dlpack", from_dlpack)
    loader = feedline.jax.Loader(numbers, devices="cuda:1", output=narrow)
    assert places == [("cuda", 1)]
    steps = [batch.step for _ in range(4) for batch in loader]
    assert loader.report()["batches_copied"] == 0
    loader.close()
    for step, copied in zip(steps, copies, strict=True):
        assert copied.block_until_ready().tolist() == list(range(10 * step, 10 * step + 10))


def free_tensor(tensor, capsule):
    capsule.clear()
    tensor.clear()


def free_capsule(tensor, capsule):
    tensor.clear()
    capsule.clear()


def taken(tensor, capsule):
    """Takes the tensor as a framework does. Returns the address of its deleter, and what to call it with."""
    managed = pointer_of(capsule[0], b"dltensor")
    set_name(capsule[0], b"used_dltensor")
    free_tensor(tensor, capsule)
    return ctypes.c_void_p.from_address(managed + DELETER).value, managed


def free_with_the_lock(tensor, capsule):
    deleter, managed = taken(tensor, capsule)
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)


def free_without_the_lock(tensor, capsule):
    deleter, managed = taken(tensor, capsule)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)


def free_on_a_thread_of_c(tensor, capsule):
    deleter, managed = map(ctypes.c_void_p, taken(tensor, capsule))
    c, thread = ctypes.CDLL(None), ctypes.c_ulong()
    assert c.pthread_create(ctypes.byref(thread), None, deleter, managed) == 0
    assert c.pthread_join(thread, None) == 0


@pytest.mark.parametrize(
    "free", [free_tensor, free_capsule, free_with_the_lock, free_without_the_lock, free_on_a_thread_of_c])
def test_a_free_that_waits_for_the_gpu_holds_nobody_up(numbers, stream_on, no_switches, free):
    """The last batch of a closed loader frees the GPU's memory, and waits for that until a stream has read it. The
    thread that lets the stream go on gets the interpreter's lock only from the one that waits."""
    import feedline

    stream = stream_on(0)
    loader = feedline.Loader(numbers, devices="cuda:0")
    tensor = [next(iter(loader))["n"]]
    stream.hold()
    capsule = [tensor[0].__dlpack__(stream=stream.handle)]
    number = stream.read(address_of(capsule[0]), 80)
    loader.close()
    del loader
    waits, let_go = threading.Event(), []

    def run():
        waits.wait()
        let_go.append(True)
        stream.let_go()

    other = threading.Thread(target=run)
    other.start()
    waits.set()
    assert not let_go
    free(tensor, capsule)
    assert let_go
    other.join()
    assert np.frombuffer(stream.found(number), np.int64).tolist() == list(range(10))
