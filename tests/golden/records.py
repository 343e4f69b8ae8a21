"""Writes TFRecord files and the wire format of protobuf with nothing but Python's standard library, for the scripts that
make golden data.

Format: tensorflow/core/lib/io/record_writer.h (uint64 length, masked CRC32C of it, payload, masked CRC32C of it);
protobuf.dev/programming-guides/encoding.
"""
import struct


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
    """Returns a field of a message whose content has a length: a message, a string, or packed values."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def write_record(out, payload):
    length = struct.pack("<Q", len(payload))
    out.write(length + masked(length) + payload + masked(payload))
