"""The reference against feedline, for every kind of feature and output, with good records and bad ones."""

import gzip
import itertools
import os
import shutil
import zlib

import numpy as np
import pytest
import records
from casts import NUMPY
from comparing import differences
from fingerprint import fingerprint
from making import NO_BYTES, NO_FLOATS, NO_NUMBERS, encoded, example, feature, pictures, sequence
from PIL import Image
from reference import Candidates, Failure, Reference

import feedline

X = 'feature { name: "x" dtype: INT64 } '
IMAGE = 'feature { name: "i" dtype: BYTES } '


@pytest.fixture
def check(tmp_path):
    """Writes payloads, feeds them in batches of 4 with bad records skipped, and compares."""

    numbers = itertools.count()

    def check(text: str, payloads: list[bytes], record_type: str = "EXAMPLE") -> None:
        name = f"{next(numbers)}.tfrecord"
        records.write(tmp_path / name, payloads)
        stages = f'source {{ files: "{name}" record_type: {record_type} }} errors {{ on_error: SKIP_RECORD }} '
        stages += "batch { global_batch_size: 4 last_batch_policy: PAD } "
        assert differences(stages + text, tmp_path) == []

    return check


def test_features_of_examples(check):
    text = """
        feature { name: "x" dtype: INT64 }
        feature { name: "f" dtype: FLOAT32 shape: [2] }
        feature { name: "v" dtype: INT64 kind: RAGGED max_values: 3 }
        feature { name: "s" dtype: BYTES }
        feature { name: "s2" key: "pair" dtype: BYTES shape: [2] }
        feature { name: "ss" dtype: BYTES kind: FIXED_SEQUENCE default_value { bytes_value: "pad" } }
        feature { name: "sp" dtype: BYTES kind: FIXED_SEQUENCE shape: [2] default_value { bytes_value: "z" } }
        feature { name: "fs" dtype: FLOAT32 kind: FIXED_SEQUENCE shape: [2] default_value { float32_value: 7 } }
        feature { name: "l4" dtype: BYTES length: 4 }
        feature { name: "lv" dtype: BYTES length: 4 kind: VARIABLE }
        feature { name: "l22" dtype: BYTES length: 2 shape: [2] default_value { bytes_value: "zz" } }
        feature { name: "d" dtype: INT64 shape: [2] default_value { int64_value: 4 } default_value { int64_value: 5 } }
    """
    rows = []
    for i in range(18):
        absent = {"d": [i, i], "l22": ["ab", "cd"]} if i % 2 else {}
        strings = {"ss": feature([b"a", b""][: i % 3], "bytes_list"), "sp": feature([b"a"] * (i % 5), "bytes_list")}
        numbers = {"v": feature([7] * (i % 5), "int64_list"), "fs": feature([1.5] * (i % 6), "float_list")}
        lengths = {"l4": "abcd", "lv": feature([b"abcd"] * (i % 3), "bytes_list")}
        rows.append(example(x=i, f=[1.5 * i, -0.0], s=f"n{i}", pair=["a", "bb"],
                            **absent, **strings, **numbers, **lengths))
    check(text, rows)


def test_bad_features(check):
    text = """
        feature { name: "x" dtype: INT64 }
        feature { name: "y" dtype: FLOAT32 default_value { float32_value: 1 } }
        feature { name: "z" dtype: BYTES kind: RAGGED required: true length: 2 }
        feature { name: "w" dtype: INT64 kind: FIXED_SEQUENCE max_values: 2 }
    """
    good = {"x": 1, "z": NO_BYTES}
    changes = [{}, {"x": 1.5}, {"x": [1, 2]}, {"x": feature(None)}, {"x": NO_NUMBERS}, {"z": feature(None)},
               {"z": ["ab", "abc"]}, {"z": NO_FLOATS}, {"z": 1}, {"y": feature(None)}, {"y": NO_FLOATS}, {"y": 1},
               {"w": [1, 2]}, {"w": [1, 2, 3]}, {"w": NO_FLOATS}, {"y": 1, "x": 1.5}]
    rows = [example(**good | change) for change in changes]
    check(text, [*rows, example(), example(x=1), b"\xff\xff", b"", rows[0] + b"\x0a\x05", rows[0] + rows[2]])


