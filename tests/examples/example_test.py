#!/usr/bin/env python3
"""example_test.py TOOL SOURCE EXAMPLE: compares `feedline check` and `dump` of examples/ with TensorFlow's answers."""

import array
import ast
import itertools
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

TOOL, SOURCE, EXAMPLE = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
CODES = {"u1": "B", "u2": "H", "b1": "B", "i1": "b", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}


def parse_npy(data):
    """Returns (shape, values in C order) of a file in numpy.lib.format, version 1."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    header = ast.literal_eval(data[10 : 10 + length].decode())
    assert not header["fortran_order"]
    kind, body = header["descr"][1:], data[10 + length :]
    if kind == "f2":
        return header["shape"], array.array("d", (x for (x,) in struct.iter_unpack("<e", body)))
    return header["shape"], array.array(CODES[kind], body)


def golden(case):
    archive = zipfile.ZipFile(SOURCE / "tests/golden" / (case + ".npz"))
    return lambda name: parse_npy(archive.read(name + ".npy"))


def equal(found, wanted):
    assert found[0] == wanted[0], (found[0], wanted[0])
    assert len(found[1]) == len(wanted[1]) > 0
    assert all(x == y for x, y in zip(found[1], wanted[1]))


def near(found, wanted, limit):
    """Checks that the values are near the wanted ones. limit(w) is the largest distance from w."""
    assert found[0] == wanted[0], (found[0], wanted[0])
    assert len(found[1]) == len(wanted[1]) > 0
    assert all(abs(x - y) <= limit(y) for x, y in zip(found[1], wanted[1]))


def to_float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def chess(out):
    answer = golden("chess/main")
    equal(out("board"), answer("out.board"))
    equal(out("flags"), answer("out.flags"))
    near(out("score"), answer("out.score"), lambda x: 8 * math.ulp(x))


def digits(out):
    answer = golden("images/digits_raw")
    shape, values = answer("out.image.nchw")
    near(out("image"), ((shape[0], 8, 8, 1), values), lambda x: 1e-6)  # one channel: the layouts are the same in memory
    equal(out("label"), answer("f1.dense"))
    assert out("valid") == ((150,), array.array("B", [1] * 150))


def photos(out):
    answer = golden("images/photos_raw")
    near(out("image"), answer("out.image.nchw"), lambda x: 1e-6)
    equal(out("label"), answer("f1.dense"))


def cifar(out):
    answer = golden("images/cifar_like")
    (samples, _, _, _), planes = answer("out.image.nchw")
    last = array.array("d", bytes(8 * len(planes)))
    for c in range(3):
        for n in range(samples):
            begin = (n * 3 + c) * 1024
            last[n * 3072 + c : (n + 1) * 3072 : 3] = array.array("d", planes[begin : begin + 1024])
    near(out("image"), ((samples, 32, 32, 3), last), lambda x: 1e-6 + abs(x) * 2**-11)  # 2**-11: half a float16 ulp
    equal(out("label"), answer("f1.dense"))


def tabular(out):
    answer = golden("proto/mixed_batch")
    (rows,), ids = answer("f0.dense")
    weights = answer("f1.dense")[1]
    assert 0 < sum(w == -1 for w in weights) < rows  # some records have none
    equal(out("columns"), ((rows, 2), [x for row in zip(ids, weights) for x in row]))
    equal(out("known"), ((rows,), [w != -1 for w in weights]))
    wanted = [to_float32(1 if w == -1 else math.log(1 + abs(w))) for w in weights]
    near(out("weight"), ((rows,), wanted), lambda x: abs(x) * 2**-23)
    numbers, splits = answer("f2.values")[1], answer("f2.row_splits")[1]
    lists = [set(numbers[begin:end]) for begin, end in zip(splits, splits[1:])]
    assert any(len(one & set(range(64))) > 0 for one in lists)
    equal(out("small"), ((rows, 64), [k in one for one in lists for k in range(64)]))
    for name, number in (("t.values", "f2.values"), ("t.row_splits", "f2.row_splits"), ("n.bytes", "f4.bytes"),
                         ("n.offsets", "f4.offsets"), ("n.row_splits", "f4.row_splits")):
        equal(out(name), answer(number))


def words_of(out, name):
    text, offsets = bytes(out(name + ".word.bytes")[1]), out(name + ".word.offsets")[1]
    return [text[begin:end] for begin, end in zip(offsets, offsets[1:])]


def penguins(out):
    """Each number is the place of the record's word in the file of words, or -1 if the record has no word. Those of
    islands are what tf.strings.to_hash_bucket_fast(words, 16) gives."""
    hashes = {b"Biscoe": 14, b"Dream": 15, b"Torgersen": 6}
    equal(out("island"), ((344,), [hashes[word] for word in words_of(out, "island")]))
    for name, file, unknown in (("species", "species.txt", None), ("sex", "sexes.txt", b"")):
        words = (SOURCE / "examples" / file).read_bytes().split()
        found = words_of(out, name)
        assert len(found) == 344 and set(found) == {*words, *([] if unknown is None else [unknown])}
        equal(out(name), ((344,), [-1 if word == unknown else words.index(word) for word in found]))
    shape, measured = out("measured")
    assert shape == (344, 2) and all(-3 < x < 3 for x in measured)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def imagenet_eval(out):
    """Pillow's definition of a bilinear enlargement, in Python: 64 x 64 to 256 x 256, and the middle of it."""
    (samples, side, _, _), pixels = golden("images/photos_jpeg")("out.image.pixels")
    made, middle, first = 256, 224, 16
    taps = []
    for i in range(first, first + middle):
        centre = (i + 0.5) * side / made
        low, high = max(0, int(centre - 0.5)), min(side, int(centre + 1.5))
        weights = [max(0, 1 - abs(x - centre + 0.5)) for x in range(low, high)]
        taps.append((low, [w / sum(weights) for w in weights]))
    wanted = array.array("d")
    for n in range(samples):
        for c in range(3):
            plane = [[pixels[((n * side + y) * side + x) * 3 + c] for x in range(side)] for y in range(side)]
            across = [[sum(w * row[low + k] for k, w in enumerate(weights)) for low, weights in taps] for row in plane]
            for low, weights in taps:
                for x in range(middle):
                    value = sum(w * across[low + k][x] for k, w in enumerate(weights))
                    wanted.append((value / 255 - MEAN[c]) / STD[c])
    shape, found = out("image")
    near((shape, found), ((samples, 3, middle, middle), wanted), lambda x: 2e-6)
    assert list(out("valid")[1]) == [1] * samples  # filler is not dumped
    assert list(out("label")[1]) == list(range(samples))


