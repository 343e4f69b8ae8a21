"""Batches and tensors: what they are, who takes them, and how long they live."""

import ctypes
import gc
import random
import threading
import warnings

import numpy as np
import pytest

import feedline

capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def test_a_batch_is_a_mapping(mixed):
    loader = feedline.Loader(mixed)
    assert [e.name for e in loader.elements()] == ["n", "s", "list", "words"]
    assert loader.elements()[0] == ("n", "dense", "INT64", (), ("n",))
    batches = list(loader)
    first, last = batches[0], batches[-1]
    assert isinstance(first, dict) and list(first) == ["n", "s", "list", "words"]
    assert (first.epoch, first.step, first.rows, first.valid_count) == (0, 0, 5, 5)
    assert (last.rows, last.valid_count) == (5, 2)
    assert np.asarray(last.valid_mask).tolist() == [True, True, False, False, False]
    assert first["s"].tolist() == [b"text %d" % i for i in range(5)]
    assert np.asarray(first["list"].values).tolist() == [0, 0, 1, 0, 1, 2]
    assert np.asarray(first["list"].row_splits).tolist() == [0, 0, 1, 3, 6, 6]
    assert first["words"].values.tolist() == [b"w0", b"w0", b"w1", b"w0"]
    assert "n" in repr(first)


def message(field, *parts):
    """Returns a field of a protobuf message, of up to 127 bytes."""
    content = b"".join(parts)
    return bytes([field << 3 | 2, len(content)]) + content


def test_steps_of_different_lengths(tmp_path):
    def example(numbers):  # a SequenceExample with two lists; each step is a Feature of integers, or of strings
        lists = {
            "n": [message(3, message(1, bytes(step))) for step in numbers],
            "s": [message(1, *(message(1, b"%d" % n) for n in step)) for step in numbers],
        }
        entries = (message(1, message(1, k.encode()), message(2, *(message(1, f) for f in v))) for k, v in lists.items())
        return message(2, *entries)

    feedline.write(tmp_path / "x", [example([[1, 2], [], [3]]), example([]), example([[4]])])
    feature = {"kind": "VARIABLE", "where": "FEATURE_LIST"}
    lists = (
        feedline.tfrecords(tmp_path / "x", record_type="SEQUENCE_EXAMPLE")
        .feature("n", int, **feature)
        .feature("s", bytes, **feature)
        .batch(3)
    )
    loader = feedline.Loader(lists)
    assert [(element.kind, element.dtype) for element in loader.elements()] == [("nested", "INT64"), ("nested", "BYTES")]
    batch = next(iter(loader))
    for name in "n", "s":
        assert np.asarray(batch[name].row_splits).tolist() == [0, 3, 3, 4]
        assert np.asarray(batch[name].values.row_splits).tolist() == [0, 2, 2, 3, 4]
    assert np.asarray(batch["n"].values.values).tolist() == [1, 2, 3, 4]
    assert batch["s"].values.values.tolist() == [b"1", b"2", b"3", b"4"]


def test_tuples(mixed):
    loader = feedline.Loader(mixed, as_tuple=("s", "n"))
    text, number = next(iter(loader))
    assert text.tolist()[1] == b"text 1" and np.asarray(number)[1] == 1
    with pytest.raises(feedline.Error, match="as_tuple: the pipeline has no output 'm'; its outputs are n, s"):
        feedline.Loader(mixed, as_tuple=("m",))


