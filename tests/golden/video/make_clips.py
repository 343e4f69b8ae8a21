"""Writes clips.tfrecord: six SequenceExamples, each a clip of 4 to 8 frames with the keys of MediaPipe's media sequences.

    python3 make_clips.py FOLDER

Frame s of clip c is a window of 32 x 32 pixels that moves over photograph c of ../images/photos_png.npz, as a PNG:
`place()` says where it is. Besides the frames a clip has a time stamp of each of them in microseconds, and its number as
the label.
"""
import ast
import pathlib
import struct
import sys
import zipfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from records import field, varint, write_record

SIDE, LENGTHS = 32, (4, 8, 5, 6, 7, 6)


def place(clip, frame):
    """Returns the row and the column of the photograph where the frame begins."""
    return 3 * frame + clip, 24 - 2 * frame


def entry(key, value):
    return field(1, field(1, key.encode()) + field(2, value))


def int64(value):
    return field(3, field(1, varint(value)))


def png(pixels):
    """Returns the PNG of rows of RGB bytes. Each row is stored as differences from the row above."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines, above = b"", bytes(3 * SIDE)
    for row in pixels:
        lines += b"\x02" + bytes((a - b) % 256 for a, b in zip(row, above))
        above = row
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


archive = zipfile.ZipFile(pathlib.Path(__file__).parent / "../images/photos_png.npz")
array = archive.read("out.image.pixels.npy")
(header,) = struct.unpack("<H", array[8:10])
_, height, width, _ = ast.literal_eval(array[10 : 10 + header].decode())["shape"]
photos = array[10 + header :]

with open(pathlib.Path(sys.argv[1]) / "clips.tfrecord", "wb") as out:
    for clip, length in enumerate(LENGTHS):
        frames, times = b"", b""
        for frame in range(length):
            top, left = place(clip, frame)
            begins = [((clip * height + top + y) * width + left) * 3 for y in range(SIDE)]
            frames += field(1, field(1, field(1, png([photos[begin : begin + 3 * SIDE] for begin in begins]))))
            times += field(1, int64(40000 * frame))
        context = entry("clip/label/index", int64(clip))
        lists = entry("image/encoded", frames) + entry("image/timestamp", times)
        payload = field(1, context) + field(2, lists)
        write_record(out, payload)
