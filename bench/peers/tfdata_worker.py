"""tf.data.

Variants: one (one file, vectorised), fast (16 shards, interleave with AUTOTUNE, any order), inner (each shard is
batched inside the interleave, which then passes batches on), shuffle (one file with a buffer of 10,000). Pictures are
decoded one by one in parallel: one (one file; the window is cut out of the whole picture), crop (one file;
decode_and_crop_jpeg), fast (16 shards, as above)."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import tensorflow as tf
from sets import BATCH, BYTES_KEY, INT_KEY, LENGTH, MEAN, PICTURES, SIDE, SIGN, STD, TARGET, WINDOW, A, B, K
from worker import arguments, serve

AUTO = tf.data.AUTOTUNE
args = arguments(["one", "fast", "inner", "shuffle", "crop"])
name, batch = args.set, BATCH[args.set]

SPEC = {}
if name in BYTES_KEY:
    SPEC[BYTES_KEY[name]] = tf.io.FixedLenFeature([], tf.string)
else:
    SPEC["x"] = tf.io.FixedLenFeature([64], tf.float32)
    SPEC["ids"] = tf.io.FixedLenFeature([26], tf.int64)
if name in INT_KEY:
    SPEC[INT_KEY[name]] = tf.io.FixedLenFeature([], tf.int64)

# One row of eight floats for each byte value. A gather is the fastest way to unpack bits with plain TF ops.
TABLE = tf.constant(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32))


def parse(records):
    columns = tf.io.parse_example(records, SPEC)
    key = BYTES_KEY.get(name)
    if key:
        columns[key] = tf.ensure_shape(tf.io.decode_raw(columns[key], tf.uint8), [None, LENGTH[name]])
    return tuple(columns[k] for k in SPEC)


def full(records):
    columns = parse(records)
    if name == "chess":
        packed, score = columns
        bits = tf.reshape(tf.gather(TABLE, tf.cast(packed, tf.int32)), [-1, 1552])
        # The channel order is the transpose of [6, 4]. A transpose is faster than a gather of 24 single floats.
        board = tf.transpose(tf.reshape(bits[:, :1536], [-1, 64, 6, 4]), [0, 1, 3, 2])
        board = tf.reshape(board, [-1, 8, 8, 24]) * SIGN
        mate, s = bits[:, 1546], tf.cast(score, tf.float32)
        won = tf.sign(s) * (A + (1 - A) / (B - 1) * tf.maximum(0.0, B - tf.abs(s)))
        return board, bits[:, 1536:1546], (1 - mate) * A * tf.tanh(s / K) + mate * won
    if name == "big":
        return (tf.cast(columns[0], tf.float32),)
    if name == "floats":
        return columns
    image = tf.reshape(columns[0], [-1, SIDE[name], SIDE[name], 3])
    image = tf.cast(tf.transpose(image, [0, 3, 1, 2]), tf.float32)
    return image * (1 / (255 * STD))[:, None, None] + (-MEAN / STD)[:, None, None], columns[1]


def decode(encoded, window=None):
    """Returns uint8 [height, width, 3] with the pixels of the accurate transform, which feedline's default is."""
    if name == "png":
        return tf.io.decode_png(encoded, channels=3)
    if window is not None and args.variant == "crop":
        return tf.io.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_ACCURATE")
    image = tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE")
    if window is not None:
        y, x, height, width = tf.unstack(window)
        image = image[y:y + height, x:x + width]
    return image


def random_window(encoded):
    """Returns a window as RandomResizedCrop takes it."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded), tf.zeros([1, 0, 4]), min_object_covered=0.0, aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1), max_attempts=10, use_image_if_no_bounding_boxes=True)
    return tf.concat([begin[:2], size[:2]], 0)


def picture(record):
    """Returns the image and the label of a record."""
    columns = tf.io.parse_single_example(record, SPEC)
    encoded = columns["image"]
    if args.work == "decode":
        return decode(encoded), columns["label"]
    window = tf.constant([WINDOW[k] for k in ("y", "x", "height", "width")])
    image = decode(encoded, random_window(encoded) if args.work == "augment" else window)
    image = tf.image.resize(image, [TARGET, TARGET], antialias=True)
    if args.work == "augment":
        image = tf.image.random_flip_left_right(image)
    image = image * (1 / (255 * STD)) + (-MEAN / STD)
    return tf.transpose(image, [2, 0, 1]), columns["label"]


def pipeline(files):
    if args.variant in ("one", "shuffle", "crop"):
        ds = tf.data.TFRecordDataset(files)
    elif args.variant == "inner":
        ds = tf.data.Dataset.from_tensor_slices(files)
        ds = ds.interleave(lambda f: tf.data.TFRecordDataset(f, buffer_size=1 << 20).batch(batch), num_parallel_calls=AUTO,
                           deterministic=False)
    else:
        ds = tf.data.Dataset.from_tensor_slices(files)
        ds = ds.interleave(tf.data.TFRecordDataset, num_parallel_calls=AUTO, deterministic=False)
    if args.variant == "shuffle":
        ds = ds.shuffle(10_000, seed=1)
    if name in PICTURES:
        return ds.map(picture, num_parallel_calls=AUTO, deterministic=args.variant != "fast").batch(batch).prefetch(AUTO)
    if args.variant != "inner":
        ds = ds.batch(batch)
    if args.work != "read":
        ds = ds.map(full if args.work == "full" else parse, num_parallel_calls=AUTO,
                    deterministic=args.variant in ("one", "shuffle"))
    return ds.prefetch(AUTO)


datasets = {}


def open_pass(files):
    key = tuple(files)
    if key not in datasets:
        datasets[key] = pipeline(files)
    for out in datasets[key]:
        tensors = out if isinstance(out, tuple) else (out,)
        yield int(tensors[0].shape[0]), tensors


serve(args, open_pass, of_one_file=args.variant in ("one", "shuffle", "crop"))
