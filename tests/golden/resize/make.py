#!/usr/bin/env python3
"""Writes resize.npz: a picture, and what Pillow and OpenCV make of it. Needs numpy, Pillow and opencv-python.

  make.py resize.npz

Arrays: `source` [47, 63, 3] uint8, and for each filter and size FILTER.HxW [H, W, 3] float32. Resizing is separable and
in floating point: Pillow works on one channel in mode F.
"""
import sys

import cv2
import numpy as np
from PIL import Image

SIZES = [(20, 31), (24, 32), (90, 70), (47, 20), (1, 1), (100, 5)]


def pillow(picture, size, filter):
    planes = [Image.fromarray(picture[..., c].astype(np.float32)).resize(size[::-1], filter) for c in range(3)]
    return np.stack([np.asarray(plane) for plane in planes], -1)


def opencv(picture, size, filter):
    return cv2.resize(picture.astype(np.float32), size[::-1], interpolation=filter)


def main():
    random = np.random.default_rng(26)
    y, x, c = np.mgrid[0:47, 0:63, 0:3]
    source = ((x * (3 + c) + y * (5 - c)) % 200 + random.integers(0, 56, (47, 63, 3))).astype(np.uint8)
    arrays = {"source": source}
    for size in SIZES:
        name = f"{size[0]}x{size[1]}"
        arrays["bilinear." + name] = opencv(source, size, cv2.INTER_LINEAR)
        arrays["bilinear_antialiased." + name] = pillow(source, size, Image.Resampling.BILINEAR)
        arrays["nearest." + name] = pillow(source, size, Image.Resampling.NEAREST)
        if size[0] <= 47 and size[1] <= 63:  # OpenCV enlarges bilinearly
            arrays["area." + name] = opencv(source, size, cv2.INTER_AREA)
    np.savez_compressed(sys.argv[1], **{name: np.asarray(a, np.uint8 if name == "source" else np.float32) for name, a in arrays.items()})
    print(cv2.__version__, Image.__version__, {n: a.shape for n, a in arrays.items()})


if __name__ == "__main__":
    main()
