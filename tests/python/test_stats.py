"""`feedline stats` and `feedline check --against`, beside numpy."""

import html.parser
import json
import subprocess

import numpy as np
import pytest
from conftest import free_port

import feedline

QUANTILES = ("0.01", "0.05", "0.25", "0.5", "0.75", "0.95", "0.99")


def run(tool, *arguments, code=0):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def stats(tool, pipeline, *arguments):
    return json.loads(run(tool, "stats", pipeline, "--json", *arguments).stdout)


def output(document, name):
    return next(output for output in document["outputs"] if output["name"] == name)


def is_statistics_of(numbers, values, relative_error=0.0):
    """Compares with numpy: integers and counts exactly, sums to the last digits, quantiles to the error that is told."""
    values = np.asarray(values)
    finite = values[np.isfinite(values.astype(np.float64))]
    assert numbers["count"] == values.size
    assert numbers["nan"] == np.isnan(values.astype(np.float64)).sum()
    assert numbers["infinite"] == np.isinf(values.astype(np.float64)).sum()
    assert numbers["zeros"] == (finite == 0).sum()
    assert numbers["min"] == finite.min() and numbers["max"] == finite.max()
    exact = finite.astype(np.float64)
    assert numbers["mean"] == pytest.approx(exact.mean(), rel=1e-12, abs=1e-12 * np.abs(exact).max())
    assert numbers["std"] == pytest.approx(exact.std(), rel=1e-9, abs=1e-13 * np.abs(exact).max())
    assert numbers["counted"] == finite.size
    assert numbers["relative_error"] <= relative_error
    for percent, found in enumerate(numbers["percentiles"], 1):
        wanted = np.quantile(finite, percent / 100, method="inverted_cdf")
        assert abs(found - wanted) <= relative_error * abs(wanted), percent
    for q in QUANTILES:
        wanted = np.quantile(finite, float(q), method="inverted_cdf")
        assert abs(numbers["quantiles"][q] - wanted) <= relative_error * abs(wanted), q
    histogram = numbers["histogram"]
    assert sum(histogram["counts"]) == finite.size
    if relative_error == 0:
        found = np.unique(exact if finite.dtype.kind == "f" else finite, return_counts=True)
        assert numbers["values"] == [[value, count] for value, count in zip(found[0].tolist(), found[1].tolist())]
        edges = np.asarray(histogram["edges"])
        inner = np.searchsorted(edges[1:-1], exact, side="right")
        assert histogram["counts"] == np.bincount(inner, minlength=len(edges) - 1).tolist()


