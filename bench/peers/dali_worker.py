"""NVIDIA DALI on the CPU. It checks no CRC. Its own tfrecord2idx makes its index files first.

Variants: shards (16 files), one (one file), shuffle (one file, random_shuffle with initial_fill 10,000). Pictures are
decoded with fancy upsampling, as every other loader does it."""
import os
import subprocess
import sys

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dm
import nvidia.dali.tfrecord as tfrec
import nvidia.dali.types as types
from nvidia.dali import pipeline_def
from sets import (
    BATCH,
    BYTES_KEY,
    CHECKED,
    INT_KEY,
    MEAN,
    PICTURES,
    RECORDS,
    SIDE,
    SIGN,
    STD,
    TARGET,
    WINDOW,
    A,
    B,
    K,
    check,
)
from worker import arguments, serve

args = arguments(["shards", "one", "shuffle"])
name, batch = args.set, BATCH[args.set]

features = {}
if name in BYTES_KEY:
    features[BYTES_KEY[name]] = tfrec.FixedLenFeature((), tfrec.string, "")
else:
    features["x"] = tfrec.FixedLenFeature([64], tfrec.float32, 0.0)
    features["ids"] = tfrec.FixedLenFeature([26], tfrec.int64, 0)
if name in INT_KEY:
    features[INT_KEY[name]] = tfrec.FixedLenFeature([1], tfrec.int64, 0)


def index(path):
    out = path + ".idx"
    if not os.path.exists(out):
        script = os.path.join(os.path.dirname(sys.executable), "tfrecord2idx")
        subprocess.run([sys.executable, script, path, out], check=True, stdout=subprocess.DEVNULL)
    return out


def to_bits(packed, count):
    mask = types.Constant(np.array([[128, 64, 32, 16, 8, 4, 2, 1]], np.uint8))
    return fn.cast(fn.reshape(packed, shape=[count, 1]) & mask, dtype=types.BOOL)


def chess(packed, score):
    bits = to_bits(fn.slice(packed, 0, 192, axes=[0]), 192)
    board = fn.transpose(fn.reshape(fn.cast(bits, dtype=types.FLOAT), shape=[64, 6, 4]), perm=[0, 2, 1])
    board = fn.reshape(board, shape=[64, 24]) * types.Constant(SIGN[None, :])
    tail = fn.reshape(fn.cast(to_bits(fn.slice(packed, 192, 2, axes=[0]), 2), dtype=types.FLOAT), shape=[16])
    mate = fn.slice(tail, 10, 1, axes=[0])
    s = fn.cast(score, dtype=types.FLOAT)
    sign = fn.cast(s > 0, dtype=types.FLOAT) - fn.cast(s < 0, dtype=types.FLOAT)
    won = sign * (float(A) + float((1 - A) / (B - 1)) * dm.max(0.0, float(B) - dm.abs(s)))
    target = (1.0 - mate) * float(A) * dm.tanh(s / float(K)) + mate * won
    return fn.reshape(board, shape=[8, 8, 24]), fn.slice(tail, 0, 10, axes=[0]), target


def normalised(image, mirror=0):
    return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mean=list(255 * MEAN), std=list(255 * STD),
                                    mirror=mirror)


def picture(encoded):
    """Returns the image that args.work asks for."""
    if args.work == "decode":
        return fn.decoders.image(encoded, jpeg_fancy_upsampling=True)
    if args.work == "augment":
        image = fn.decoders.image_random_crop(encoded, jpeg_fancy_upsampling=True, random_area=[0.08, 1],
                                              random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
    else:
        image = fn.decoders.image_slice(encoded, jpeg_fancy_upsampling=True, axis_names="HW", start=[WINDOW["y"], WINDOW["x"]],
                                        shape=[WINDOW["height"], WINDOW["width"]])
    image = fn.resize(image, size=[TARGET, TARGET], interp_type=types.INTERP_LINEAR, antialias=True)
    return normalised(image, fn.random.coin_flip() if args.work == "augment" else 0)


@pipeline_def(batch_size=batch, num_threads=len(os.sched_getaffinity(0)), device_id=None, prefetch_queue_depth=2)
def pipeline(files):
    shuffle = args.variant == "shuffle"
    got = fn.readers.tfrecord(path=files, index_path=[index(f) for f in files], features=features, name="reader",
                              random_shuffle=shuffle, initial_fill=10_000 if shuffle else 1024, seed=1)
    if args.work == "parse":
        return tuple(got[k] for k in features)
    if name == "chess":
        return chess(got["d"], got["s"])
    if name == "big":
        return fn.cast(got["x"], dtype=types.FLOAT)
    if name == "floats":
        return got["x"], got["ids"], got["y"]
    if name in PICTURES:
        return picture(got["image"]), got["label"]
    image = fn.reshape(got["image"], shape=[SIDE[name], SIDE[name], 3], layout="HWC")
    return normalised(image), got["label"]


def open_pass(files):
    p = pipeline(files)
    p.build()
    left = (CHECKED if files == [check(args.data, name)] else RECORDS)[name]
    while left > 0:  # DALI pads the last batch with the first records, which are not counted
        out = p.run()
        n = min(batch, left)
        left -= n
        yield n, out


serve(args, open_pass, of_one_file=args.variant != "shards", as_array=lambda tensors: tensors.as_array())
