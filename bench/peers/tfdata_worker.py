"""tf.data.

Variants: one (one file, vectorised), fast (16 shards, interleave with AUTOTUNE, any order), inner (each shard is
batched inside the interleave, which then passes batches on), shuffle (one file with a buffer of 10,000)."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import tensorflow as tf

from sets import A, B, BATCH, BYTES_KEY, INT_KEY, K, LENGTH, MEAN, SIDE, SIGN, STD
from worker import arguments, serve

AUTO = tf.data.AUTOTUNE
args = arguments(["one", "fast", "inner", "shuffle"])
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


def pipeline(files):
    if args.variant in ("one", "shuffle"):
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


serve(args, open_pass, of_one_file=args.variant in ("one", "shuffle"))
