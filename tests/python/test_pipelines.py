"""Pipelines: from text, from files, laid over each other, and written in Python."""

import copy
import os
import pickle

import numpy as np
import pytest
from conftest import python

import feedline


def chess(root):
    return feedline.tfrecords(os.path.join(root, "tests/golden/chess/main-*.tfrecord")).feature("d", bytes, length=194)


def test_written_in_python_is_the_same_as_text(root):
    built = (
        feedline.tfrecords("data/a.tfrecord", compression="none")
        .feature("d", bytes, length=194)
        .feature("s", int, default=3)
        .feature("list", "float32", kind="VARIABLE", max_values=9)
        .shuffle(10_000, seed=1)
        .batch(512, last_batch_policy="PAD")
        .output("board", dtype=np.float32, feature="d", unpack_bits={"shape": [8, 8, 24], "scale": [0.5]})
        .output("score", expression="tanh(s / 600)")
        .cache("8MiB", what="RECORDS")
        .seed(7)
        .errors(on_error="SKIP_RECORD")
    )
    text = feedline.Pipeline("""
        source { files: "data/a.tfrecord" compression: NONE }
        feature { name: "d" dtype: BYTES length: 194 }
        feature { name: "s" dtype: INT64 default_value { int64_value: 3 } }
        feature { name: "list" dtype: FLOAT32 kind: VARIABLE max_values: 9 }
        shuffle { buffer_size: 10000 seed: 1 }
        batch { global_batch_size: 512 last_batch_policy: PAD }
        output { name: "board" dtype: FLOAT32 feature: "d" unpack_bits { shape: [8, 8, 24] scale: 0.5 } }
        output { name: "score" expression { formula: "tanh(s / 600)" } }
        cache { what: RECORDS limit: "8MiB" }
        errors { on_error: SKIP_RECORD }
        seed: 7
    """)
    assert str(built) == str(text)
    assert built == text and hash(built) == hash(text)
    assert feedline.Pipeline(str(built)) == built
    assert pickle.loads(pickle.dumps(built)) == built


def test_lists_of_files(tmp_path):
    """As tf.data.TFRecordDataset takes them."""
    files = [tmp_path / "b.tfrecord", str(tmp_path / "a.tfrecord")]
    for number, file in enumerate(files):
        feedline.write(file, [{"n": 2 * number}, {"n": 2 * number + 1}])
    for given in [files], [tuple(files)], files, [files[:1], *files[1:]]:
        (batch,) = feedline.Loader(feedline.tfrecords(*given).feature("n", int).batch(4))
        assert np.asarray(batch["n"]).tolist() == [0, 1, 2, 3]
    for wrong in 5, [5], None:
        with pytest.raises(feedline.Error, match=r"test_pipelines.py:\d+: source.files: .* is not a string"):
            feedline.tfrecords(wrong)


def test_files_are_those_of_the_folder_where_the_pipeline_was_made(tmp_path, monkeypatch):
    """Also after the program has gone to another folder, and in a pickle."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, first in (here, 0), (there, 1000):
        folder.mkdir()
        feedline.write(folder / "a.tfrecord", ({"n": first + i} for i in range(4)))
        text = 'source { files: "a.tfrecord" } feature { name: "n" dtype: INT64 } batch { global_batch_size: 4 }'
        (folder / "p.textproto").write_text(text)
    monkeypatch.chdir(here)
    pipelines = [
        feedline.tfrecords("a.tfrecord").feature("n", int).batch(4),
        feedline.Pipeline(text),
        feedline.Pipeline(text, folder="."),
        feedline.Pipeline.load("p.textproto"),
        feedline.Pipeline(text).overlaid("seed: 1"),
    ]
    loaders = [feedline.Loader(made) for made in (*pipelines, "p.textproto")]
    monkeypatch.chdir(there)
    again = [pickle.loads(pickle.dumps(made)) for made in (*pipelines, *loaders)] + [copy.deepcopy(loaders[0])]
    loaders += [made if isinstance(made, feedline.Loader) else feedline.Loader(made) for made in (*pipelines, *again)]
    for loader in loaders:
        (batch,) = loader
        assert np.asarray(batch["n"]).tolist() == [0, 1, 2, 3]
    assert feedline.Pipeline.load("p.textproto") != pipelines[3]  # names the files of this folder


def test_a_working_folder_that_was_removed(tmp_path):
    feedline.write(tmp_path / "a.tfrecord", ({"n": i} for i in range(4)))
    code = """
import os, sys, feedline
gone = os.path.join(sys.argv[1], "gone")
os.mkdir(gone)
os.chdir(gone)
os.rmdir(gone)
pipeline = lambda file: feedline.tfrecords(file).feature("n", int).batch(4)
(batch,) = feedline.Loader(pipeline(os.path.join(sys.argv[1], "a.tfrecord")))
try:
    feedline.Loader(pipeline("a.tfrecord"))