def imagenet_train(out):
    shape, values = out("image")
    assert shape == (6, 3, 224, 224)
    plane = 224 * 224
    for n in range(6):
        for c in range(3):
            values_of_plane = values[(n * 3 + c) * plane : (n * 3 + c + 1) * plane]
            low, high = -MEAN[c] / STD[c], (1 - MEAN[c]) / STD[c]
            assert low - 1e-5 <= min(values_of_plane) < max(values_of_plane) <= high + 1e-5
    assert sorted(out("label")[1]) == list(range(6))


def cifar_train(out):
    """Each picture is one of the 81 windows of its record, mirrored or not."""
    (samples, _, _, _), planes = golden("images/cifar_like")("out.image.nchw")
    labels = golden("images/cifar_like")("f1.dense")[1]
    shape, values = out("image")
    assert shape == (samples, 3, 32, 32)
    records, vectors = list(out("record")[1]), out("class")[1]
    assert sorted(records) == list(range(samples))
    black = [-MEAN[c] / STD[c] for c in range(3)]
    choices = set()
    for n, record in enumerate(records):
        def pixel(c, y, x):
            inside = 0 <= y < 32 and 0 <= x < 32
            return planes[((record * 3 + c) * 32 + y) * 32 + x] if inside else black[c]

        def is_choice(top, left, mirrored):
            return all(
                abs(values[((n * 3 + c) * 32 + y) * 32 + x] - pixel(c, y + top, (31 - x if mirrored else x) + left)) < 1e-5
                for c in range(3) for y in range(32) for x in range(32))

        found = [choice for choice in itertools.product(range(-4, 5), range(-4, 5), (False, True)) if is_choice(*choice)]
        assert found, f"row {n} is no window of record {record}"
        choices.add(found[0])
        wanted = [0.91 if k == labels[record] else 0.01 for k in range(10)]
        assert all(abs(x - y) < 1e-6 for x, y in zip(vectors[10 * n : 10 * n + 10], wanted))
    assert len(choices) > 30  # of 162