def test_features_with_steps(check):
    text = """
        feature { name: "l" dtype: INT64 }
        feature { name: "fr" dtype: BYTES where: FEATURE_LIST kind: FIXED_SEQUENCE max_values: 4 }
        feature { name: "xy" dtype: FLOAT32 where: FEATURE_LIST kind: FIXED_SEQUENCE shape: [2] }
        feature { name: "w" key: "tok" dtype: INT64 where: FEATURE_LIST kind: RAGGED max_values: 3 required: true }
        feature { name: "wb" dtype: BYTES where: FEATURE_LIST kind: VARIABLE }
        feature { name: "fx" dtype: INT64 where: FEATURE_LIST shape: [2, 3] default_value { int64_value: 9 } }
    """
    good = [{"fr": ["a"] * (i % 5), "xy": [[1.0 * i, 2.0]] * (i % 3), "wb": [["q"], NO_BYTES, ["r", "ss"]][: i % 4],
             "tok": [feature([5] * j, "int64_list") for j in range(i % 4)]} for i in range(8)]
    changes = [{}, {"fx": [[1, 2, 3], [4, 5, 6]]}, {"fx": [[1, 2, 3]]}, {"fx": [[1, 2], [3]]}, {"fx": []},
               {"fx": [[1, 2, 3], feature(None)]}, {"tok": [NO_NUMBERS] * 4}, {"tok": [[1, 2], [3], [4]]},
               {"tok": [[1, 2], feature(None), [4]]}, {"xy": [[1.0, 2.0], [1.0]]}, {"xy": [feature(None)]},
               {"fr": [["a", "b"]]}, {"fr": ["x"] * 5}, {"wb": [NO_FLOATS]}, {"fr": [1]}]
    rows = [sequence({"l": i}, **lists) for i, lists in enumerate(good)]
    rows += [sequence({"l": 1}, **good[3] | change) for change in changes]
    check(text, [*rows, sequence({"l": 1}), sequence({}), b"\x0b"], "SEQUENCE_EXAMPLE")
    outputs = """
        output { name: "w" feature: "w" dtype: FLOAT16 normalize { scale: 2 mean: 1 } }
        output { name: "xy" feature: "xy" dtype: INT8 normalize { scale: 90.5 mean: 1 } }
        output { name: "wb" feature: "wb" }
    """
    check(text + outputs, rows, "SEQUENCE_EXAMPLE")


def test_raw_records(check):
    check("", [b"", b"abc", bytes(300)], "RAW")
    check('feature { name: "record" dtype: BYTES length: 3 }', [b"", b"abc", b"xyz!"], "RAW")
    check("""output { name: "d" feature: "record" decode_raw { stored: FLOAT16 big_endian: true shape: [2] } }
             output { name: "r" feature: "record" dtype: BYTES }
             output { name: "u" feature: "record" }""", [b"ab", b"abcd", b"\x00\xff\x7f\xff"], "RAW")


@pytest.mark.parametrize("stored", NUMPY)
def test_casts_from(check, stored):
    rng = np.random.default_rng(1)
    kind = NUMPY[stored]
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        values = [rng.integers(limits.min, limits.max, 300, kind) >> shift for shift in range(0, kind.itemsize * 8, 5)]
        ties = [sign * ((1 << e) + (odd << max(e - bits, 0)) + step) for e in range(3, 62) for bits in (8, 11, 24, 53)
                for odd in (1, 3) for step in (-1, 0, 1) for sign in (1, -1)]
        values.append(np.array([t for t in ties if limits.min <= t <= limits.max] + [limits.min, limits.max], kind))
    else:
        special = [0, -0.0, 0.5, -0.5, 1.5, 255.5, -129, 65519.99, 65520, np.inf, -np.inf, np.nan, 2.0**31, 2.0**63]
        with np.errstate(all="ignore"):
            values = [np.array(special).astype(kind)]
            values += [(rng.standard_normal(100) * 2.0**e).astype(kind) for e in range(-30, 70, 3)]
    data = b"".join(value.tobytes() for value in values) + rng.bytes(512 * kind.itemsize)
    count = len(data) // kind.itemsize
    made = f'feature: "record" decode_raw {{ stored: {stored} shape: [{count}] }}'
    change = "normalize { scale: 1.7 mean: 0.3 std: 3 }"
    check("".join(f'output {{ name: "{to}" dtype: {to} {made} }} output {{ name: "n{to}" dtype: {to} {made} {change} }}'
                  for to in NUMPY), [data, data[::-1]], "RAW")


