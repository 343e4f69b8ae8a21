"""Writes captions.tfrecord, img_feats.npy and names.txt: five captions of each of 24 images, and the images' features.

    python3 make_captions.py FOLDER

The captions are random words and the features random numbers. A record has the caption's tokens and the image's name;
img_feats.npy has a row for each image, and names.txt its name, in another order than the captions'.
"""
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from records import field, varint, write_record

IMAGES, CAPTIONS, WIDTH, WORDS = 24, 5, 16, 400


def example(tokens, image):
    values = {"tokens": field(3, field(1, b"".join(map(varint, tokens)))), "image": field(1, field(1, image.encode()))}
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, value)) for name, value in values.items()))


draws = random.Random(27)
names = [f"{draws.randrange(10**9):09d}.jpg" for _ in range(IMAGES)]
folder = pathlib.Path(sys.argv[1])
with open(folder / "captions.tfrecord", "wb") as out:
    for image in names:
        for _ in range(CAPTIONS):
            payload = example([draws.randrange(1, WORDS) for _ in range(draws.randrange(4, 16))], image)
            write_record(out, payload)

draws.shuffle(names)
(folder / "names.txt").write_text("".join(name + "\n" for name in names))
header = f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({IMAGES}, {WIDTH}), }}".ljust(117) + "\n"
rows = struct.pack(f"<{IMAGES * WIDTH}e", *(draws.gauss(0, 1) for _ in range(IMAGES * WIDTH)))
(folder / "img_feats.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + rows)
