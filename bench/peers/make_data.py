"""make_data.py --data DIR [SET...]: writes missing data sets (6.3 GB in total, fixed seeds) with TensorFlow's own writer."""
import argparse
import multiprocessing
import os
import shutil

import numpy as np
from sets import CHECKED, LENGTH, PICTURES, RECORDS, SHARDS, check, one, shards


def bytes_feature(tf, value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def ints_feature(tf, value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def photo(rng):
    """Returns uint8 [375, 500, 3] with the spectrum of photographs: amplitudes fall with the frequency, and colours vary
    less than brightness."""
    height, width = PICTURES["jpeg"]
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = 1
    planes = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((3, height, width))) * frequency**-1.4, (height, width))
    grey, red, blue = planes / planes.std(axis=(1, 2), keepdims=True)
    pixels = 128 + 50 * grey[..., None] + 15 * np.stack([red, -(red + blue) / 2, blue], axis=-1)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def encoded(tf, name, pixels):
    if name == "jpeg":
        return tf.io.encode_jpeg(pixels, quality=90).numpy()
    (rows, columns), (height, width) = PICTURES["jpeg"], PICTURES["png"]
    top, left = (rows - height) // 2, (columns - width) // 2
    return tf.io.encode_png(pixels[top:top + height, left:left + width]).numpy()


def examples(tf, name, rng, count):
    """Yields `count` feature dicts."""
    if name == "chess":
        bits = rng.integers(0, 256, (count, 194), np.uint8)
        score = rng.integers(-10000, 10001, count)
        mate = rng.random(count) < 0.05  # bit 1546 = byte 193, mask 0x20
        bits[:, 193] = np.where(mate, bits[:, 193] | 0x20, bits[:, 193] & 0xDF)
        score = np.where(mate, score % 61 * rng.choice([-1, 1], count), score).tolist()
        for i in range(count):
            yield {"d": bytes_feature(tf, bits[i].tobytes()), "s": ints_feature(tf, [score[i]])}
    elif name in ("image-raw", "image-large"):
        label = rng.integers(0, 10, count).tolist()
        for i in range(count):
            yield {"image": bytes_feature(tf, rng.bytes(LENGTH[name])), "label": ints_feature(tf, [label[i]])}
    elif name in PICTURES:  # the features of imagenet2012 in TensorFlow Datasets
        label = rng.integers(0, 1000, count).tolist()
        for i in range(count):
            yield {"image": bytes_feature(tf, encoded(tf, name, photo(rng))), "label": ints_feature(tf, [label[i]]),
                   "file_name": bytes_feature(tf, f"n{label[i]:08d}_{i}.JPEG".encode())}
    elif name == "big":
        for _ in range(count):
            yield {"x": bytes_feature(tf, rng.bytes(LENGTH[name]))}
    elif name == "floats":
        x = rng.standard_normal((count, 64), np.float32)
        ids = rng.integers(0, 1_000_000, (count, 26))
        y = rng.integers(0, 2, count).tolist()
        for i in range(count):
            yield {"x": tf.train.Feature(float_list=tf.train.FloatList(value=x[i])),
                   "ids": ints_feature(tf, ids[i]), "y": ints_feature(tf, [y[i]])}


def write_shard(job):
    data, name, k = job
    import tensorflow as tf
    total = RECORDS[name]
    count = total * (k + 1) // SHARDS - total * k // SHARDS
    rng = np.random.default_rng([20261121, list(RECORDS).index(name), k])
    with tf.io.TFRecordWriter(shards(data, name)[k]) as out:
        for feature in examples(tf, name, rng, count):
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            out.write(example.SerializeToString(deterministic=True))


def copy_records(count, source, to):
    """Copies the first `count` records of a file."""
    with open(source, "rb") as records, open(to, "wb") as out:
        for _ in range(count):
            header = records.read(12)
            out.write(header + records.read(int.from_bytes(header[:8], "little") + 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("sets", nargs="*", default=list(RECORDS))
    args = parser.parse_args()
    data = args.data
    missing = [name for name in args.sets if not os.path.exists(check(data, name))]
    jobs = [(data, name, k) for name in missing for k in range(SHARDS)]
    for name in missing:
        os.makedirs(os.path.join(data, name), exist_ok=True)
    if jobs:
        print(f"writing {', '.join(missing)} into {data}", flush=True)
        with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
            pool.map(write_shard, jobs, chunksize=1)
    for name in missing:
        with open(one(data, name), "wb") as joined:
            for path in shards(data, name):
                with open(path, "rb") as shard:
                    shutil.copyfileobj(shard, joined, 1 << 22)
        # Comes last, because this file marks the set as complete.
        copy_records(CHECKED[name], one(data, name), check(data, name))


if __name__ == "__main__":
    main()
