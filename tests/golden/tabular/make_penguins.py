"""Writes penguins.tfrecord from the penguins.csv of the package palmerpenguins (PyPI, 0.1.6).

    python3 make_penguins.py penguins.csv penguins.tfrecord

Each row becomes a tf.Example. A value that is "NA" in the table is absent from the record.
"""
import csv
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


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
        length = struct.pack("<Q", len(payload))
        out.write(length + masked(length) + payload + masked(payload))
