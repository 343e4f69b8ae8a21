"""Reading and writing TFRecord files."""

import array
import datetime
import os

import numpy as np
import pytest

import feedline


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_written_records_are_read_again(tmp_path, compression):
    file = tmp_path / "x.tfrecord"
    payloads = [b"", b"a", bytes(300_000)]
    assert feedline.write(file, payloads, compression=compression) == 3
    assert list(feedline.records(file)) == payloads


def test_examples(tmp_path):
    file = tmp_path / "x.tfrecord"
    with feedline.RecordWriter(file) as writer:
        writer.write({
            "int": 7, "float": 1.5, "text": "grün", "bytes": b"\xff", "bool": True, "ints": [1, -2], "none": [], "floats": [1, 2.5],
            "texts": ["a", b"b"], "array": np.array([[1.5, 2]]), "numbers": array.array("h", [3]),
        })
        assert writer.records == 1
    (record,) = feedline.records(file)
    assert feedline.parse_example(record) == {
        "array": [1.5, 2.0], "bool": [1], "bytes": [b"\xff"], "float": [1.5], "floats": [1.0, 2.5], "int": [7],
        "ints": [1, -2], "numbers": [3], "text": ["grün".encode()], "texts": [b"a", b"b"],
    }
    with pytest.raises(feedline.Error, match="not a tf.train.Example"):
        feedline.parse_example(b"nonsense")


def test_a_refused_record_leaves_nothing_behind(tmp_path):
    with feedline.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for wrong in [{"a": [1, 2], "b": [object()]}, {"a": np.array([2**63], np.uint64), "b": 1}, 5]:
            with pytest.raises(feedline.Error):
                writer.write(wrong)
        writer.write({"a": [], "b": [np.float32(7)]})
    assert writer.records == 1
    assert [feedline.parse_example(r) for r in feedline.records(tmp_path / "x.tfrecord")] == [{"b": [7.0]}]


def test_nothing_is_left_of_a_file_that_was_not_completed(tmp_path):
    with pytest.raises(feedline.Error, match="feature 'x'") as raised:
        with feedline.RecordWriter(tmp_path / "x.tfrecord") as writer:
            writer.write({"x": [1, "mixed"]})
    assert raised.value.feature == "x"
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments(tmp_path):
    file = tmp_path / "x.tfrecord"
    feedline.write(file, [b"a"])
    for call, message in [
        (lambda: feedline.records(file, compression=5), "compression: 5 is not one of 'auto', 'none', 'gzip', 'zlib'"),
        (lambda: feedline.records(file, record_limit="x"), "record_limit: 'x' is not an integer"),
        (lambda: feedline.records(file, on_error="x"), "on_error: 'x' is not one of 'raise', 'skip'"),
        (lambda: feedline.RecordWriter(file, compression="zlib"), "compression: 'zlib' is not one of 'none', 'gzip'"),
        (lambda: feedline.write(file, [5]), "a record must be bytes or a dict, not int"),
        (lambda: feedline.write(file, [{5: 1}]), "5 cannot name a feature"),
        (lambda: feedline.parse_example(5), "a record must be bytes, not int"),
    ]:
        with pytest.raises(feedline.Error, match=message):
            call()
    for call in (feedline.records, feedline.RecordWriter, lambda file: feedline.write(file, [])):
        with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
            call(5)
    assert list(feedline.records(file)) == [b"a"]


def test_names_that_are_not_utf8(tmp_path):
    name = bytes(tmp_path) + b"/\xff.tfrecord"
    feedline.write(name, [{"n": i} for i in range(4)])
    for same in (name, os.fsdecode(name)):
        assert len(list(feedline.records(same))) == 4
    with pytest.raises(feedline.Error, match="not UTF-8"):  # a pipeline is text
        feedline.Loader(feedline.tfrecords(name).feature("n", int).batch(2))