def test_unpack_bits(check):
    rng = np.random.default_rng(2)
    text = 'feature { name: "record" dtype: BYTES length: 32 }'
    ways = itertools.product((1, 2, 7, 8, 9, 17, 31, 32), ("true", "false"), ("BIG", "LITTLE"))
    for width, signed, order in ways:
        fields = f"width: {width} sign_extend: {signed} bit_order: {order} bit_offset: {width % 5}"
        name = f"{width}{signed}{order}"
        scaled = f"{fields} shape: [1, 2, 3] channel_order: [2, 0, 0] scale: [1.1, 2, -3.3] bias: 0.1"
        text += f"""
            output {{ name: "a{name}" feature: "record" unpack_bits {{ {fields} shape: [2, 3] }} }}
            output {{ name: "b{name}" feature: "record" unpack_bits {{ {fields} }} dtype: FLOAT16 }}
            output {{ name: "c{name}" feature: "record" unpack_bits {{ {scaled} }} layout: CHW }}
            output {{ name: "d{name}" feature: "record" unpack_bits {{ {scaled} }} dtype: INT8
                      normalize {{ scale: 0.3 mean: [1, 2, 3] }} }}"""
    check(text, [rng.bytes(32) for _ in range(6)], "RAW")


def test_classes_and_tables(check, tmp_path):
    np.save(tmp_path / "table.npy", (np.arange(24.0).reshape(4, 3, 2) - 5) * 1.1)
    np.save(tmp_path / "numbers.npy", np.arange(-4, 4, dtype=np.int16))
    (tmp_path / "names.txt").write_bytes(b"a\nbb\nc c\n\n")
    rows = [example(k=k, n=n) for k in (0, 3, 4, 5, 8, -1) for n in ("a", "bb", "c c", "", "x", "a\n")]
    check("""
        feature { name: "k" dtype: INT64 } feature { name: "n" dtype: BYTES }
        output { name: "tu" feature: "k" lookup { table: "numbers.npy" on_device: true unknown: 7 } }
        output { name: "mu" feature: "n" lookup { table: "table.npy" keys_file: "names.txt" unknown: 0 } }""", rows)
    check("""
        feature { name: "k" dtype: INT64 } feature { name: "n" dtype: BYTES }
        output { name: "h" feature: "k" one_hot { classes: 5 } }
        output { name: "hi" feature: "k" dtype: INT8 one_hot { classes: 5 } normalize { scale: 10 mean: -1 } }
        output { name: "hs" feature: "k" one_hot { classes: 4 on_value: 0.9 off_value: 0.025 ignore_outside: true } }
        output { name: "hn" feature: "k" dtype: INT16 one_hot { classes: 5 on_value: -7 off_value: 3000 } }
        output { name: "hb" feature: "k" dtype: FLOAT16 one_hot { classes: 5 on_value: 0.1 off_value: 1e5 }
                 normalize { scale: 0.3 mean: 1 } }
        output { name: "t" feature: "k" dtype: UINT8 lookup { table: "numbers.npy" resident: true } }
        output { name: "m" feature: "n" dtype: BFLOAT16 lookup { table: "table.npy" keys_file: "names.txt" }
                 normalize { mean: [1, 2] } }""", rows)


def test_several_classes_and_rows(check, tmp_path):
    np.save(tmp_path / "table.npy", np.arange(24, dtype=np.int16).reshape(4, 3, 2) - 5)
    (tmp_path / "names.txt").write_bytes(b"a\nbb\nc\nd")
    rows = [example(ks=[k, m, 0, 1], ns=[n, o]) for k in (0, 3, 4, -1) for m in (1, 2) for n in ("a", "bb", "x")
            for o in ("d", "")]
    declared = """
        feature { name: "ks" dtype: INT64 shape: [2, 2] } feature { name: "ns" dtype: BYTES shape: 2 }
        output { name: "h" feature: "ks" dtype: INT8 one_hot { classes: 4 %s } normalize { scale: 10 mean: [1, 2, 3, 4] } }
        output { name: "t" feature: "ks" lookup { table: "table.npy" %s } normalize { mean: [1, 2] } }
        output { name: "m" feature: "ns" dtype: INT8 lookup { table: "table.npy" keys_file: "names.txt" %s } }"""
    ways = itertools.product(("", "ignore_outside: true"), ("on_device: true", "unknown: 2"), ("", "unknown: 0"))
    for h, t, m in ways:
        check(declared % (h, t, m), rows)


