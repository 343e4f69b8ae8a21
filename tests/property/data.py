"""Files for random pipelines: records of very different sizes, plain and compressed, intact, faulty and damaged.

A family is a kind of record; all sets of a family have the same features, so that any of them can be the sources of one
pipeline. PLAIN, RICH, CONTEXT and LISTS say what their features are, for draw.py."""

import functools
import gzip
import os
import random
import zlib

import making
import numpy as np
import records
from PIL import Image

WORDS = [f"word {i:02}" for i in range(20)]  # the names of the tables' rows, and the words of "name" and "tags"


def damage(path, numbers):
    """Flips one bit in the payload of each of these records."""
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        for number, record in enumerate(records.read(path)):
            if number in numbers:
                content[record.offset + records.HEADER + len(record.payload) // 2] ^= 1
        file.seek(0)
        file.write(content)


# Pictures


@functools.cache
def pictures():
    """Good pictures of all kinds, 9 to 14 pixels wide and high."""
    rng = np.random.default_rng(7)

    def pixels(*shape, most=256, dtype=np.uint8):
        coarse = rng.integers(0, most, shape, dtype=dtype)
        return coarse // 2 + np.linspace(0, most // 2 - 1, shape[1]).astype(dtype).reshape(
            1, -1, *[1] * (len(shape) - 2)
        )

    exif = Image.Exif()
    exif[0x0112] = 6
    return [
        making.encoded(Image.fromarray(pixels(12, 10, 3)), "JPEG", quality=90, subsampling=0),
        making.encoded(Image.fromarray(pixels(9, 14, 3)), "JPEG", quality=70, subsampling=2),
        making.encoded(Image.fromarray(pixels(13, 9, 3)), "JPEG", quality=80, progressive=True),
        making.encoded(Image.fromarray(pixels(10, 10)), "JPEG", quality=85),
        making.encoded(Image.fromarray(pixels(10, 12, 3)), "JPEG", quality=85, exif=exif.tobytes()),
        making.encoded(Image.fromarray(pixels(11, 12, 3))),
        making.encoded(Image.fromarray(pixels(9, 9))),
        making.encoded(Image.fromarray(pixels(14, 9, 4))),
        making.encoded(Image.fromarray(pixels(10, 13, most=65536, dtype=np.uint16))),
        making.encoded(Image.fromarray(pixels(12, 12, 3)).quantize(16)),
    ]


