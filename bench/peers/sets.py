"""The data sets of the comparison, and numpy code that makes the expected tensors from their records.

If FEEDLINE_PEERS_TRIAL is set, each set has few records: enough to try every worker in seconds, none to measure."""
import os

import numpy as np

SHARDS = 16
RECORDS = {"chess": 2_000_000, "image-raw": 100_000, "image-large": 4_000, "big": 300, "floats": 500_000,
           "jpeg": 4_000, "png": 2_000}
BATCH = {"chess": 512, "image-raw": 512, "image-large": 64, "big": 1, "floats": 512, "jpeg": 64, "png": 64}
CHECKED = {name: 4 * batch + 1 for name, batch in BATCH.items()}  # records that are compared value by value
if "FEEDLINE_PEERS_TRIAL" in os.environ:
    RECORDS = {name: max(CHECKED[name], records // 100) for name, records in RECORDS.items()}
STEP_S = 0.005  # the step of the trainer in the measurement of next()
BYTES_KEY = {"chess": "d", "image-raw": "image", "image-large": "image", "big": "x", "jpeg": "image",
             "png": "image"}
LENGTH = {"chess": 194, "image-raw": 3072, "image-large": 196608, "big": 2_830_000}
INT_KEY = {"chess": "s", "image-raw": "label", "image-large": "label", "floats": "y", "jpeg": "label",
           "png": "label"}
SIDE = {"image-raw": 32, "image-large": 256}

# Chess: the channels in the order that the network wants. Those of black (odd in the file) are -1.
CHANNELS = [0, 4, 8, 12, 16, 20, 1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23]
SIGN = np.array([-1.0 if c % 2 else 1.0 for c in CHANNELS], np.float32)
A, K, B = np.float32(0.95), np.float32(600.0), np.float32(60.0)

MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32)
STD = np.array([0.2470, 0.2435, 0.2616], np.float32)

PICTURES = {"jpeg": (375, 500), "png": (256, 256)}  # height and width of the encoded pictures
WINDOW = {"y": 38, "x": 100, "height": 300, "width": 300}  # the middle of a JPEG, which is resized
TARGET = 224  # to so many rows and columns


def shards(data, name):
    return [os.path.join(data, name, f"shard-{k:05d}-of-{SHARDS:05d}.tfrecord") for k in range(SHARDS)]


def one(data, name):
    """Returns the path of the file with the records of all shards."""
    return os.path.join(data, name, "one.tfrecord")


def check(data, name):
    """Returns the path of the file with the first CHECKED[name] records."""
    return os.path.join(data, name, "check.tfrecord")


def chess_full(packed, score):
    """Returns board, flags and target from uint8 [N, 194] and int [N]."""
    bits = np.unpackbits(packed, axis=1)
    board = bits[:, :1536].reshape(-1, 8, 8, 24).take(CHANNELS, axis=-1) * SIGN  # take() is 3 times as fast as an index
    flags = bits[:, 1536:1546].astype(np.float32)
    mate = bits[:, 1546].astype(np.float32)
    s = np.asarray(score, np.float32)
    won = np.sign(s) * (A + (1 - A) / (B - 1) * np.maximum(np.float32(0), B - np.abs(s)))
    return board, flags, (1 - mate) * A * np.tanh(s / K) + mate * won


def full(name, columns):
    """Returns the tensors that a trainer is given, made from dense columns."""
    if name == "chess":
        return chess_full(columns["d"], columns["s"])
    if name == "big":
        return (columns["x"].astype(np.float32),)
    if name == "floats":
        return columns["x"], columns["ids"], columns["y"]
    # Bytes are moved before they become floats, which is 4 times as fast as the other way round.
    image = np.ascontiguousarray(columns["image"].reshape(-1, SIDE[name], SIDE[name], 3).transpose(0, 3, 1, 2))
    image = image * (1 / (255 * STD))[:, None, None]
    image -= (MEAN / STD)[:, None, None]
    return image, columns["label"]


def stack(name, examples):
    """Returns the dense columns of parsed tf.train.Examples, by name."""
    features = [example.features.feature for example in examples]
    columns = {}
    if name in BYTES_KEY:
        key = BYTES_KEY[name]
        joined = b"".join([f[key].bytes_list.value[0] for f in features])
        columns[key] = np.frombuffer(joined, np.uint8).reshape(len(features), LENGTH[name])
    else:
        columns["x"] = np.array([f["x"].float_list.value for f in features], np.float32)
        columns["ids"] = np.array([f["ids"].int64_list.value for f in features], np.int64)
    if name in INT_KEY:
        key = INT_KEY[name]
        columns[key] = np.array([f[key].int64_list.value[0] for f in features], np.int64)
    return columns