def test_a_file_is_written_where_it_was_begun(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in "a.tfrecord", b"\xff.tfrecord":
        with feedline.RecordWriter(name) as writer:
            writer.write(b"first")
            monkeypatch.chdir(tmp_path / "elsewhere")
        assert os.listdir() == []
        monkeypatch.chdir(tmp_path)
        assert list(feedline.records(name)) == [b"first"]


def test_damage_has_a_place(tmp_path):
    file = tmp_path / "x.tfrecord"
    feedline.write(file, [b"first", b"second", b"third"])
    data = bytearray(file.read_bytes())
    data[16 + 5 + 12] ^= 1
    file.write_bytes(data)
    read = feedline.records(file)
    assert next(read) == b"first"
    with pytest.raises(feedline.Error) as raised:
        next(read)
    error = raised.value
    assert (error.category, error.file, error.offset, error.record) == ("bad_data_crc", str(file), 21, 1)
    assert list(feedline.records(file, on_error="skip")) == [b"first", b"third"]


def test_values_of_numpy(tmp_path):
    """numpy's bytes and texts keep their zeros, and infinities that were given are stored."""
    infinite = np.array([np.inf, -np.inf, np.nan, 3e38])
    feedline.write(tmp_path / "x.tfrecord", [{
        "bytes": np.bytes_(b"ab\0\0"), "list": [np.bytes_(b"a\0"), np.str_("b\0")], "text": np.str_("a\0"), "floats": infinite,
        "unmasked": np.ma.array([1, 2], mask=[False, False]),
    }])
    (record,) = feedline.records(tmp_path / "x.tfrecord")
    found = feedline.parse_example(record)
    np.testing.assert_array_equal(found.pop("floats"), infinite.astype(np.float32))
    assert found == {"bytes": [b"ab\0\0"], "list": [b"a\0", b"b\0"], "text": [b"a\0"], "unmasked": [1, 2]}


@pytest.mark.parametrize("key", ["\udcff", 5])
def test_keys_that_are_no_names(tmp_path, key):
    with pytest.raises(feedline.Error, match=r"test_records.py:\d+: .* cannot name a feature; give a string that can be"):
        feedline.write(tmp_path / "x.tfrecord", [{key: 1}])


MASKED = np.ma.array([1.0, 2.0], mask=[True, False])
TOO_LARGE = [[1e300], np.array([1, 1e39]), np.float64(-1e39), np.array([[1e39]], np.longdouble)]


@pytest.mark.parametrize("values", [{"b": 1}, {1, 2}, MASKED, *TOO_LARGE])
def test_values_that_have_no_place_in_an_example(tmp_path, values):
    with pytest.raises(feedline.Error, match="feature 'a': "):
        feedline.write(tmp_path / "x.tfrecord", [{"a": values}])
    assert not (tmp_path / "x.tfrecord").exists()


@pytest.mark.parametrize("values, said", [
    (None, "a NoneType is neither a value nor a sequence; give a number"),
    (datetime.date(2026, 1, 1), "a date is neither a value nor a sequence"),
    ([[1, 2], [3, 4]], r"\[1, 2\] is neither a number nor bytes; give a flat sequence"),
    ([1.5, None], "None is neither a number nor bytes"),
    ([np.array([1.0])], r"array\(\[1.\]\) is neither a number nor bytes"),
    (np.array([5], "datetime64[ns]"), r"an array of datetime64\[ns\] is neither numbers nor bytes; give array.astype"),
    (np.array([5], "timedelta64[ns]"), r"an array of timedelta64\[ns\] is neither"),
    ([1, 2**64], "18446744073709551616 is outside the range of int64"),
])
def test_messages_say_which_value_and_why(tmp_path, values, said):
    with pytest.raises(feedline.Error, match=f"feature 'a': {said}"):
        feedline.write(tmp_path / "x.tfrecord", [{"a": values}])


def test_a_memoryview_of_numbers_is_numbers(tmp_path):
    values = {"bytes": memoryview(b"ab"), "floats": memoryview(array.array("d", [1.5])), "ints": memoryview(array.array("h", [-2]))}
    feedline.write(tmp_path / "x.tfrecord", [values])
    (record,) = feedline.records(tmp_path / "x.tfrecord")
    assert feedline.parse_example(record) == {"bytes": [b"ab"], "floats": [1.5], "ints": [-2]}