@pytest.fixture
def table(tmp_path):
    """A table of 20,000 rows in three files, as arrays, and its pipeline."""
    random = np.random.default_rng(1)
    n = 20_000
    columns = {
        "label": random.integers(0, 7, n) ** 2,
        "id": random.integers(-(2**62), 2**62, n),
        "time": 1_700_000_000 + random.integers(0, 86_400, n),
        "x": random.normal(3, 2, n).astype(np.float32),
        "few": random.choice(np.float32([-1.5, 0, 0.1, 7]), n),
        "odd": np.where(np.arange(n) % 10 == 9, np.float32("nan"), random.normal(size=n)).astype(np.float32),
        "name": random.choice(["cat", "dog", "b<i>rd & co"], n),
        "vector": random.normal(size=(n, 3)).astype(np.float32),
    }
    columns["odd"][:3] = np.inf
    lists = [random.integers(0, 50, random.integers(0, 6)) for _ in range(n)]
    for file in range(3):
        rows = range(file * n // 3, (file + 1) * n // 3)
        feedline.write(
            tmp_path / f"{file}.tfrecord",
            ({name: column[i] for name, column in columns.items()} | {"list": lists[i]} for i in rows))
    columns["list"] = lists
    text = """
        source { files: "*.tfrecord" }
        feature { name: "label" dtype: INT64 } feature { name: "id" dtype: INT64 } feature { name: "time" dtype: INT64 }
        feature { name: "x" dtype: FLOAT32 } feature { name: "few" dtype: FLOAT32 } feature { name: "odd" dtype: FLOAT32 }
        feature { name: "name" dtype: BYTES } feature { name: "vector" dtype: FLOAT32 shape: 3 }
        feature { name: "list" dtype: INT64 kind: VARIABLE }
        shuffle { mode: BLOCK } batch { global_batch_size: 100 last_batch_policy: DROP }
    """
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text(text)
    return columns, pipeline


def test_a_table(tool, table):
    columns, pipeline = table
    found = stats(tool, pipeline)
    assert found["feedline_json"] == 1
    assert found["samples"] == found["samples_of_data"] == 20_000
    assert found["bad_records"] == 0 and found["records"] is None
    for name in ("label", "few"):
        is_statistics_of(output(found, name)["numbers"], columns[name])
    for name in ("x", "odd", "vector", "id"):
        is_statistics_of(output(found, name)["numbers"], columns[name].ravel(), 2**-7)
    # Times of a day are told apart much better than by a part of themselves.
    is_statistics_of(output(found, "time")["numbers"], columns["time"], 2e-8)
    lists = output(found, "list")
    is_statistics_of(lists["numbers"], np.concatenate(columns["list"]))
    is_statistics_of(lists["lengths"], [len(row) for row in columns["list"]])
    assert lists["missing"] == sum(len(row) == 0 for row in columns["list"])
    names = output(found, "name")
    is_statistics_of(names["sizes"], [len(name) for name in columns["name"]])
    assert dict(names["texts"]) == {name: int((columns["name"] == name).sum()) for name in set(columns["name"])}


def test_labels_and_their_weights(tool, table):
    columns, pipeline = table
    found = stats(tool, pipeline)
    for name in ("label", "name"):
        values, counts = np.unique(columns[name], return_counts=True)
        assert output(found, name)["labels"] == [[v, c] for v, c in zip(values.tolist(), counts.tolist())]
        weights = dict(output(found, name)["class_weights"])
        for value, count in zip(values.tolist(), counts.tolist()):
            assert weights[value] == pytest.approx(20_000 / (len(values) * count))
    for name in ("id", "time", "x", "few", "vector"):  # too many values, or no integers
        assert output(found, name)["labels"] is None and output(found, name)["class_weights"] is None


def test_classes_of_vectors(tool, table, tmp_path):
    columns, pipeline = table
    vector = 'feature: "label" one_hot {{ classes: 37 }} {} }}'
    pipeline.write_text(pipeline.read_text() + 'output { name: "label" feature: "label" } ' + " ".join(
        f'output {{ name: "{name}" ' + vector.format(more) for name, more in (
            ("plain", "dtype: UINT8"), ("most", "dtype: UINT8 normalize { scale: 1000 }"), ("smooth", "normalize { scale: 0.9 mean: -0.0027 }"), ("half", "dtype: FLOAT16"))))
    with_values = 'feature: "label" one_hot { classes: 37 on_value: 0.7 off_value: -0.2 ignore_outside: true }'
    pipeline.write_text(pipeline.read_text() + f'output {{ name: "values" {with_values} }}')
    found = stats(tool, pipeline)
    for name in ("plain", "most", "smooth", "half", "values"):
        for key in ("labels", "labelled", "class_weights"):
            assert output(found, name)[key] == output(found, "label")[key]
    assert output(found, "plain")["numbers"]["zeros"] == 20_000 * 36
    before = tmp_path / "before.json"
    before.write_text(json.dumps(found))
    run(tool, "check", pipeline, "--against", before)
    few = ["--set", "filter=label != 36", "--max-shift", "0.05"]
    drifts = json.loads(run(tool, "check", pipeline, "--against", before, "--json", *few, code=1).stdout)["drifts"]
    assert {(drift["output"], drift["kind"]) for drift in drifts} >= {("plain", "shift"), ("smooth", "shift")}


def test_classes_of_lists(tool, tmp_path):
    lists = [np.random.default_rng(i).integers(0, 6, i % 4) for i in range(600)]
    feedline.write(tmp_path / "a.tfrecord", ({"k": numbers} for numbers in lists))
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text("""source { files: "a.tfrecord" } batch { global_batch_size: 10 }
        feature { name: "k" dtype: INT64 kind: VARIABLE }
        output { name: "hot" feature: "k" one_hot { classes: 6 } }""")
    document = stats(tool, pipeline)
    found = output(document, "hot")
    counts = np.zeros(6, int)
    for numbers in lists:
        counts[np.unique(numbers)] += 1
    assert found["labels"] == [[k, int(count)] for k, count in enumerate(counts)]
    assert found["normalize"] is None
    before = tmp_path / "before.json"
    before.write_text(json.dumps(document))
    feedline.write(tmp_path / "a.tfrecord", ({"k": np.zeros(0, int)} for _ in lists))
    drifts = json.loads(run(tool, "check", pipeline, "--against", before, "--json", code=1).stdout)["drifts"]
    assert [drift["message"] for drift in drifts if drift["kind"] in ("empty", "new_labels", "shift")] == [
        "there are no labels now, and there were labels before"]


def test_normalize_blocks_give_mean_0_and_std_1(tool, table, tmp_path):
    _, pipeline = table
    block = output(stats(tool, pipeline), "x")["normalize"]
    assert output(stats(tool, pipeline), "label")["normalize"] is None
    pipeline.write_text(pipeline.read_text() + f'output {{ name: "x" feature: "x" {block} }}')
    again = output(stats(tool, pipeline), "x")
    assert again["numbers"]["mean"] == pytest.approx(0, abs=1e-6)
    assert again["numbers"]["std"] == pytest.approx(1, rel=1e-6)
    # A block that is there already is taken into account: the new one replaces it.
    numbers = lambda text: [float(number) for number in text.replace("[", " ").split() if number[0].isdigit()]
    assert numbers(again["normalize"]) == pytest.approx(numbers(block), rel=1e-5)


PICTURES = {
    "photos": ("photos_raw", 12288, "decode_raw { shape: [64, 64, 3] layout: HWC }"),
    "planes": ("photos_raw", 12288, "decode_raw { shape: [64, 64, 3] layout: HWC } layout: CHW"),
    "floats": ("photos_raw", 12288, "dtype: FLOAT16 decode_raw { shape: [64, 64, 3] layout: HWC } layout: CHW "
               "normalize { scale: 0.00392156862745098 mean: 0.5 std: 0.25 }"),
    "jpeg": ("photos_jpeg", 0, "decode_image {} resize { size: [48, 48] }"),
    "digits": ("digits_raw", 64, "dtype: FLOAT32 decode_raw { shape: [8, 8, 1] layout: HWC }"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures(tool, root, tmp_path, kind):
    data, length, made = PICTURES[kind]
    pipeline = tmp_path / "p.textproto"
    text = (f'source {{ files: "{root}/tests/golden/images/{data}.tfrecord" }} feature {{ name: "image" dtype: BYTES '
            f'length: {length} }} batch {{ global_batch_size: 4 last_batch_policy: PAD }} ')
    pipeline.write_text(text + f'output {{ name: "image" feature: "image" {made} }}')
    run(tool, "dump", pipeline, "--out", tmp_path / "out")
    pixels = np.load(tmp_path / "out" / "image.npy")
    found = output(stats(tool, pipeline), "image")
    is_statistics_of(found["numbers"], pixels.ravel())
    channel_axis = 1 if "CHW" in made else 3
    if pixels.shape[channel_axis] == 3:
        assert [part["name"] for part in found["parts"]] == ["red", "green", "blue"]
        for c, part in enumerate(found["parts"]):
            is_statistics_of(part, np.take(pixels, c, channel_axis).ravel())
    # The block, in place of the one that was there, gives every channel the mean 0 and the deviation 1.
    made = made.split("normalize")[0].replace("FLOAT16", "FLOAT32")
    pipeline.write_text(text + f'output {{ name: "image" feature: "image" {made} {found["normalize"]} }}')
    again = output(stats(tool, pipeline), "image")
    tolerance = {"floats": 2e-3, "jpeg": 1e-3}.get(kind, 1e-5)  # without a block these were rounded
    for part in again.get("parts", [again["numbers"]]):
        assert part["mean"] == pytest.approx(0, abs=tolerance)
        assert part["std"] == pytest.approx(1, rel=tolerance)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("window", ["", "window { size: 2 }"])
def test_clips_of_as_many_frames(tool, root, tmp_path, layout, window):
    photos = list(feedline.records(f"{root}/tests/golden/images/photos_png.tfrecord"))
    frames = [feedline.parse_example(photo)["image"][0] for photo in photos]
    feedline.write(tmp_path / "x.tfrecord", ({"clip": [frames[(i + t) % len(frames)] for t in range(3)]} for i in range(12)))
    pipeline = tmp_path / "p.textproto"
    text = (f'source {{ files: "x.tfrecord" }} feature {{ name: "clip" dtype: BYTES shape: [3] }} {window} '
            f'batch {{ global_batch_size: 4 last_batch_policy: PAD }} '
            f'output {{ name: "clip" feature: "clip" decode_image {{}} crop {{ size: [16, 16] }} layout: {layout} ')
    pipeline.write_text(text + "}")
    run(tool, "dump", pipeline, "--out", tmp_path / "out", "--set", "batch.last_batch_policy=PARTIAL")
    pixels = np.load(tmp_path / "out" / "clip.npy")
    assert pixels.ndim == (6 if window else 5)
    found = output(stats(tool, pipeline), "clip")
    is_statistics_of(found["numbers"], pixels.ravel())
    assert [part["name"] for part in found["parts"]] == ["red", "green", "blue"]
    for c, part in enumerate(found["parts"]):
        is_statistics_of(part, np.take(pixels, c, -1 if layout == "HWC" else -3).ravel())
    pipeline.write_text(f'{text} dtype: FLOAT32 {found["normalize"]} }}')
    for part in output(stats(tool, pipeline), "clip")["parts"]:
        assert part["mean"] == pytest.approx(0, abs=1e-5)
        assert part["std"] == pytest.approx(1, rel=1e-5)
    shown = run(tool, "show", pipeline, "--out", tmp_path / "x.png").stdout
    assert f"clip (16 x 16, {6 if window else 3} frames)" in shown


def test_stacks_and_frames(tool, table):
    columns, pipeline = table
    pipeline.write_text(pipeline.read_text() + 'output { name: "s" dtype: FLOAT32 stack { features: ["few", "label"] } }')
    found = output(stats(tool, pipeline), "s")
    assert [part["name"] for part in found["parts"]] == ["few", "label"]
    for part in found["parts"]:
        is_statistics_of(part, columns[part["name"]])
    windows = stats(tool, pipeline, "--set", "window.size=7", "--set", "window.drop_remainder=false")
    for part in output(windows, "s")["parts"]:
        is_statistics_of(part, columns[part["name"]])


def test_padding_is_no_data(tool, table):
    columns, pipeline = table
    pipeline.write_text(pipeline.read_text().replace(
        "kind: VARIABLE", "kind: FIXED_SEQUENCE default_value { int64_value: 999 }"))
    found = output(stats(tool, pipeline), "list")
    is_statistics_of(found["numbers"], np.concatenate(columns["list"]))
    is_statistics_of(found["lengths"], [len(row) for row in columns["list"]])


def message(*fields):
    """Encodes a protobuf message: each field is its number, and an int or the bytes of what it holds."""
    def varint(number):
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes(out) + bytes([number])

    return b"".join(
        varint(number << 3) + varint(value) if isinstance(value, int) else
        varint(number << 3 | 2) + varint(len(value)) + value for number, value in fields)


def step(values):
    """Encodes a Feature; one without values has no kind."""
    if len(values) == 0:
        return b""
    if isinstance(values[0], bytes):
        return message((1, message(*((1, value) for value in values))))
    values = np.asarray(values)
    if values.dtype.kind == "f":
        return message((2, message((1, values.astype("<f4").tobytes()))))
    return message((3, message(*((1, int(value)) for value in values))))


def sequence(context, lists):
    """Encodes a SequenceExample."""
    entries = lambda values: message(*((1, message((1, key.encode()), (2, value))) for key, value in values))
    return message(
        (1, entries((key, step(values)) for key, values in context.items())),
        (2, entries((key, message(*((1, step(values)) for values in steps))) for key, steps in lists.items())))


@pytest.fixture
def clips(tmp_path):
    """1,000 SequenceExamples, whose lists some lack, and their pipeline."""
    random = np.random.default_rng(5)
    clips = []
    for i in range(1000):
        steps = random.integers(0, 5)
        lists = {
            "xy": [random.integers(-9, 9, 2).astype(np.float32) for _ in range(steps)],
            "words": [random.integers(0, 40, random.integers(0, 4)) for _ in range(steps)],
            "names": [[random.choice([b"a", b"bc", b"def"]) for _ in range(random.integers(0, 3))] for _ in range(steps)],
            "pair": [[i % 7], [i % 11]],
        }
        if i % 5 == 0:
            del lists["words"]
        clips.append(({"label": [i % 3], "sizes": random.integers(1, 9, 2 * (i % 4))}, lists))
    feedline.write(tmp_path / "x.tfrecord", (sequence(*clip) for clip in clips))
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text("""
        source { files: "x.tfrecord" record_type: SEQUENCE_EXAMPLE } batch { global_batch_size: 16 }
        feature { name: "label" dtype: INT64 }
        feature { name: "sizes" dtype: INT64 kind: FIXED_SEQUENCE shape: [2] default_value { int64_value: 99 } }
        feature { name: "xy" dtype: FLOAT32 where: FEATURE_LIST kind: FIXED_SEQUENCE shape: [2] }
        feature { name: "words" dtype: INT64 where: FEATURE_LIST kind: RAGGED }
        feature { name: "names" dtype: BYTES where: FEATURE_LIST kind: RAGGED }
        feature { name: "pair" dtype: INT64 where: FEATURE_LIST shape: [2] }
    """)
    return clips, pipeline


def test_sequence_examples(tool, clips):
    clips, pipeline = clips
    found = stats(tool, pipeline)
    lists = {name: [clip[1].get(name, []) for clip in clips] for name in ("xy", "words", "names", "pair")}
    values = lambda name: np.concatenate([values for steps in lists[name] for values in steps])
    is_statistics_of(output(found, "label")["numbers"], [i % 3 for i in range(1000)])
    is_statistics_of(output(found, "pair")["numbers"], values("pair"))
    sizes, xy = output(found, "sizes"), output(found, "xy")
    is_statistics_of(sizes["numbers"], np.concatenate([clip[0]["sizes"] for clip in clips]))
    is_statistics_of(sizes["lengths"], [len(clip[0]["sizes"]) // 2 for clip in clips])
    is_statistics_of(xy["numbers"], values("xy"))
    assert sizes["shape"] == xy["shape"] == [2] and "step_lengths" not in xy
    words, names = output(found, "words"), output(found, "names")
    is_statistics_of(words["numbers"], values("words"))
    texts = [text for steps in lists["names"] for step in steps for text in step]
    is_statistics_of(names["sizes"], [len(text) for text in texts])
    assert dict(names["texts"]) == {text.decode(): texts.count(text) for text in set(texts)}
    for name in ("xy", "words", "names"):
        is_statistics_of(output(found, name)["lengths"], [len(steps) for steps in lists[name]])
        assert output(found, name)["missing"] == sum(len(steps) == 0 for steps in lists[name])
    for name in ("words", "names"):
        is_statistics_of(output(found, name)["step_lengths"], [len(step) for steps in lists[name] for step in steps])
    assert "words: length of a step" in run(tool, "stats", pipeline).stdout


@pytest.mark.parametrize("wrong", [({"label": [0], "sizes": [1, 2, 3]}, {"pair": [[0], [0]]}),
                                   ({"label": [0], "sizes": []}, {"pair": [[0], [0]], "xy": [[1.0, 2.0], [1.0]]})])
def test_values_that_are_no_whole_steps(tool, clips, tmp_path, wrong):
    clips, pipeline = clips
    feedline.write(tmp_path / "x.tfrecord", [*(sequence(*clip) for clip in clips), sequence(*wrong)])
    assert "do not fill whole steps of the shape [2]" in run(tool, "stats", pipeline, code=1).stderr
    found = stats(tool, pipeline, "--set", "errors.on_error=SKIP_RECORD")
    assert found["samples"] == 1000 and found["bad_records"] == 1
    is_statistics_of(output(found, "label")["numbers"], [i % 3 for i in range(1000)])


def test_rows_of_a_table(tool, tmp_path):
    random = np.random.default_rng(6)
    rows = random.normal(size=(50, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "names.txt").write_text("".join(f"row {i}\n" for i in range(50)))
    named = random.integers(0, 50, 3000)
    feedline.write(tmp_path / "x.tfrecord", ({"name": f"row {i}"} if i else {} for i in named))
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text("""
        source { files: "x.tfrecord" } batch { global_batch_size: 16 }
        feature { name: "name" dtype: BYTES default_value { bytes_value: "row 0" } }
        output { name: "row" feature: "name" lookup { table: "rows.npy" keys_file: "names.txt" } }
        output { name: "name" feature: "name" }
        output { name: "number" feature: "name" vocabulary { keys_file: "names.txt" } }
    """)
    found = stats(tool, pipeline)
    is_statistics_of(output(found, "row")["numbers"], rows[named].ravel())
    is_statistics_of(output(found, "number")["numbers"], named)
    assert output(found, "number")["labels"] == [[n, int((named == n).sum())] for n in sorted(set(named.tolist()))]
    assert output(found, "number")["normalize"] is None
    assert output(found, "number")["missing"] == (named == 0).sum()
    assert output(found, "row")["missing"] == output(found, "name")["missing"] == (named == 0).sum()
    assert output(found, "row")["normalize"].startswith("normalize { mean: ")
    assert len(output(found, "name")["labels"]) == len(set(named))
    feedline.write(tmp_path / "x.tfrecord", ({"name": f"row {i}"} for i in [*named, 50]))
    found = stats(tool, pipeline, "--set", "errors.on_error=SKIP_RECORD")
    assert found["bad_records"] == 1
    is_statistics_of(output(found, "row")["numbers"], rows[named].ravel())


def test_ranks_share_the_work_and_say_the_same(tool, table):
    _, pipeline = table
    whole = run(tool, "stats", pipeline, "--json").stdout
    meet = f"localhost:{free_port()}"
    ranks = [
        subprocess.Popen(
            [tool, "stats", pipeline, "--json", "--rank", str(rank), "--world-size", "3", "--meet", meet],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(3)]
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], said
    assert said[0][0] == whole
    assert json.loads(said[1][0])["rank"] == 1
    run(tool, "stats", pipeline, "--rank", 0, "--world-size", 2, code=2)


def test_threads_change_nothing(tool, table):
    _, pipeline = table
    one = subprocess.run(["taskset", "-c", "0", tool, "stats", pipeline, "--json"], capture_output=True, text=True)
    assert one.stdout == run(tool, "stats", pipeline, "--json").stdout


def test_a_sample(tool, table):
    columns, pipeline = table
    found = stats(tool, pipeline, "--records", "5%")
    assert found["samples"] == 1000 and found["samples_of_data"] == 20_000 and found["records"] == "5%"
    assert found == stats(tool, pipeline, "--records", "5%")
    numbers = output(found, "x")["numbers"]
    assert numbers["count"] == 1000
    assert abs(numbers["mean"] - columns["x"].mean()) < 6 * 2 / 1000**0.5
    shares = {value: count / 1000 for value, count in output(found, "label")["labels"]}
    for value in np.unique(columns["label"]):
        assert abs(shares[value] - (columns["label"] == value).mean()) < 0.07
    whole = stats(tool, pipeline, "--records", "100%")
    is_statistics_of(output(whole, "label")["numbers"], columns["label"])
    # The first records would have none of the last file.
    pipeline.write_text(pipeline.read_text() + 'output { name: "file" feature: "@file" }')
    files = dict(output(stats(tool, pipeline, "--records", "3000"), "file")["numbers"]["values"])
    assert sum(files.values()) == 3000 and all(abs(count - 1000) < 150 for count in files.values())
    for wrong in ("0", "0%", "101%", "-1", "some"):
        run(tool, "stats", pipeline, "--records", wrong, code=2)


def test_a_sample_of_a_compressed_file(tool, root, tmp_path):
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text(f'source {{ files: "{root}/tests/golden/chess/gzip.tfrecord" }} batch {{ global_batch_size: 8 }} '
                        'feature { name: "d" dtype: BYTES length: 194 } feature { name: "s" dtype: INT64 }')
    found = stats(tool, pipeline)
    assert found["samples"] == 600 and output(found, "d")["labels"] is None  # bytes of 194 are no labels
    assert stats(tool, pipeline, "--records", "10%")["samples"] == 60
    assert stats(tool, pipeline, "--set", "source.range=0%:10%")["samples"] == 60


def test_records_that_are_skipped(tool, tmp_path):
    feedline.write(tmp_path / "x.tfrecord", ({"x": [i] * (2 if i % 10 == 3 else 1)} for i in range(1000)))
    with open(tmp_path / "x.tfrecord", "r+b") as file:
        file.seek(-5, 2)
        file.write(b"\xff")  # the last record's payload, or its checksum
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text('source { files: "x.tfrecord" } feature { name: "x" dtype: INT64 } '
                        'batch { global_batch_size: 64 } errors { on_error: SKIP_RECORD }')
    found = stats(tool, pipeline)
    kept = [i for i in range(999) if i % 10 != 3]
    assert found["samples"] == len(kept) and found["bad_records"] == 101
    is_statistics_of(output(found, "x")["numbers"], kept)
    run(tool, "stats", pipeline, "--set", "errors.on_error=RAISE", code=1)


@pytest.fixture
def gaps(tmp_path):
    """2,000 records, of which some lack `w` or `k`, and a pipeline with defaults for them."""
    random = np.random.default_rng(3)
    has = {"w": random.random(2000) < 0.7, "k": random.random(2000) < 0.9}
    feedline.write(tmp_path / "x.tfrecord",
                   ({"x": i} | ({"w": i / 7} if has["w"][i] else {}) | ({"k": i % 5} if has["k"][i] else {})
                    for i in range(2000)))
    pipeline = tmp_path / "p.textproto"
    pipeline.write_text("""
        source { files: "x.tfrecord" } batch { global_batch_size: 64 }
        feature { name: "x" dtype: INT64 } feature { name: "k" dtype: INT64 default_value { int64_value: 9 } }
        feature { name: "w" dtype: FLOAT32 default_value { float32_value: -1 } }
        output { name: "x" feature: "x" } output { name: "k" dtype: INT32 feature: "k" }
        output { name: "w" feature: "w" normalize { std: 2 } } output { name: "both" expression { formula: "w + k" } }
        output { name: "s" dtype: FLOAT32 stack { features: ["x", "w", "k"] } }
    """)
    return has, pipeline


def test_missing_values(tool, gaps, tmp_path):
    has, pipeline = gaps
    found = stats(tool, pipeline)
    lacking = {name: int((~rows).sum()) for name, rows in has.items()}
    assert {name: output(found, name)["missing"] for name in ("x", "k", "w", "both", "s")} == {
        "x": 0, "k": lacking["k"], "w": lacking["w"], "both": None, "s": None}
    assert [part["missing"] for part in output(found, "s")["parts"]] == [0, lacking["w"], lacking["k"]]
    is_statistics_of(output(found, "k")["numbers"], np.where(has["k"], np.arange(2000) % 5, 9))
    sample = stats(tool, pipeline, "--records", "25%")
    assert sample == stats(tool, pipeline, "--records", "25%")
    assert abs(output(sample, "w")["missing"] - 150) < 6 * 11
    before = tmp_path / "before.json"
    before.write_text(json.dumps(found))
    feedline.write(tmp_path / "x.tfrecord", ({"x": i, "k": i % 5} for i in range(2000)))
    drifts = json.loads(run(tool, "check", pipeline, "--against", before, "--json", code=1).stdout)["drifts"]
    assert {drift["output"] for drift in drifts if drift["kind"] == "missing"} == {"w", "s: w"}


class Page(html.parser.HTMLParser):
    """Checks that elements are closed in the order in which they were opened, and keeps the texts."""

    EMPTY = {"meta", "rect", "line"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        assert not any(name in ("src", "href") for name, _ in attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page(tool, tmp_path):
    evil = "</style><script>alert('x')</script>&\"\x01"
    feedline.write(tmp_path / "x.tfrecord", ({evil: i % 3, "text": evil} for i in range(100)))
    pipeline = tmp_path / "p.textproto"
    quoted = evil.replace('"', '\\"').replace("\x01", "\\001")
    pipeline.write_text(f'source {{ files: "x.tfrecord" }} feature {{ name: "{quoted}" dtype: INT64 }} '
                        'feature { name: "text" dtype: BYTES } batch { global_batch_size: 10 } '
                        f'output {{ name: "{quoted[:-4]}" feature: "{quoted}" }} output {{ name: "text" feature: "text" }}')
    run(tool, "stats", pipeline, "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert "script" not in page.tags and page.tags.count("svg") >= 3
    assert any(evil[:-1] in words for words in page.texts)
    assert "://" not in text and "prefers-color-scheme: dark" in text
    assert """content="default-src 'none'; style-src 'unsafe-inline'">""" in text


def test_drift(tool, table, tmp_path):
    columns, pipeline = table
    before = tmp_path / "stats.json"
    before.write_text(run(tool, "stats", pipeline, "--json").stdout)
    assert "the data has not drifted" in run(tool, "check", pipeline, "--against", before).stdout
    same = json.loads(run(tool, "check", pipeline, "--against", before, "--json").stdout)
    assert same["drifted"] is False and same["drifts"] == []

    night = tmp_path / "night"
    night.mkdir()
    later = night / "p.textproto"
    later.write_text(pipeline.read_text())
    n = 5000
    random = np.random.default_rng(2)

    def write(**changed):
        rows = range(7000, 7000 + n)
        new = {name: [column[i] for i in rows] for name, column in columns.items()} | changed
        feedline.write(night / "0.tfrecord", ({name: column[i] for name, column in new.items()} for i in range(n)))

    def kinds(*more, code=1):
        found = json.loads(run(tool, "check", later, "--against", before, "--json", *more, code=code).stdout)
        return {(drift["output"], drift["kind"]) for drift in found["drifts"]}

    write()
    assert kinds(code=0) == set()
    write(label=[99] * 10 + [1] * (n - 10))
    assert kinds() == {("label", "new_labels"), ("label", "range"), ("label", "shift")}
    assert kinds("--max-new-labels", "0.01", "--max-shift", "1", "--max-range", "5", code=0) == set()
    message = run(tool, "check", later, "--against", before, code=1).stdout
    assert "label: new_labels: 0.2 % of the values have labels that were not there before: 99; the change" in message
    write(name=["cow"] * n)
    assert kinds() == {("name", "new_labels"), ("name", "shift"), ("name: bytes", "shift")}
    write(x=random.normal(4, 2, n).astype(np.float32))
    assert kinds() == {("x", "shift")}
    write(x=np.concatenate([random.normal(3, 2, n - 1), [40]]).astype(np.float32))
    assert kinds() == {("x", "range")}
    write(list=[columns["list"][i] if i % 2 else [] for i in range(n)])
    assert kinds() == {("list", "missing"), ("list: length", "shift")}
    assert kinds("--max-missing", "0.9") == {("list: length", "shift")}
    write(odd=np.full(n, np.nan, np.float32))
    assert kinds() == {("odd", "not_finite")}
    write(few=random.choice(np.float32([-1.5, 0, 0.1, 7]), n, p=[0.5, 0.2, 0.2, 0.1]))
    assert kinds() == {("few", "shift")}
    write(label=["none" if i % 10 == 0 else 1 for i in range(n)])
    skip = ["--set", "errors.on_error=SKIP_RECORD", "--max-shift", "1"]
    assert ("", "bad_records") in kinds(*skip)
    assert ("", "bad_records") not in kinds(*skip, "--max-missing", "0.2", code=0)
    write(label=["none"] * n)
    assert {("", "bad_records"), ("label", "empty")} <= kinds(*skip)
    assert ("label", "labels") not in kinds(*skip)
    write()
    renamed = ["--set", "feature.odd.key=odd", "--set", "feature.odd.name=other"]
    assert kinds(*renamed) == {("odd", "output"), ("other", "output")}
    run(tool, "check", later, "--json", code=2)
    before.write_text("{}")
    run(tool, "check", later, "--against", before, code=1)
    before.write_text('{"feedline_json": 1, "outputs": [{}], "records": null}')
    damaged = run(tool, "check", later, "--against", before, code=1).stderr
    assert "the file does not hold what `feedline stats --json` prints" in damaged and "json.exception" not in damaged
    assert "--records" in run(tool, "check", later, "--against", before, "--records", "5", code=2).stderr


def written(folder, records, said, window=""):
    """Writes records and a pipeline over them; returns the pipeline's path."""
    feedline.write(folder / "x.tfrecord", records)
    pipeline = folder / "p.textproto"
    pipeline.write_text(f'source {{ files: "x.tfrecord" }} batch {{ global_batch_size: 4 }} {said} {window}')
    return pipeline


@pytest.mark.parametrize("shape", [(1, 100, 80), (3, 16, 64), (2, 3, 10, 80), (3, 7, 3), (1, 2, 30)])
def test_what_is_no_picture_has_no_channels(tool, tmp_path, shape):
    """Several numbers of `normalize` are for the last axis: the bands of a spectrogram, the columns of a matrix."""
    random = np.random.default_rng(8)
    values = random.normal(2, 3, (9, *shape)).astype(np.float32)
    feature = f'feature {{ name: "x" dtype: FLOAT32 shape: {list(shape)} }}'
    pipeline = written(tmp_path, [{"x": value.ravel()} for value in values], feature)
    found = output(stats(tool, pipeline), "x")
    is_statistics_of(found["numbers"], values.ravel(), 2**-7)
    assert "parts" not in found
    pipeline.write_text(pipeline.read_text() + f'output {{ name: "x" feature: "x" {found["normalize"]} }}')
    run(tool, "check", pipeline)
    # With as many numbers as the last axis has.
    if shape[0] == shape[-1]:
        return
    many = f"mean: {[0.5] * shape[-1]} std: {[0.5] * shape[-1]}"
    pipeline.write_text(pipeline.read_text().split("output")[0] +
                        f'output {{ name: "x" feature: "x" normalize {{ {many} }} }}')
    found = output(stats(tool, pipeline), "x")
    is_statistics_of(found["numbers"], ((values - 0.5) / 0.5).ravel(), 2**-7)
    assert "parts" not in found and found["normalize"] is None
    assert "none of the outputs is a picture" in run(tool, "show", pipeline, "--out", tmp_path / "x.png", code=1).stderr


@pytest.mark.parametrize("shape, size", [((17, 3), 8), ((3, 17), 3), ((5, 1), 2), ((2, 4, 3), 3), ((0, 3), 2)])
def test_windows_over_a_matrix(tool, tmp_path, shape, size):
    """The first axis of a window is one of frames, and makes no picture of a matrix."""
    values = np.random.default_rng(9).normal(size=(24, *shape)).astype(np.float32)
    feature = f'feature {{ name: "x" dtype: FLOAT32 shape: {list(shape)} default_value {{ float32_value: 0 }} }}'
    pipeline = written(tmp_path, [{"x": value.ravel()} for value in values], feature, f"window {{ size: {size} }}")
    found = output(stats(tool, pipeline), "x")
    assert found["numbers"]["count"] == values.size and found["rows"] == 24
    assert ("parts" in found) == (shape == (2, 4, 3))


@pytest.mark.parametrize("shape", [[0, 5, 3], [3, 0, 5], [0, 4, 5, 3], [2, 0, 4, 5, 3], [0]])
def test_axes_of_length_0(tool, tmp_path, shape):
    feature = f'feature {{ name: "x" dtype: FLOAT32 shape: {shape} default_value {{ float32_value: 0 }} }}'
    pipeline = written(tmp_path, [{"y": 1} for _ in range(20)], feature)
    found = output(stats(tool, pipeline), "x")
    assert found["rows"] == 20 and found["numbers"]["count"] == 0 and found["numbers"]["min"] is None
    run(tool, "stats", pipeline, "--html", tmp_path / "page.html")


def test_few_finite_values_among_many(tool, tmp_path):
    """Of long rows only some values are counted by value; perhaps none of these is finite."""
    page = tmp_path / "page.html"
    without = 0
    for place in (11, 5000, 9999, 15000):
        rows = np.full((200, 20000), np.nan, np.float32)
        rows[7, place] = 5
        pipeline = written(tmp_path, [{"x": row} for row in rows], 'feature { name: "x" dtype: FLOAT32 shape: 20000 }')
        found = stats(tool, pipeline, "--html", page)
        numbers = output(found, "x")["numbers"]
        assert numbers["min"] == numbers["max"] == numbers["mean"] == 5 and numbers["std"] == 0
        assert numbers["nan"] == rows.size - 1
        if numbers["counted"] == 0:
            without += 1
            assert all(numbers[key] is None for key in ("quantiles", "percentiles", "histogram", "distinct", "values"))
        run(tool, "stats", pipeline)  # the table
        (tmp_path / "before.json").write_text(json.dumps(found))
        run(tool, "check", pipeline, "--against", tmp_path / "before.json")
    assert without > 0


def test_values_that_no_double_can_square(tool, tmp_path):
    """What cannot be told is null, and not 0."""
    made = {
        "big": "x * 1e200",
        "sides": "if(x < 3, 1.7e308, -1.7e308)",
        "most": "1.7e308 + x * 0",
        "tiny": "x * 1e-200",
        "plain": "x * 1e100",
    }
    said = 'feature { name: "x" dtype: FLOAT32 } ' + " ".join(
        f'output {{ name: "{name}" dtype: FLOAT64 expression {{ formula: "{formula}" }} }}'
        for name, formula in made.items())
    pipeline = written(tmp_path, [{"x": float(i)} for i in range(1, 5)], said)
    found = stats(tool, pipeline)
    numbers = {name: output(found, name)["numbers"] for name in made}
    mean = {name: of["mean"] for name, of in numbers.items()}
    assert mean == {"big": pytest.approx(2.5e200), "sides": None, "most": None, "tiny": pytest.approx(2.5e-200),
                    "plain": pytest.approx(2.5e100)}
    std = {name: of["std"] for name, of in numbers.items()}
    assert std == {"big": None, "sides": None, "most": 0, "tiny": None, "plain": pytest.approx(1.25**0.5 * 1e100)}
    assert "nan" not in run(tool, "stats", pipeline).stdout


def test_bad_records_of_a_sample(tool, tmp_path):
    """What is damaged is told of all data, and what does not fit of the sample; each as a part of what it is of."""
    feature = 'feature { name: "x" dtype: FLOAT32 } errors { on_error: SKIP_RECORD }'
    pipeline = written(tmp_path, [{"x": float(i)} for i in range(20000)], feature)
    before = {}
    for records in ("1%", "100%", None):
        before[records] = tmp_path / f"{records}.json"
        sample = ["--records", records] if records else []
        found = stats(tool, pipeline, *sample)
        assert found["bad_records"] == 0 and found["bad_records_of_data"] == (0 if records else None)
        before[records].write_text(json.dumps(found))
    with open(tmp_path / "x.tfrecord", "r+b") as file:
        size = file.seek(0, 2)
        for damage in range(40):  # 0.2 % of the records
            file.seek(damage * (size // 40) + 1000)
            file.write(b"\xff\xff")
    for earlier in before.values():
        run(tool, "check", pipeline, "--against", earlier, "--max-range", "1")
    found = stats(tool, pipeline, "--records", "1%")
    assert found["bad_records"] == 0 and found["bad_records_of_data"] == 40
    assert ", 0 bad records, and 40 in all the data" in run(tool, "stats", pipeline, "--records", "1%").stdout

    # One record of twenty does not fit: so does one of twenty of each sample, and none that is read ahead of it.
    feedline.write(tmp_path / "x.tfrecord", ({"x": [1.0] * (1 + (i % 20 == 7))} for i in range(20000)))
    for records, samples in (("1%", 200), ("100%", 20000)):
        found = stats(tool, pipeline, "--records", records)
        assert found["samples"] + found["bad_records"] == samples and found["bad_records_of_data"] == 0
        assert found["bad_records"] / samples == pytest.approx(0.05, abs=0.05)
        bounds = ["--max-range", "9", "--max-shift", "1"]
        drifts = run(tool, "check", pipeline, "--against", before[records], *bounds, code=1)
        assert "the data: bad_records" in drifts.stdout