except feedline.Error as error:
    print(error.category, error)
"""
    done = python(code, tmp_path)
    assert done.stdout.startswith("io_error "), done.stderr
    assert "the working directory, which cannot be determined" in done.stdout, done.stdout


def test_a_wrong_field_is_named_with_the_line_that_wrote_it(root):
    pipeline = chess(root)
    for wrong, message in [
        (lambda: pipeline.batch(512, last_batch_polisy="PAD"), "batch.last_batch_polisy.*did you mean 'last_batch_policy'"),
        (lambda: pipeline.batch("512"), "batch.global_batch_size: '512' is not an integer"),
        (lambda: pipeline.batch(512, last_batch_policy="PAAD"), "'PAAD' is not one of DROP, PARTIAL, PAD; did you mean PAD"),
        (lambda: pipeline.output("x", feature="d", unpack_bits=[8]), r"output.unpack_bits: \[8\] is not a dict"),
        (lambda: pipeline.shuffle(5, reshuffle_each_epoch=1), "reshuffle_each_epoch: 1 is neither True nor False"),
        (lambda: pipeline.feature("x", "INT63"), "feature.dtype: 'INT63' is not one of"),
        (lambda: pipeline.output("x", expression={"constants": {5: 1.0}}), "constants: 5 is not a string"),
        (lambda: pipeline.output("x", expression={"constants": {"c": []}}), r"constants: \[\] is not a number"),
        (lambda: pipeline.with_field(5, 1), "path: 5 is not a string"),
    ]:
        with pytest.raises(feedline.Error, match=message) as raised:
            wrong()
        assert "test_pipelines.py:" in str(raised.value)
        assert raised.value.category == "bad_pipeline"


def test_what_only_the_loader_finds_names_the_line_too(root):
    pipeline = chess(root).batch(-1)
    with pytest.raises(feedline.Error, match=r"batch.*written at .*test_pipelines.py:\d+"):
        feedline.Loader(pipeline)


def test_files_layers_and_keywords(root, tmp_path):
    digits = os.path.join(root, "examples/digits.textproto")
    layer = tmp_path / "layer.textproto"
    layer.write_text('output { name: "label" dtype: FLOAT32 feature: "label" }')
    loader = feedline.Loader([digits, layer, "seed: 7"], batch={"global_batch_size": 8}, shuffle={"buffer_size": 100})
    batch = next(iter(loader))
    assert batch["label"].dtype == "float32" and batch["image"].shape == (8, 8, 8, 1)
    assert "seed: 7" in str(loader.pipeline)
    assert feedline.Pipeline.load(digits).with_field("batch.global_batch_size", 16).text().count("16") == 1


def test_sources_are_appended(tmp_path):
    for name in "ab":
        feedline.write(tmp_path / name, ({"x": ord(name) + i} for i in range(20)))
    pipeline = (
        feedline.tfrecords(tmp_path / "a", weight=1, name="first")
        .source(tmp_path / "b", weight=3, name="second")
        .feature("x", int)
        .mixture()
        .batch(4)
    )
    assert str(pipeline).count("source {") == 2
    assert len(list(feedline.Loader(pipeline))) > 0


def test_a_missing_file_and_text_that_is_none():
    with pytest.raises(feedline.Error, match="none.textproto") as raised:
        feedline.Loader("none.textproto")
    assert raised.value.category == "io_error"
    with pytest.raises(feedline.Error, match="text:1:1"):
        feedline.Pipeline("nonsense", name="text")
    with pytest.raises(feedline.Error, match=r"7 \(of type int\) is not a pipeline; give the path"):
        feedline.Loader(7)
    with pytest.raises(feedline.Error, match="text: 7 is not a string; to read a pipeline from a file, call feedline.Pipeline.load"):
        feedline.Pipeline(7)
    with pytest.raises(feedline.Error, match="pipeline:1:.*; to read a pipeline from a file, call feedline.Pipeline.load"):
        feedline.Pipeline("examples/digits.textproto")
    with pytest.raises(feedline.Error, match="name: 7 is not a string"):
        feedline.Pipeline("", name=7)
    with pytest.raises(feedline.Error, match=r"7 \(of type int\) cannot be laid over a pipeline; give a pipeline as text"):
        feedline.Pipeline("").overlaid(7)
    for call in (feedline.Pipeline.load, lambda folder: feedline.Pipeline("", folder=folder)):
        with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
            call(7)


def test_errors_name_the_line_of_the_caller():
    pipeline = feedline.Pipeline("batch { global_batch_size: 2 }")
    for call in (lambda: pipeline.with_field("batch.foo", 1), lambda: pipeline.output("o", expression={"constants": 5})):
        with pytest.raises(feedline.Error, match=r"test_pipelines.py:\d+: "):
            call()
    with pytest.raises(feedline.Error, match="cannot be read"):
        feedline.Loader([pipeline, "missing.textproto"])


def test_rows_of_a_table_by_name_and_by_number(tmp_path):
    features = np.random.default_rng(1).normal(size=(30, 3, 4)).astype(np.float16)
    np.save(tmp_path / "features.npy", features)
    (tmp_path / "names.txt").write_text("".join(f"image {i}\n" for i in range(30)))
    rows = [i // 5 * 7 % 30 for i in range(100)]
    feedline.write(tmp_path / "a.tfrecord", ({"image": f"image {row}".encode(), "row": row} for row in rows))
    table = {"table": str(tmp_path / "features.npy")}
    loader = feedline.Loader(
        feedline.tfrecords(tmp_path / "a.tfrecord")
        .feature("image", bytes)
        .feature("row", int)
        .batch(20)
        .output("by_name", feature="image", lookup={**table, "keys_file": str(tmp_path / "names.txt")})
        .output("by_number", feature="row", dtype="float32", lookup={**table, "resident": True})
    )
    batches = list(loader)
    assert len(batches) == 5
    for step, batch in enumerate(batches):
        wanted = features[rows[20 * step : 20 * step + 20]]
        assert np.array_equal(np.asarray(batch["by_name"]), wanted)
        assert np.array_equal(np.asarray(batch["by_number"]), wanted.astype(np.float32))
    np.save(tmp_path / "features.npy", np.asfortranarray(features))
    with pytest.raises(feedline.Error, match="Fortran order.*numpy.ascontiguousarray"):
        feedline.Loader(loader.pipeline)
    with pytest.raises(feedline.Error, match="Lookup has no field 'tabel'; did you mean 'table'"):
        chess(".").output("x", feature="d", lookup={"tabel": "t.npy"})


def test_numbers_of_names(tmp_path):
    words = ["zebra", "ant", "été", "two words"]
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    numbers = np.random.default_rng(2).integers(0, 5, (60, 3))  # 4 is no word
    names = [[([*words, "other"][n]).encode() for n in row] for row in numbers]
    feedline.write(tmp_path / "a.tfrecord", ({"label": row[0], "tags": row} for row in names))

    def loader_of(**label):
        return feedline.Loader(
            feedline.tfrecords(tmp_path / "a.tfrecord")
            .feature("label", bytes)
            .feature("tags", bytes, shape=[3])
            .batch(20)
            .output("label", feature="label", vocabulary={"keys_file": str(tmp_path / "words.txt"), **label})
            .output(
                "tags",
                feature="tags",
                dtype="int32",
                vocabulary={"keys_file": str(tmp_path / "words.txt"), "unknown": 4},
            )
        )

    batches = list(loader_of(unknown=-1))
    assert len(batches) == 3
    for step, batch in enumerate(batches):
        wanted = numbers[20 * step : 20 * step + 20]
        label, tags = np.asarray(batch["label"]), np.asarray(batch["tags"])
        assert label.dtype == np.int64 and np.array_equal(label, np.where(wanted[:, 0] < 4, wanted[:, 0], -1))
        assert tags.dtype == np.int32 and np.array_equal(tags, wanted)
    with pytest.raises(feedline.Error, match=r"words\.txt does not have the name 'other'") as raised:
        list(loader_of())
    assert raised.value.category == "wrong_value"
    for step, batch in enumerate(loader_of(unknown_buckets=1)):
        wanted = numbers[20 * step : 20 * step + 20]
        assert np.array_equal(np.asarray(batch["label"]), wanted[:, 0])
    with pytest.raises(feedline.Error, match="Vocabulary has no field 'key_file'; did you mean 'keys_file'"):
        chess(".").output("x", feature="d", vocabulary={"key_file": "words.txt"})


def test_hashes_and_vectors(tmp_path):
    numbers = np.random.default_rng(3).integers(-2, 6, (60, 2, 3))
    feedline.write(tmp_path / "a.tfrecord", ({"n": row.ravel()} for row in numbers))
    loader = feedline.Loader(
        feedline.tfrecords(tmp_path / "a.tfrecord")
        .feature("n", int, shape=[2, 3])
        .batch(20)
        .output("hash", feature="n", dtype="int32", hash={"buckets": 2**31})
        .output("hot", feature="n", one_hot={"classes": 5, "on_value": 0.5, "ignore_outside": True})
    )
    hashes = {}
    for step, batch in enumerate(loader):
        wanted = numbers[20 * step : 20 * step + 20]
        assert np.array_equal(np.asarray(batch["hot"]), (wanted[..., None] == np.arange(5)).astype(np.float32) / 2)
        of_batch = np.asarray(batch["hash"])
        assert of_batch.dtype == np.int32 and of_batch.shape == wanted.shape
        for number, found in zip(wanted.ravel().tolist(), of_batch.ravel().tolist()):
            assert hashes.setdefault(number, found) == found
    assert len(set(hashes.values())) == len(hashes) == 8