def test_classes_of_lists(check):
    lists = ([], [0], [3, 3, 1], [4, 0, 2, 1, 3], [5], [-1, 2], [2] * 9)
    rows = [example(x=1, k=feature(numbers, "int64_list")) for numbers in lists] + [example(x=2), example(x=b"bad")]
    declared = """
        feature { name: "x" dtype: INT64 } feature { name: "k" dtype: INT64 kind: %s }
        output { name: "x" feature: "x" } output { name: "k" feature: "k" }
        output { name: "m" feature: "k" one_hot { classes: 5 %s } }
        output { name: "n" feature: "k" dtype: INT8 one_hot { classes: 5 on_value: -3 off_value: 9 %s }
                 normalize { scale: 2 } }"""
    for kind, m, n in itertools.product(("VARIABLE", "RAGGED max_values: 5"), *[("", "ignore_outside: true")] * 2):
        check(declared % (kind, m, n), rows)


def test_numbers_of_names(check, tmp_path):
    (tmp_path / "words.txt").write_bytes(b"a\r\nbb\nc c\nd")
    words = ("a", "bb", "c c", "d", "", "a\r", "x", "D")
    rows = [example(w=w, pair=[w, other], square=[w, "a", other, "d"]) for w in words for other in ("d", "a", "none")]
    known = [example(w=w, pair=[w, "d"], square=["a"] * 4) for w in words[:4]]
    declared = """
        feature { name: "w" dtype: BYTES } feature { name: "pair" dtype: BYTES shape: 2 }
        feature { name: "square" dtype: BYTES shape: [2, 2] default_value { bytes_value: "bb" } }
        output { name: "n" feature: "w" %s vocabulary { keys_file: "words.txt" %s } }
        output { name: "p" feature: "pair" dtype: INT32 vocabulary { keys_file: "words.txt" %s } }
        output { name: "s" feature: "square" vocabulary { keys_file: "words.txt" %s } }"""
    ways = itertools.product(("", "unknown: -1", "unknown_buckets: 3"), ("", "unknown: 5", "unknown_buckets: 99"),
                             ("", "unknown: 9223372036854775807", "unknown_buckets: 2147483648"))
    for n, p, s in ways:
        for dtype in ("", "dtype: INT64", "dtype: INT32"):
            check(declared % (dtype, n, p, s), [*rows, *known, example(w="a", pair=["a", "bb"]), example(w="a")])


def test_names_that_are_numbers(check, tmp_path):
    (tmp_path / "numbers.txt").write_bytes(b"5\r\n-7\n0\n-9223372036854775808\n9223372036854775807")
    np.save(tmp_path / "table.npy", np.arange(10, dtype=np.float32).reshape(5, 2))
    rows = [example(n=n, pair=[n, m]) for n in (5, -7, 0, 7, -5, 2**63 - 1, -(2**63)) for m in (0, 5, 1)]
    declared = """
        feature { name: "n" dtype: INT64 } feature { name: "pair" dtype: INT64 shape: [1, 2] }
        output { name: "v" feature: "n" vocabulary { keys_file: "numbers.txt" %s } }
        output { name: "p" feature: "pair" dtype: INT32 vocabulary { keys_file: "numbers.txt" %s } }
        output { name: "t" feature: "n" lookup { table: "table.npy" keys_file: "numbers.txt" %s } }"""
    ways = itertools.product(("", "unknown: -1", "unknown_buckets: 3"), ("", "unknown: 9", "unknown_buckets: 1000"),
                             ("", "unknown: 4", "on_device: true"))
    for v, p, t in ways:
        check(declared % (v, p, t), rows)