def deblur(out):
    """The only pair comes eight times: both of its pictures are mirrored, or none is."""
    mirrored = {}
    for name in ("blurred", "sharp"):
        shape, bits = out(name + ".bf16")
        assert shape == (8, 3, 256, 256)
        lines = [[bits[begin : begin + 256] for begin in range(n * 196608, (n + 1) * 196608, 256)] for n in range(8)]
        back = [line[::-1] for line in lines[0]]
        assert back != lines[0] and all(picture in (lines[0], back) for picture in lines)
        mirrored[name] = [picture == back for picture in lines]
        assert all(0 <= b <= 0x3F80 for b in bits)  # 0 to 1
    assert mirrored["blurred"] == mirrored["sharp"] and True in mirrored["sharp"]

    # The cache is filled in the first epoch and found in the second; the batches are those without one.
    for cache in ({}, {"cache.where": "DISK", "cache.dir": "FOLDER"}):
        with tempfile.TemporaryDirectory() as folder:
            settings = [f"--set={path}={value.replace('FOLDER', folder)}" for path, value in cache.items()]
            for epochs in ("1", "2"):
                run = [TOOL, "run", pipeline, "--epochs", epochs, "--json", "--set=parallelism.threads=1", *settings]
                kept = json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)["cache"]
                first_run = epochs == "1" or not cache
                assert kept["share"] == 1 and kept["entries"] == (2 if first_run else 0), kept
                # With one thread no picture is decoded by two at the same time. Batches are made ahead of the epochs.
                decoded = 2 if first_run else 0
                assert kept["misses"] == decoded and kept["hits"] >= 16 * int(epochs) - decoded, kept
            subprocess.run([TOOL, "dump", pipeline, "--out", folder + "/without", "--set", "cache="], check=True)
            for name in ("blurred.bf16", "sharp.bf16"):
                with open(folder + f"/without/{name}.npy", "rb") as file:
                    assert parse_npy(file.read()) == out(name)


def captions(out):
    """Each caption has the row of the array that its image's name stands for."""
    folder = SOURCE / "tests/golden/captions"
    (images, width), numbers = parse_npy((folder / "img_feats.npy").read_bytes())
    names = (folder / "names.txt").read_bytes().split()
    rows_of = {name: numbers[i * width : (i + 1) * width] for i, name in enumerate(names)}
    text, offsets = bytes(out("image.name.bytes")[1]), out("image.name.offsets")[1]
    found = [text[begin:end] for begin, end in zip(offsets, offsets[1:])]
    assert sorted(found) == sorted(5 * names) and found != sorted(found)
    equal(out("feats"), ((5 * images, width), [x for name in found for x in rows_of[name]]))
    assert sorted(out("record")[1]) == list(range(5 * images))
    assert out("tokens")[0][0] == 5 * images and min(out("tokens")[1]) >= 0


def video(out):
    """All frames of a clip are one of the 81 windows, mirrored or not; what is behind them is zeros."""
    _, photos = golden("images/photos_png")("out.image.pixels")
    shape, values = out("frames")
    assert shape == (6, 8, 3, 24, 24)
    labels, splits = list(out("label")[1]), list(out("time.row_splits")[1])
    assert sorted(labels) == list(range(6)) and out("time.values")[1][1] == 40000
    size = 3 * 24 * 24
    choices = set()
    for n, clip in enumerate(labels):
        frames = splits[n + 1] - splits[n]
        assert frames == (4, 8, 5, 6, 7, 6)[clip]
        assert not any(values[(8 * n + frames) * size : 8 * (n + 1) * size])

        def is_choice(top, left, mirrored):
            for s, c, y, x in itertools.product(range(frames), range(3), range(24), range(24)):
                row, column = 3 * s + clip + top + y, 24 - 2 * s + left + (23 - x if mirrored else x)
                wanted = (photos[((clip * 64 + row) * 64 + column) * 3 + c] / 255 - MEAN[c]) / STD[c]
                if abs(values[(8 * n + s) * size + (c * 24 + y) * 24 + x] - wanted) > 1e-5:
                    return False
            return True

        found = [choice for choice in itertools.product(range(9), range(9), (False, True)) if is_choice(*choice)]
        assert len(found) == 1, f"row {n} is no window of clip {clip}"
        choices.add(found[0])
    assert len(choices) > 4


pipeline = SOURCE / "examples" / (EXAMPLE + ".textproto")
subprocess.run([TOOL, "check", pipeline], check=True)
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([TOOL, "dump", pipeline, "--out", folder], check=True)
    report = json.loads((pathlib.Path(folder) / "report.json").read_text())
    assert report["errors"] == [], report["errors"]
    globals()[EXAMPLE](lambda name: parse_npy((pathlib.Path(folder) / (name + ".npy")).read_bytes()))
    print(f"{EXAMPLE}: {report['samples']} samples in {report['steps']} steps are as they should be")
