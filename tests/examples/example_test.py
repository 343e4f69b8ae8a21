#!/usr/bin/env python3
"""example_test.py TOOL SOURCE EXAMPLE: compares `feedline check` and `dump` of examples/ with TensorFlow's answers."""

import array
import ast
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

TOOL, SOURCE, EXAMPLE = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
CODES = {"u1": "B", "b1": "B", "i1": "b", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}


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
    for name, number in (("t.values", "f2.values"), ("t.row_splits", "f2.row_splits"), ("n.bytes", "f4.bytes"),
                         ("n.offsets", "f4.offsets"), ("n.row_splits", "f4.row_splits")):
        equal(out(name), answer(number))


pipeline = SOURCE / "examples" / (EXAMPLE + ".textproto")
subprocess.run([TOOL, "check", pipeline], check=True)
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([TOOL, "dump", pipeline, "--out", folder], check=True)
    report = json.loads((pathlib.Path(folder) / "report.json").read_text())
    assert report["errors"] == [], report["errors"]
    globals()[EXAMPLE](lambda name: parse_npy((pathlib.Path(folder) / (name + ".npy")).read_bytes()))
    print(f"{EXAMPLE}: {report['samples']} samples in {report['steps']} steps as TensorFlow reads them")
