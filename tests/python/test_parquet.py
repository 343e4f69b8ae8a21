"""`python -m feedline convert parquet`."""

import itertools
import os
import subprocess
import sys
from datetime import datetime

import numpy as np
import pytest

import feedline
from feedline._parquet import convert_parquet

TABLE = {
    "n": list(range(20)),
    "x": [i / 2 for i in range(20)],
    "text": [None if i == 7 else f"row {i}" for i in range(20)],
    "list": [list(range(i % 4)) for i in range(20)],
    "flag": [i % 3 == 0 for i in range(20)],
}


@pytest.fixture
def files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({**TABLE, "list": pyarrow.array(TABLE["list"], pyarrow.list_(pyarrow.int32()))})
    for number in range(2):
        parquet.write_table(table.slice(10 * number, 10), tmp_path / f"{number}.parquet", row_group_size=4)
    return [str(tmp_path / f"{number}.parquet") for number in range(2)]


def convert(*arguments):
    command = [sys.executable, "-m", "feedline", "convert", "parquet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_rows_become_records(files, tmp_path):
    done = convert(*files, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "pipeline.textproto" in done.stdout
    loader = feedline.Loader(tmp_path / "out" / "pipeline.textproto", batch={"global_batch_size": 20})
    (batch,) = loader
    assert np.asarray(batch["n"]).tolist() == TABLE["n"]
    assert np.asarray(batch["x"]).tolist() == TABLE["x"]
    (shard,) = (name for name in os.listdir(tmp_path / "out") if name.endswith(".tfrecord"))
    examples = [feedline.parse_example(record) for record in feedline.records(tmp_path / "out" / shard)]
    assert [one.get("text", [None])[0] for one in examples] == [t and t.encode() for t in TABLE["text"]]
    assert [one.get("list", []) for one in examples] == TABLE["list"]
    assert [one["flag"][0] for one in examples] == TABLE["flag"]


def test_shards_share_the_rows(files, tmp_path):
    names, pipeline = convert_parquet(files, str(tmp_path / "out"), shard_bytes=500)
    assert pipeline == (tmp_path / "out" / "pipeline.textproto").read_text()
    assert len(names) > 2 and names[0] == f"data-00000-of-{len(names):05}.tfrecord"
    rows = [feedline.parse_example(r)["n"][0] for name in names for r in feedline.records(tmp_path / "out" / name)]
    assert rows == TABLE["n"]


def test_a_conversion_that_fails_leaves_what_was_there(files, tmp_path, monkeypatch):
    from feedline import _feedline, _parquet

    out = tmp_path / "out"
    convert_parquet(files, str(out), shard_bytes=500)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def rows_that_end(*_):
        yield from itertools.islice(whole(*_), 15)
        raise KeyboardInterrupt

    whole = _parquet._records_of
    monkeypatch.setattr(_parquet, "_records_of", rows_that_end)
    with pytest.raises(KeyboardInterrupt):
        convert_parquet(files[::-1], str(out), shard_bytes=500)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before

    held = _feedline.OutputFolder(str(out))  # another conversion
    with pytest.raises(feedline.Error, match="another feedline process is writing to this folder"):
        convert_parquet(files, str(out))
    held.close()

    for others in (lambda rows: itertools.islice(rows, 15), lambda rows: itertools.chain(rows, [(files[0], 99, {"n": 1})])):
        monkeypatch.setattr(_parquet, "_records_of", lambda *_, others=others: iter(others(whole(*_))))
        with pytest.raises(feedline.Error, match="have 20 rows, but a different number was read"):
            convert_parquet(files, str(out), shard_bytes=500)

    def rows_of_a_file_that_changes(*_):
        os.utime(files[0])
        yield from whole(*_)

    monkeypatch.setattr(_parquet, "_records_of", rows_of_a_file_that_changes)
    with pytest.raises(feedline.Error, match="the file changed while it was read") as error:
        convert_parquet(files, str(out), shard_bytes=500)
    assert error.value.file == files[0] and error.value.category == "io_error"
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_a_record_cannot_hold_is_refused(files, tmp_path):
    import pyarrow
    from pyarrow import parquet

    odd = tmp_path / "odd.parquet"
    parquet.write_table(pyarrow.table({"when": [datetime(2026, 1, 1)]}), odd)
    done = convert(odd, "--out", tmp_path / "out")
    assert done.returncode == 1 and "'when'" in done.stderr and "timestamp" in done.stderr
    done = convert(files[0], odd, "--out", tmp_path / "out")
    assert done.returncode == 1 and "odd.parquet" in done.stderr or "the columns differ" in done.stderr
    done = convert(tmp_path / "absent.parquet", "--out", tmp_path / "out")
    assert done.returncode == 1 and "absent.parquet" in done.stderr


def test_rows_that_cannot_be_records_are_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    bad = tmp_path / "bad.parquet"
    for values in ([[1], [2, None]], [[1], [2**64 - 1]]):
        kind = pyarrow.list_(pyarrow.uint64())
        parquet.write_table(pyarrow.table({"n": pyarrow.array(values, kind)}), bad)
        done = convert(bad, "--out", tmp_path / "out")
        assert done.returncode == 1 and "row 1" in done.stderr and "bad.parquet" in done.stderr, done.stderr
    (tmp_path / "text.parquet").write_text("no table")
    done = convert(tmp_path / "text.parquet", "--out", tmp_path / "out")
    assert done.returncode == 1 and done.stderr.startswith("feedline: "), done.stderr


def test_a_full_disk_is_not_blamed_on_the_row(files, tmp_path, monkeypatch):
    from feedline import _parquet

    def full(*_):
        raise feedline.Error("cannot be written: No space left on device", "io_error", file="shard")

    monkeypatch.setattr(_parquet.RecordWriter, "write", full)
    with pytest.raises(feedline.Error, match="^cannot be written") as error:
        convert_parquet(files, str(tmp_path / "out"))
    assert error.value.file == "shard" and error.value.category == "io_error"