def test_hashes(check):
    # What FarmHash's own program (pyfarmhash 0.5.1) returns.
    for text, wanted in ((b"", 0x9AE16A3B2F90404F), (b"a", 0xB3454265B6DF75E3), (b"hello", 0xB48BE5A931380CE8),
                         (b"feedline", 0x941F85024745F14F), (b"-9223372036854775808", 0x14B9BC6F6D2837E0),
                         (b"x" * 100, 0x5B7616B854568A1F)):
        assert fingerprint(text) == wanted
    rng = np.random.default_rng(3)
    words = [rng.bytes(size) for size in range(200)]
    numbers = [0, 7, -7, 99, -100, 2**63 - 1, -(2**63), *rng.integers(-(2**63), 2**63 - 1, 193).tolist()]
    rows = [example(w=w, n=n, pair=[w, b"x"], square=[n, 1, 2, i]) for i, (w, n) in enumerate(zip(words, numbers))]
    check("""
        feature { name: "w" dtype: BYTES } feature { name: "n" dtype: INT64 }
        feature { name: "pair" dtype: BYTES shape: 2 } feature { name: "square" dtype: INT64 shape: [2, 2] }
        output { name: "a" feature: "w" hash { buckets: 4611686018427387904 } }
        output { name: "b" feature: "n" hash { buckets: 1000003 } }
        output { name: "c" feature: "pair" dtype: INT32 hash { buckets: 2147483648 } }
        output { name: "d" feature: "square" dtype: INT64 hash { buckets: 7 } }
        output { name: "e" feature: "n" hash { buckets: 1 } }""", rows)


def test_scalars(check):
    check("""
        feature { name: "a" dtype: INT64 } feature { name: "b" dtype: FLOAT32 } feature { name: "a2" dtype: INT64 }
        output { name: "p" stack { features: ["a2", "a*"] } }
        output { name: "q" dtype: INT8 stack { features: ["b", "?"] } normalize { scale: 1.5 mean: [1, 2] std: 3 } }
        output { name: "r" dtype: FLOAT16 stack { features: "[ab]*" } }
        output { name: "s" feature: "@record" } output { name: "t" dtype: UINT8 feature: "@file" }
        output { name: "u" dtype: FLOAT32 feature: "@offset" } output { name: "v" feature: "@source" }
        output { name: "w" internal: true dtype: INT8 feature: "a" }
        output { name: "e" expression { formula: "out.w" } }
        """, [example(a=i * 100, b=1e5 / (i + 1), a2=2**62 + i) for i in range(6)])


FORMULAS = """1 | a * b | -a * 2 | a - b - 1 | a / 2 | abs(a) | min(a, b) | max(a, f) | mod(a, b) | mod(-f, 3)
    mod(f, -2.5) | mod(f, 0) | floor(a) | sign(-f) | sqrt(f) | log(f) | exp(f) | pow(f, 2) | tanh(f) | sigmoid(f)
    if(a > 2, a, b) | if(a > 2, a, f) | if(f, 1, 2.5) | a < b | a <= 3 and b >= 2 or not f | not a == 3 | not not a
    a == 3.0 | K * a | 9223372036854775807 - a | max(-0.0, 0.0) | mod(-6.0, 3) | min(0.0 / 0.0, 1) | not (0.0 / 0.0)
    mod(-5, 1.0 / 0) | if(a == 0, 0, mod(b, a)) | a == 0 or mod(b, a) == 1 | a * 4611686018427387904
    -(a - 9223372036854775807 - 1)
    out.o16 * 3 | out.o8 + 1 | 010 + .5 + 5. + 1e3 | a - -b | if(a, 9007199254740993, 1.0) | a < 1e18 | a == f"""


def test_formulas(check):
    numbers = ((0, 0, 0.0), (3, 2, 1.5), (-7, 2, -2.5), (5, -3, 7.75), (2**62, 2, np.nan), (-(2**63), -1, np.inf))
    rows = [example(a=a, b=b, f=f) for a, b, f in numbers]
    declared = X.replace("x", "a") + X.replace("x", "b") + 'feature { name: "f" dtype: FLOAT32 }'
    others = 'output { name: "o16" dtype: FLOAT16 feature: "f" } output { name: "o8" dtype: INT8 feature: "a" }'
    for formula in FORMULAS.replace("\n", "|").split("|"):
        text = f'expression {{ formula: "{formula.strip()}" constants {{ key: "K" value: 2.5 }} }}'
        check(declared + others + f'output {{ name: "x" {text} }} output {{ name: "y" dtype: INT64 {text} }}', rows)


