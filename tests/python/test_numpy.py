"""feedline.numpy: steps of numpy arrays."""

import gc
import importlib.util
import pickle

import numpy as np
import pytest

import feedline
import feedline.numpy


def test_a_step(mixed):
    loader = feedline.numpy.Loader(mixed)
    first, *_, last = loader
    assert isinstance(first, feedline.numpy.Batch) and list(first) == ["n", "s", "list", "words"]
    assert (first.epoch, first.step, first.rows, first.valid_count) == (0, 0, 5, 5)
    assert first["n"].dtype == np.int64 and first["n"].tolist() == [0, 1, 2, 3, 4]
    assert first["s"].dtype == object and first["s"].tolist() == [b"text %d" % i for i in range(5)]
    values, row_splits = first["list"]
    assert (values.tolist(), row_splits.tolist()) == ([0, 0, 1, 0, 1, 2], [0, 0, 1, 3, 6, 6])
    assert first["words"].values.tolist() == [b"w0", b"w0", b"w1", b"w0"]
    assert last.valid_mask.dtype == bool and last.valid_mask.tolist() == [True, True, False, False, False]
    first["n"][0] = 7  # a batch is the program's


def test_a_loop_holds_one_batch(mixed):
    """Nothing else keeps a batch, not even until the garbage collector comes."""
    loader = feedline.numpy.Loader(mixed, batch={"global_batch_size": 1}, parallelism={"host_prefetch": 2})
    gc.disable()
    try:
        kept = [batch["n"].item() for batch in loader]
    finally:
        gc.enable()
    assert kept == list(range(12)) and loader.report()["batches_copied"] == 0


def test_strings_have_the_shape_of_their_output(tmp_path):
    feedline.write(
        tmp_path / "x", ({"pair": [f"a{i}", "b"], "words": [f"w{j}" for j in range(i % 3)]} for i in range(4)))
    strings = (
        feedline.tfrecords(tmp_path / "x")
        .feature("pair", bytes, shape=[2])
        .feature("words", bytes, kind="FIXED_SEQUENCE")
        .batch(3, last_batch_policy="PARTIAL")
    )
    first, second = feedline.numpy.Loader(strings)
    assert first["pair"].tolist() == [[b"a0", b"b"], [b"a1", b"b"], [b"a2", b"b"]]
    assert first["words"].tolist() == [[b"", b""], [b"w0", b""], [b"w0", b"w1"]]
    assert second["words"].shape == (1, 0)


def test_bfloat16(numbers, monkeypatch):
    pipeline = numbers.output("x", feature="n", dtype="BFLOAT16")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(feedline.Error, match="'x' is bfloat16, which numpy has only with the package ml_dtypes"):
        feedline.numpy.Loader(pipeline)
    monkeypatch.undo()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kept = [batch["x"] for batch in feedline.numpy.Loader(pipeline)]
    assert all(array.dtype == ml_dtypes.bfloat16 for array in kept)
    assert np.concatenate(kept).tolist() == list(range(50))
    kept[0][0] = 3
    assert kept[0].tolist()[:2] == [3, 1] and kept[1].tolist()[0] == 10


def test_devices_tuples_and_pickles(mixed):
    with pytest.raises(feedline.Error, match="devices: 'cuda:1': a loader of feedline.numpy makes its batches only on the host"):
        feedline.numpy.Loader(mixed, devices=["host", "cuda:1"])
    loader = feedline.numpy.Loader(mixed, devices="host:2", as_tuple=("s", "@valid"), batch={"global_batch_size": 4})
    loader = pickle.loads(pickle.dumps(loader))
    for step in loader:
        assert [text.shape == mask.shape == (len(text),) for text, mask in step] == [True, True]