@functools.cache
def broken_pictures():
    good = pictures()
    return [
        good[0][:80],
        good[5][:60],
        b"",
        b"GIF89a\1\0\1\0",
        good[1][: len(good[1]) // 2],
        bytes(30),
        good[6][:40] + b"\xff" + good[6][41:],
        making.encoded(Image.new("RGB", (3, 2))),  # smaller than any crop
    ]


# Records. Each value is a function of the record's number and the feature, so that records differ from one another.


def _number(i, salt):
    return random.Random(i * 1000 + salt).getrandbits(64)


def _floats(i, count):
    special = [float("nan"), float("inf"), -float("inf"), 1e-42, -0.0, 3.4e38, 65520.0, 2147483648.0]
    return [
        special[_number(i, k) % 8] if _number(i, 100 + k) % 11 == 0 else (_number(i, k) % 20001 - 10000) / 64
        for k in range(count)
    ]


def _bytes(i, count):
    return random.Random(i).randbytes(count)


def _filler(i, size):
    """Returns bytes of which long ones, for every other record, can be compressed."""
    return (_bytes(i, 64) * (size // 64 + 1))[:size] if size >= 10_000 and i % 2 else _bytes(i, size)


def _plain(i, size):
    return {
        "id": [i],
        "h": [_bytes(i, 16)],
        "clip": [i // 37],
        "b": [_filler(i + 1, size)],
        "v": [i * 10 + k for k in range(i % 5)],
    }


def _rich(i):
    picture = pictures()
    return {
        "id": [i],
        "clip": [i // 13],
        "opt": None if i % 4 == 0 else [i * 3 - 500],
        "optb": None if i % 7 == 3 else [b"%05d" % (i % 100_000)],
        "optf": None if i % 5 == 1 else _floats(i, 6),
        "x": _floats(i, 1),
        "y": [i % 23 - 11],
        "xs": _floats(i + 1, 6),
        "big": [_number(i, 1) - 2**63 if i % 9 == 0 else i],
        "v": [_number(i, k) % 1000 for k in range(i % 5)],
        "vx": _floats(i, i % 6),
        "words": [b"w" * (k + i % 3) for k in range(i % 4)],
        "name": [WORDS[i % 20].encode()],
        "tags": [WORDS[(i + k * k) % 20].encode() for k in range(3)],
        "ids": [i * 7 % 20, i * 3 % 20],
        "pairs": [i * 100 + k for k in range(2 * (i % 6))],
        "steps": _floats(i, i % 4),
        "cls": [i % 10],
        "row": [i * 7 % 20],
        "bits": [_bytes(i, 24)],
        "raw": [_bytes(i + 2, 48)],
        "pic": [picture[i % 10]],
        "two": [picture[i % 10], picture[i * 3 % 10]],
        "frames": [picture[(i + k) % 10] for k in range(i % 4)],
    }


def _lists(i):
    picture = pictures()
    n = i % 6
    return {
        "fixed": [[i * 10 + k, k] for k in range(3)],
        "fixedf": [_floats(i + k, 2) for k in range(2)],
        "fixedb": [[b"%04d" % (i % 7000 + k)] for k in range(2)],
        "seq": [[i, k] for k in range(n)],
        "seqf": [_floats(i + k, 1) for k in range(n)],
        "seqb": [[b"s" * k] for k in range(n)],
        "rag": [[i + j for j in range((i + k) % 3)] for k in range(n)],
        "ragb": [[b"r" * j for j in range((i + k) % 3)] for k in range(n)],
        "frames": [[picture[(i + k) % 10]] for k in range(i % 4)],
        "pair": [[picture[(i + k) % 10]] for k in range(2)],
    }


def _fault(features, i):
    """Makes one or several features of every other record faulty, in a way that its number decides."""
    for turn in range(1 + (i % 3 == 0)):
        kind = _number(i, 50 + turn)
        if kind % 2:
            continue
        often = [name for name in ("pic", "name", "row", "cls", "big") if name in features] * 4
        names = list(features)[1:] + often  # never the id
        name = names[kind // 2 % len(names)]
        values, how = features[name], kind // 64 % 6
        fits = {
            "cls": [[10], [-1], [2**62]],
            "row": [[20], [-1], [2**63 - 1]],
            "name": [[b"nobody"], [b""]],
            "pic": [[broken] for broken in broken_pictures()],
            "big": [[2**63 - 1], [-(2**63)]],
        }.get(name)
        if name in ("two", "frames") and values and how < 4:
            features[name] = [*values[:-1], broken_pictures()[kind // 512 % 8]]
        elif fits and how < 4:
            features[name] = fits[kind // 512 % len(fits)]
        elif how == 0 or values is None:
            features[name] = None
        elif how == 1:
            features[name] = [*values, *(values or [1])[:1]]
        elif how == 2:
            features[name] = values[:-1]
        elif how == 3:
            features[name] = [1.5] if not values or isinstance(values[0], (int, bytes)) else [2]
        elif how == 4 and values and isinstance(values[0], bytes):
            features[name] = [values[0] + b"!", *values[1:]]
        else:
            features[name] = [(values or [3])[0]] * (len(values) + 12)


def _fault_of_lists(lists, i):
    for turn in range(1 + (i % 5 == 0)):
        kind = _number(i, 70 + turn)
        if kind % 2:
            continue
        name = list(lists)[kind // 2 % len(lists)]
        steps, how = lists[name] or [], kind // 64 % 8
        step = steps[-1] if steps else [7]
        if how == 0:
            lists[name] = None
        elif how == 1:
            lists[name] = steps[:-1]
        elif how <= 4:  # one, two or many steps too many
            lists[name] = steps + [step] * (1, 2, 40)[how - 2]
        elif how == 5:
            lists[name] = [*steps, [*step, *step]]
        elif how == 6:
            lists[name] = [*steps[:1], [], *steps[1:]]
        else:
            lists[name] = [*steps, [2.5] if step and isinstance(step[0], (int, bytes)) else [b"?"]]


_EMPTY = {"INT64": making.NO_NUMBERS, "FLOAT32": making.NO_FLOATS, "BYTES": making.NO_BYTES}


def _feature(name, values):
    """Returns a Feature; of an empty list one of the feature's kind, or in some records one without a kind."""
    known = {**PLAIN, **RICH, **LISTS}
    if not values and name in known and len(name) % 2:
        return _EMPTY[known[name][0]]
    return making.feature(values or None)


def _example(features):
    return making.example(**{name: _feature(name, values) for name, values in features.items() if values is not None})


def _sequence(context, lists):
    of_context = {name: _feature(name, values) for name, values in context.items() if values is not None}
    return making.sequence(
        of_context,
        **{
            name: [making.feature(step or None) for step in steps] for name, steps in lists.items() if steps is not None
        },
    )


def _rich_record(i, faulty):
    features = _rich(i)
    if faulty:
        if i % 83 == 40:
            return b"\x0a\xff\xff\xff no message"
        _fault(features, i)
    return _example(features)


def _sequence_record(i, faulty):
    context = {
        name: _rich(i)[name] for name in ("id", "clip", "opt", "optb", "x", "y", "cls", "name", "words", "pairs", "pic")
    }
    lists = _lists(i)
    if faulty:
        if i % 97 == 40:
            return b"\x12\x7f\x0a" + bytes(9)
        _fault(context, i)
        _fault_of_lists(lists, i)
    return _sequence(context, lists)


# Sets: the family, whether they are intact, and the sizes (or numbers) of the records of each file.


def _plain_sizes():
    rng = random.Random(3)

    def scattered(octaves):
        return rng.randint(1, 2 << rng.randrange(octaves))

    def of(least, most, count):
        return [rng.randint(least, most) for _ in range(count)]

    return {
        "uniform": [[60] * count for count in (700, 1, 1300)],
        "large-first": [of(10_000, 60_000, 12) + [20] * 900 for _ in range(4)],
        "large-last": [[8] * 1200 + of(5_000, 90_000, 25), of(1, 6_000, 300)],
        "many-small": [[scattered(13) for _ in range(count)] for count in (40, 0, 3, 120, 1, 17, 64, 90, 5, 33, 0, 2)],
        "outlier": [[40] * 500 + [700_000] + [40] * 600],
        # Files of more than 2 MiB, so that the compressed ones have seek points.
        "seekable": [of(20_000, 60_000, 70), [30] * 5, [700_000, 40, 700_000, 700_000] + [60] * 90 + [700_000]],
        "tiny": [[scattered(8) for _ in range(count)] for count in (7, 30)],
        "many-blocks": [[scattered(6) for _ in range(rng.randint(8, 16))] for _ in range(150)],
        "known-damage": [[scattered(12) for _ in range(count)] for count in (400, 250)],
        "hidden-damage": [[scattered(12) for _ in range(count)] for count in (400, 250)],
        "thousands": [[12, 3] for _ in range(1500)],
    }


SETS = {
    "plain": [
        "uniform",
        "large-first",
        "large-last",
        "many-small",
        "outlier",
        "seekable",
        "tiny",
        "many-blocks",
        "thousands",
    ],
    "damaged": ["known-damage", "hidden-damage"],  # records as in the family plain
    "rich": ["rich", "small-rich"],
    "faulty": ["faulty-rich", "rich"],  # records as in the family rich
    "sequence": ["sequence"],
    "faulty-sequence": ["faulty-sequence", "sequence"],
    "raw": ["raw", "fixed-raw"],
}
DAMAGED = {"known-damage": {2, 100, 101, 399}, "hidden-damage": {3, 120, 121, 399}}
NOT_COMPRESSED = {"known-damage", "hidden-damage", "thousands"}

# name -> (dtype, shape or None for a list, length). A list is VARIABLE, RAGGED or FIXED_SEQUENCE.
PLAIN = {
    "id": ("INT64", [], 0),
    "h": ("BYTES", [], 16),
    "clip": ("INT64", [], 0),
    "b": ("BYTES", [], 0),
    "v": ("INT64", None, 0),
}
RICH = {
    "id": ("INT64", [], 0),
    "clip": ("INT64", [], 0),
    "opt": ("INT64", [], 0),
    "optb": ("BYTES", [], 5),
    "optf": ("FLOAT32", [2, 3], 0),
    "x": ("FLOAT32", [], 0),
    "y": ("INT64", [], 0),
    "xs": ("FLOAT32", [6], 0),
    "big": ("INT64", [], 0),
    "v": ("INT64", None, 0),
    "vx": ("FLOAT32", None, 0),
    "words": ("BYTES", None, 0),
    "name": ("BYTES", [], 0),
    "tags": ("BYTES", [3], 0),
    "ids": ("INT64", [2], 0),
    "pairs": ("INT64", None, 0),
    "steps": ("FLOAT32", None, 0),
    "cls": ("INT64", [], 0),
    "row": ("INT64", [], 0),
    "bits": ("BYTES", [], 24),
    "raw": ("BYTES", [], 48),
    "pic": ("BYTES", [], 0),
    "two": ("BYTES", [2], 0),
    "frames": ("BYTES", None, 0),
}
CONTEXT = {name: RICH[name] for name in ("id", "clip", "opt", "optb", "x", "y", "cls", "name", "words", "pairs", "pic")}
LISTS = {
    "fixed": ("INT64", [3, 2], 0),
    "fixedf": ("FLOAT32", [2, 2], 0),
    "fixedb": ("BYTES", [2], 4),
    "seq": ("INT64", [2], 0),
    "seqf": ("FLOAT32", [], 0),
    "seqb": ("BYTES", [], 0),
    "rag": ("INT64", None, 0),
    "ragb": ("BYTES", None, 0),
    "frames": ("BYTES", [], 0),
    "pair": ("BYTES", [2], 0),
}


def payloads():
    """Yields (set, file number, payloads) for every file."""
    number = 0
    for name, files in _plain_sizes().items():
        number = (number // 1_000_000 + 1) * 1_000_000
        for f, sizes in enumerate(files):
            yield name, f, [_example(_plain(number + k, size)) for k, size in enumerate(sizes)]
            number += len(sizes)
    for start, name, counts, record in [
        (100_000, "rich", (110, 0, 70), _rich_record),
        (200_000, "small-rich", (23,), _rich_record),
        (300_000, "faulty-rich", (150, 60), _rich_record),
        (400_000, "sequence", (80, 1, 60), _sequence_record),
        (500_000, "faulty-sequence", (150, 60), _sequence_record),
    ]:
        for f, count in enumerate(counts):
            yield name, f, [record(start + f * 1000 + k, "faulty" in name) for k in range(count)]
    for f in range(3):
        yield "raw", f, [_bytes(k, k * k % 300) for k in range(f * 1000, f * 1000 + 90)]
        yield "fixed-raw", f, [_bytes(k, 16) for k in range(f * 1000, f * 1000 + 70)]


# The indexes of each stride and record_limit have a folder of their own, so that cases side by side do not change them.
STRIDES = ["", "512", "4KiB"]
LIMITS = ["", "2000000"]


def index_folder(stride, limit):
    return f"index-{stride or 'default'}-{limit or 'default'}"


def path_of(name, file=None):
    return f"{name}-*.tfrecord" if file is None else f"{name}-{file:04}.tfrecord"


def write_all(folder):
    """Writes the files of all sets and the tables. Returns the paths of all plain files."""
    paths = []
    for name, file, of_file in payloads():
        paths.append(os.path.join(folder, path_of(name, file)))
        records.write(paths[-1], of_file)
        for ending, compress in () if name in NOT_COMPRESSED else ((".gz", gzip.compress), (".zz", zlib.compress)):
            records.write(paths[-1] + ending, of_file, compress)
    damage(os.path.join(folder, path_of("known-damage", 0)), DAMAGED["known-damage"])
    rng = np.random.default_rng(5)
    np.save(os.path.join(folder, "floats.npy"), rng.standard_normal((20, 3)).astype(np.float32))
    np.save(os.path.join(folder, "shorts.npy"), rng.integers(-30000, 30000, (20, 2, 2), dtype=np.int16))
    np.save(os.path.join(folder, "wide.npy"), rng.integers(0, 255, (20, 600), dtype=np.uint8))
    with open(os.path.join(folder, "names.txt"), "w") as file:
        file.write("\n".join(WORDS) + "\n")
    with open(os.path.join(folder, "some-names.txt"), "w", newline="") as file:
        file.write("\r\n".join(WORDS[::-3]))
    for name, numbers in (("numbers.txt", range(19, -1, -1)), ("some-numbers.txt", range(-3, 20, 3))):
        with open(os.path.join(folder, name), "w") as file:
            file.writelines(f"{number}\n" for number in numbers)
    return paths


def hide_damage(folder):
    """Damages records without a visible change of the files, which must have been counted. Returns the paths of the
    damaged files."""
    path = os.path.join(folder, path_of("hidden-damage", 0))
    before = os.stat(path)
    damage(path, DAMAGED["hidden-damage"])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return {path}