def test_the_first_failure_of_a_record(check):
    outputs = {
        "image": 'output { name: "image" feature: "i" decode_image {} crop { size: [1, 1] } }',
        "hot": 'output { name: "hot" feature: "k" one_hot { classes: 2 } }',
        "formula": 'output { name: "formula" expression { formula: "n * 4611686018427387904" } }',
        "hidden": 'output { name: "hidden" internal: true dtype: INT64 expression { formula: "mod(1, n - 2)" } }',
        "unread": 'output { name: "unread" internal: true feature: "k" one_hot { classes: 2 } }',
        "reader": 'output { name: "reader" expression { formula: "if(1, n * 4611686018427387904, out.hidden)" } }',
    }
    declared = X.replace("x", "k") + X.replace("x", "n") + IMAGE + 'output { name: "n" feature: "n" } '
    for pair in itertools.permutations(outputs, 2):
        if "reader" not in pair or "hidden" in pair:
            check(declared + "".join(outputs[name] for name in pair), [example(k=9, n=2, i="x")])


@pytest.mark.parametrize("channels, bits", [(1, 8), (3, 8), (1, 16), (3, 16)])
def test_decoding(check, channels, bits):
    rng = np.random.default_rng(3)
    rows = [example(i=data) for data in pictures(rng, 11, 13).values()]
    inks = encoded(Image.fromarray(rng.integers(0, 256, (11, 13, 4), np.uint8), "CMYK"), "JPEG", quality=95)
    marker = inks.find(b"\xff\xee")
    rows += [example(i=inks), example(i=inks[:marker] + inks[marker + 16 :])]
    decoded = f"decode_image {{ channels: {channels} bit_depth: {bits} }}"
    check(IMAGE + f'output {{ name: "x" feature: "i" {decoded} crop {{ size: [11, 13] }} }}', rows)
    shaped = "crop { size: [6, 8] } layout: CHW normalize { scale: 0.1 mean: 3 std: 7 } dtype: FLOAT16"
    check(IMAGE + f'output {{ name: "x" feature: "i" {decoded} {shaped} }}', rows)


def test_turned_pictures(check):
    rng, rows = np.random.default_rng(4), []
    for orientation, form in itertools.product(range(10), ("JPEG", "PNG")):
        exif = Image.Exif()
        exif[0x0112] = orientation
        rows.append(example(i=encoded(rng.integers(0, 256, (7, 9, 3), np.uint8), form, exif=exif)))
    for turned, size in itertools.product(("true", "false"), ("[7, 7]", "[8, 6]")):
        text = f'output {{ name: "x" feature: "i" decode_image {{ apply_exif: {turned} }} crop {{ size: {size} }} }}'
        check(IMAGE + text, rows)


