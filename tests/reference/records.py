"""The records of TFRecord files: their places, their payloads, and what is damaged."""

import itertools
import struct
import zlib
from typing import NamedTuple

import google_crc32c

HEADER, FOOTER = 12, 4


class Record(NamedTuple):
    """A place in a file, counted in the inflated stream of a compressed one."""

    offset: int
    number: int  # good records of the file before it
    payload: bytes | None  # None if the record is damaged
    damage: str = ""  # the category if it is


def masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(payload: bytes) -> bytes:
    """Returns a payload as it lies in a file."""
    length = struct.pack("<Q", len(payload))
    crcs = [struct.pack("<I", masked_crc(part)) for part in (length, payload)]
    return length + crcs[0] + payload + crcs[1]


def write(path, payloads, compress=lambda data: data) -> list[int]:
    """Writes a file of records, and returns their offsets."""
    parts = [framed(payload) for payload in payloads]
    with open(path, "wb") as file:
        file.write(compress(b"".join(parts)))
    return list(itertools.accumulate(map(len, parts[:-1]), initial=0))[: len(parts)]


def _header_is_sound(header: bytes) -> bool:
    return len(header) == HEADER and struct.unpack("<I", header[8:])[0] == masked_crc(header[:8])


def _compression_of(data: bytes) -> str:
    """Tells the compression by the first bytes. A sound header is plain, whatever else its bytes look like."""
    if _header_is_sound(data[:HEADER]):
        return "NONE"
    if data[:2] == b"\x1f\x8b":
        return "GZIP"
    looks_like_zlib = len(data) >= 2 and data[0] & 15 == 8 and data[0] >> 4 <= 7 and (data[0] * 256 + data[1]) % 31 == 0
    return "ZLIB" if looks_like_zlib else "NONE"


def _inflated(data: bytes, compression: str) -> bytes:
    """Inflates all members of a stream. Zeros behind a gzip member are padding."""
    window_bits = {"GZIP": 31, "ZLIB": 15}[compression]
    plain = []
    while data:
        stream = zlib.decompressobj(window_bits)
        try:
            plain.append(stream.decompress(data))
        except zlib.error as error:
            raise NotImplementedError("damaged compressed streams") from error
        if not stream.eof:
            raise NotImplementedError("compressed streams that are cut")
        data = stream.unused_data
        if compression == "GZIP" and not data.strip(b"\0"):
            break
    return b"".join(plain)


def read(path: str, compression: str = "AUTO", limit: int = 256 << 20) -> list[Record]:
    """Returns the records of a file in order, damaged ones included.

    A record whose length is sound is lost alone. What a damaged length loses is not said here: NotImplementedError.
    """
    with open(path, "rb") as file:
        data = file.read()
    if compression == "AUTO":
        compression = _compression_of(data)
    if compression != "NONE":
        data = _inflated(data, compression)
    records, offset, good = [], 0, 0
    while offset < len(data):
        header = data[offset : offset + HEADER]
        if len(header) < HEADER:
            records.append(Record(offset, good, None, "truncated_length"))
            break
        if not _header_is_sound(header):
            raise NotImplementedError(f"{path}: damaged length at offset {offset}")
        length = struct.unpack("<Q", header[:8])[0]
        begin, end = offset + HEADER, offset + HEADER + length
        damage = ""
        if length > limit:
            damage = "record_too_large"
        elif end + FOOTER > len(data):
            damage = "truncated_data"
        elif struct.unpack("<I", data[end : end + FOOTER])[0] != masked_crc(data[begin:end]):
            damage = "bad_data_crc"
        records.append(Record(offset, good, None if damage else data[begin:end], damage))
        good += not damage
        offset = end + FOOTER
    return records