def test_a_tensor(numbers):
    tensor = next(iter(feedline.Loader(numbers)))["n"]
    assert (tensor.dtype, tensor.shape, tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (
        "int64", (10,), 1, 10, 80, 10)
    assert repr(tensor) == "feedline.Tensor(int64 [10])"
    assert tensor.__dlpack_device__() == (1, 0)
    assert capsule_name(tensor.__dlpack__()) == b"dltensor"
    assert capsule_name(tensor.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert capsule_name(tensor.__dlpack__(max_version=(0, 8))) == b"dltensor"
    array = np.from_dlpack(tensor)
    assert array.tolist() == list(range(10)) and array.ctypes.data % 64 == 0
    assert np.shares_memory(array, np.asarray(tensor))
    assert not np.shares_memory(array, np.array(tensor, copy=True))
    assert np.asarray(tensor, dtype=np.float32).dtype == np.float32
    assert bytes(tensor) == array.tobytes()
    with pytest.raises(BufferError, match="; leave out dl_device"):
        tensor.__dlpack__(dl_device=(2, 0))
    copy = np.from_dlpack(tensor, copy=True)
    assert copy.tolist() == array.tolist() and not np.shares_memory(array, copy)


def test_arguments_that_dlpack_does_not_have(numbers):
    tensor = next(iter(feedline.Loader(numbers)))["n"]
    for arguments, message in [
        ({"copy": 1}, "copy is 1; it must be True, False or None"),
        ({"copy": "no"}, "copy is 'no'; it must be"),
        ({"max_version": ("a", 0)}, r"max_version is \('a', 0\); it must be a tuple of two integers"),
        ({"max_version": 1}, "max_version is 1; it must be"),
    ]:
        with pytest.raises(TypeError, match=message):
            tensor.__dlpack__(**arguments)
    with pytest.raises(TypeError, match="copy is 1; it must be True, False or None"):
        tensor.__array__(copy=1)
    with pytest.raises(BufferError, match=r"on the device \(1, 0\), but dl_device is 5; leave out"):
        tensor.__dlpack__(dl_device=5)


def test_numpy_is_told_that_it_has_no_bfloat16(numbers):
    tensor = next(iter(feedline.Loader(numbers.output("x", feature="n", dtype="BFLOAT16"))))["x"]
    with pytest.raises(TypeError, match="numpy has no bfloat16; take the tensor with") as raised:
        np.asarray(tensor)
    with pytest.raises(TypeError, match="numpy has no bfloat16"):
        np.asarray(tensor, dtype=np.float32)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    advice = str(raised.value).rsplit(": ", 1)[-1]
    assert eval(advice, {"numpy": np, "ml_dtypes": ml_dtypes, "tensor": tensor}).tolist() == list(range(10))


@pytest.mark.parametrize(
    "dtype", ["BOOL", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "INT64", "FLOAT16", "FLOAT32", "FLOAT64"])
def test_dtypes(numbers, dtype):
    array = np.asarray(next(iter(feedline.Loader(numbers.output("x", feature="n", dtype=dtype))))["x"])
    assert array.dtype.name == dtype.lower()
    assert array.tolist() == np.arange(10).astype(array.dtype).tolist()


def test_lent_memory_is_not_handed_out(tmp_path):
    """A batch of one large row is delivered where it was read. Whoever writes into it gets a copy."""
    data = np.random.default_rng(1).integers(0, 256, 300_000, dtype=np.uint8)
    feedline.write(tmp_path / "big", ({"x": data.tobytes(), "i": i} for i in range(4)))
    pipeline = feedline.tfrecords(tmp_path / "big").feature("x", bytes, length=300_000).feature("i", int).batch(1)
    for epoch in range(2):
        for batch in feedline.Loader(pipeline):
            with pytest.raises(BufferError, match="copy"):
                batch["x"].__dlpack__(copy=False)
            array = np.from_dlpack(batch["x"])
            assert (array[0] == data).all()
            array = array if array.flags.writeable else array.copy()
            array[:] = 0
            assert (np.asarray(batch["x"])[0] == data).all()


def test_a_list_of_all_batches(numbers):
    loader = feedline.Loader(numbers, parallelism={"host_prefetch": 2}, batch={"global_batch_size": 1})
    with pytest.warns(RuntimeWarning, match="the program keeps more batches") as warned:
        batches = list(loader)
    assert len(warned) == 1
    assert [int(np.asarray(b["n"])[0]) for b in batches] == list(range(50))
    assert loader.report()["batches_copied"] >= 45
    del batches
    gc.collect()
    before = loader.report()["batches_copied"]
    for _ in loader:
        pass
    assert loader.report()["batches_copied"] == before


def test_tensors_outlive_batches_and_loaders(numbers):
    with feedline.Loader(numbers) as loader:
        array = np.from_dlpack(next(iter(loader))["n"])
    del loader
    gc.collect()
    assert array.tolist() == list(range(10))


def test_ten_thousand_keeps_and_drops(numbers):
    loader = feedline.Loader(numbers.shuffle(50, seed=1), batch={"global_batch_size": 2})
    kept, choice = [], random.Random(7)
    lock = threading.Lock()
    problems = []

    def drop_some():
        mine = random.Random(threading.get_ident())
        for _ in range(2000):
            with lock:
                taken = kept.pop(mine.randrange(len(kept))) if kept else None
            if taken and np.asarray(taken[0]).tolist() != taken[1]:
                problems.append(taken[1])

    threads = [threading.Thread(target=drop_some) for _ in range(3)]
    for thread in threads:
        thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = 0
        while steps < 10_000:
            for batch in loader:
                steps += 1
                tensor = batch["n"]
                held = np.from_dlpack(tensor) if choice.random() < 0.5 else tensor
                with lock:
                    kept.append((held, np.asarray(tensor).tolist()))
                    if len(kept) > 40:
                        taken = kept.pop(choice.randrange(len(kept)))
                        assert np.asarray(taken[0]).tolist() == taken[1]
    for thread in threads:
        thread.join()
    assert not problems
    for held, value in kept:
        assert np.asarray(held).tolist() == value
    kept.clear()
    del batch, tensor, held, taken
    gc.collect()
    copied = loader.report()["batches_copied"]
    for _ in loader:
        pass
    assert loader.report()["batches_copied"] == copied  # every buffer has come back
