"""Writes penguins.tfrecord from the penguins.csv of the package palmerpenguins (PyPI, 0.1.6).

    python3 make_penguins.py penguins.csv penguins.tfrecord

Each row becomes a tf.Example. A value that is "NA" in the table is absent from the record.
"""
import csv
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from records import field, varint, write_record


def feature(name, text):
    if name == "year":
        return field(3, field(1, varint(int(text))))
    if name in ("species", "island", "sex"):
        return field(1, field(1, text.encode()))
    return field(2, field(1, struct.pack("<f", float(text))))


with open(sys.argv[1], newline="") as table, open(sys.argv[2], "wb") as out:
    for row in csv.DictReader(table):
        entries = [field(1, name.encode()) + field(2, feature(name, text)) for name, text in row.items() if text != "NA"]
        payload = field(1, b"".join(field(1, entry) for entry in entries))
        write_record(out, payload)