def test_broken_pictures(check):
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 256, (16, 16, 3), np.uint8)
    jpeg, png = encoded(noise, "JPEG"), encoded(noise)
    large = np.zeros((20, 21, 3), np.uint8)
    rows = [b"", b"hello", jpeg[:2], jpeg + b"xyz", png + b"zz", encoded(noise[:3]), encoded(large)]
    rows += [data[:end] for data in (jpeg, png) for end in (None, 3, 10, len(data) // 2, -1, -2, -4, -12)]
    rows += [encoded(noise, form) for form in ("GIF", "BMP", "WEBP", "TIFF")]
    rows = [example(i=data) for data in rows]
    for shaped in ("crop { size: [16, 16] }", "resize { size: [4, 4] }", "crop { size: [4, 4] }"):
        check(IMAGE + f'output {{ name: "x" feature: "i" decode_image {{ max_pixels: 400 }} {shaped} }}', rows)
    long = [(size, 1, 3) for size in (65536, 65537)] + [(1, size, 3) for size in (65536, 65537)]
    rows = [example(i=encoded(np.zeros(shape, np.uint8))) for shape in long]
    check(IMAGE + 'output { name: "x" feature: "i" decode_image {} resize { size: [1, 1] } }', rows)


SHAPES = [f"resize {{ size: {size} {how} }} {more}" for size, (how, more) in itertools.product(
    ("[5, 6]", "[20, 17]", "[11, 13]", "[7, 30]", "[1, 1]"),
    (("", "dtype: INT8 normalize { scale: 0.5 mean: 60 }"), ("antialias: true", ""), ("filter: AREA", "dtype: FLOAT32"),
     ("filter: NEAREST", "normalize { scale: 0.1 mean: [1, 2, 3] } layout: CHW"), ("", "dtype: BFLOAT16 flip {}")))]
SHAPES += [f"resize {{ shorter: {n} }} crop {{ size: [5, 4] after_resize: true {how} }}"
           for n, how in itertools.product((5, 8, 12, 16), ("", "mode: RANDOM"))]
SHAPES += [f"crop {{ {crop} }} {more}" for crop, more in itertools.product(
    ("size: [5, 4]", "size: [8, 8]", "size: [9, 9] padding: 2 fill: 200", "size: [6, 6] mode: RANDOM padding: 1"),
    ("", "flip {}", "flip { probability: 1 }", "flip { probability: 0 } resize { size: [6, 6] }"))]
SHAPES += [f"crop {{ mode: RANDOM random_area {{ {area} }} }} resize {{ size: [6, 7] }} flip {{}}"
           for area in ("", "scale: [0.3, 0.5]", "ratio: [1, 1]", "scale: [1, 1] ratio: [2, 3]", "scale: [0.01, 0.02]")]


@pytest.mark.parametrize("shaped", SHAPES)
def test_shaping(check, shaped):
    rng = np.random.default_rng(6)
    sizes = ((11, 13), (7, 16), (16, 5), (8, 8))
    made = {size: pictures(rng, *size) for size in sizes}
    rows = [example(i=made[size][name]) for size in sizes for name in ("jpeg", "png grey", "png grey of 16 bits")]
    check(IMAGE + f'output {{ name: "x" feature: "i" decode_image {{}} {shaped} }}', rows)
    if "crop" not in shaped or "shorter" in shaped:
        for shape, layout in (("[9, 8, 3]", "HWC"), ("[3, 9, 8]", "CHW")):
            raw = f'decode_raw {{ shape: {shape} layout: {layout} }}'
            check(f'output {{ name: "x" feature: "record" {raw} {shaped} }}', [rng.bytes(216) for _ in range(5)], "RAW")


@pytest.mark.parametrize("shaped", [
    "crop { size: [5, 6] }", "resize { size: [5, 6] } flip {}",
    "crop { size: [5, 6] mode: RANDOM } flip {} normalize { mean: [1, 2, 3] } layout: CHW"])
def test_clips(check, shaped):
    rng = np.random.default_rng(7)
    small, large = (encoded(rng.integers(0, 256, (*size, 3), np.uint8)) for size in ((7, 8), (8, 9)))
    tiny = encoded(np.zeros((3, 3, 3), np.uint8))
    pairs = [[small, large], [large, large], [small, small], [tiny, large], [b"GIF8", large]]
    output = f'output {{ name: "x" feature: "i" decode_image {{}} {shaped} }}'
    fixed = 'feature { name: "i" dtype: BYTES shape: [2] }'
    check(fixed + output, [example(i=pair) for pair in pairs])
    padded = 'feature { name: "i" dtype: BYTES kind: FIXED_SEQUENCE max_values: 3 where: FEATURE_LIST }'
    clips = [*pairs, [], [small], [large] * 3, [large] * 4]
    check(padded + output, [sequence({}, i=clip) for clip in clips], "SEQUENCE_EXAMPLE")


def fed(text: str, folder) -> list:
    """Returns [record, file, offset, source] of each row, None where it is filler, and the category that ends it."""
    rows = []
    try:
        for batch in feedline.Loader(feedline.Pipeline(text, folder=str(folder)), threads=1):
            columns = [np.asarray(batch[name])[0] for name in "rfos"]
            rows.append(list(map(int, columns)) if np.asarray(batch.valid_mask)[0] else None)
    except feedline.Error as error:
        rows.append(error.category)
    return rows


def wanted(text: str, folder, damaged_later=frozenset()) -> list:
    reference, rows = Reference(text, str(folder), damaged_later), []
    raises = reference.pipeline.errors.on_error == 0
    for frame in itertools.chain(*reference.sources):
        failure = reference.failure(frame)
        if failure and raises:
            return [*rows, failure.category]
        rows.append(None if failure else [frame.record, frame.file, frame.offset, frame.source])
    return rows


PLACES = X + "".join(
    f'output {{ name: "{name[0]}" feature: "@{name}" }} ' for name in ("record", "file", "offset", "source"))
SOURCES = ['files: "[abc].tfrecord"', 'files: "b.tfrecord" range: "20%:80%"', 'files: "head.tfrecord"',
           'files: "cut.tfrecord" files: "a.tfrecord"', 'files: "b.tfrecord" range: ":2"', 'files: "b*" range: "2:"',
           'files: "*.tfrecord" exclude: "b*" exclude: "s*/*" exclude: "[!a]*"', 'files: "*/?.tfrecord" files: "[ab]*"',
           'files: "a.tfrecord" record_limit: "13"', 'files: "zipped.tfrecord" files: "a.tfrecord"',
           'files: "deflated.tfrecord" compression: ZLIB', 'files: "a.tfrecord" files: "link.tfrecord"']
SOURCES += [f'files: "c.tfrecord" range: "{part}" num_shards: {shards} shard_id: {shards - 1}' for part, shards in
            itertools.product(("10%:80%", "33%:66%", "12.5%:99.9%", "5:333", ":3", "3:3", "14.2%:"), (1, 2, 5))]


@pytest.fixture
def files(tmp_path):
    """Three files, one of them damaged, and some that are cut, compressed, linked or in a folder."""
    (tmp_path / "sub").mkdir()
    for name, first, count in (("a", 0, 5), ("b", 5, 6), ("c", 11, 23), ("sub/a", 90, 3)):
        records.write(tmp_path / f"{name}.tfrecord", [example(x=i) for i in range(first, first + count)])
    damage(tmp_path / "b.tfrecord", 2)
    data = (tmp_path / "a.tfrecord").read_bytes()
    for name, other in (("cut", data[:-5]), ("head", data[:-23]), ("deflated", zlib.compress(data)),
                        ("zipped", gzip.compress(data[:50]) + gzip.compress(data[50:]) + bytes(9))):
        (tmp_path / f"{name}.tfrecord").write_bytes(other)
    (tmp_path / "link.tfrecord").symlink_to("a.tfrecord")
    return tmp_path


def damage(path, number: int) -> None:
    """Changes a byte of a record's payload, and leaves the times of its file as they were."""
    times, data = os.stat(path), bytearray(path.read_bytes())
    data[records.read(str(path))[number].offset + 15] ^= 1
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


STAGES = "batch { global_batch_size: 1 last_batch_policy: PAD } epoch { allow_empty: true } "


@pytest.mark.parametrize("on_error", ["RAISE", "SKIP_RECORD", "SKIP_FILE"])
def test_sources(files, on_error):
    for source, stage in itertools.product(SOURCES, ("", 'filter: "mod(x, 3)"', 'filter: "x > 2 and 10 / x > 1"')):
        text = f"source {{ {source} }} errors {{ on_error: {on_error} }} {stage} {STAGES}" + PLACES
        assert fed(text, files) == wanted(text, files), text
        both = f'source {{ files: "a.tfrecord" range: "1:4" }} {text}'
        assert fed(both, files) == wanted(both, files), both


@pytest.mark.parametrize("on_error", ["RAISE", "SKIP_RECORD", "SKIP_FILE"])
def test_damage_after_counting(files, on_error):
    source = 'source { files: "[ac].tfrecord" range: "10%:" index { dir: "ix" } }'
    text = f"{source} errors {{ on_error: {on_error} }} {STAGES}{PLACES}"
    path, copy = files / "a.tfrecord", files / "sub/a.tfrecord"
    shutil.copy(path, copy)
    filtered = 'filter: "x != 4" ' + text
    assert fed(text, files) == wanted(text, files) and fed(filtered, files) == wanted(filtered, files)
    damage(path, 3)
    assert fed(text, files) == wanted(text, files, {str(path)})
    assert fed(filtered, files) == wanted(filtered, files, {str(path): str(copy)})


def test_values_and_candidates(tmp_path):
    rng = np.random.default_rng(8)
    picture = encoded(rng.integers(0, 256, (6, 5, 3), np.uint8))
    records.write(tmp_path / "data.tfrecord", [example(i=picture), example(i="x")])
    output = 'output { name: "x" feature: "i" decode_image {} crop { size: [4, 4] mode: RANDOM } }'
    reference = Reference('source { files: "data.tfrecord" } ' + IMAGE + output, str(tmp_path))
    good, bad = reference.sources[0]
    value = reference.value(good, "x")
    assert isinstance(value, Candidates) and value.values.shape == (6, 4, 4, 3) and len(set(value.choices)) == 6
    assert reference.failure(good) is None and reference.failure(bad) == Failure("bad_image", "i")
    with pytest.raises(Failure):
        reference.value(bad, "x")
