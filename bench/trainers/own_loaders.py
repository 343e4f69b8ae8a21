"""What users of a framework write to load the works: a Dataset for torch's DataLoader, and a tf.data pipeline. The records
lie in memory; each sample is computed when it is asked for."""

import os
import subprocess
import sys
import tempfile

import numpy
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler

import feedline

CPUS = len(os.sched_getaffinity(0))


def data_loader(samples, rows, workers=CPUS, rank=0, ranks=1, pinned=False):
    """Returns a DataLoader over the samples, again and again, in random order: this rank's part of batches of `rows`."""
    samples = ConcatDataset(1000 * [samples])
    return DataLoader(
        samples,
        rows // ranks,
        shuffle=ranks == 1,
        sampler=DistributedSampler(samples, ranks, rank) if ranks > 1 else None,
        num_workers=workers,
        persistent_workers=True,
        pin_memory=pinned,
    )


def on_gpu(loader, device):
    """Yields the batches of a loader that has them in pinned memory."""
    for batch in loader:
        yield {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def examples_of(pipeline):
    """Returns the Examples of a pipeline's files, in memory."""
    files = feedline.Loader(pipeline).files
    return [feedline.parse_example(record) for file in files for record in feedline.records(file)]


class Positions(Dataset):
    """Chess positions: each is unpacked when it is asked for."""

    def __init__(self, pipeline):
        examples = examples_of(pipeline)
        self.bits = numpy.frombuffer(b"".join(example["d"][0] for example in examples), numpy.uint8).reshape(-1, 194)
        self.scores = numpy.array([example["s"][0] for example in examples])
        self.order = [first + step for first in range(4) for step in range(0, 24, 4)]
        self.signs = numpy.array(2 * ([1] * 6 + [-1] * 6), numpy.float32)

    def __len__(self):
        return len(self.bits)

    def __getitem__(self, number):
        bits = numpy.unpackbits(self.bits[number])
        board = bits[:1536].reshape(8, 8, 24)[:, :, self.order] * self.signs
        s, mate = self.scores[number], bits[1546]
        score = numpy.sign(s) * (0.85 + 0.15 / 29 * max(0, 30 - abs(s))) if mate else 0.85 * numpy.tanh(s / 410)
        return {"board": board, "flags": bits[1536:1546].astype(numpy.float32), "score": numpy.float32(score)}


class Pictures(Dataset):
    """Pictures in CIFAR-10's layout: padded, cropped at random, mirrored or not, and normalised, each when asked for."""

    MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32).reshape(3, 1, 1)
    STD = numpy.array([0.229, 0.224, 0.225], numpy.float32).reshape(3, 1, 1)

    def __init__(self, pipeline):
        examples = examples_of(pipeline)
        self.pixels = numpy.frombuffer(b"".join(one["image"][0] for one in examples), numpy.uint8).reshape(-1, 3, 32, 32)
        self.labels = [one["label"][0] for one in examples]

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, number):
        image = self.pixels[number]
        top, left, mirrored = *torch.randint(9, (2,)).tolist(), torch.randint(2, (1,)).item()
        image = numpy.pad(image, ((0, 0), (4, 4), (4, 4)))[:, top : top + 32, left : left + 32]
        image = image[:, :, ::-1] if mirrored else image
        target = numpy.full(10, 0.01, numpy.float32)
        target[self.labels[number]] = 0.91
        return {"image": (image.astype(numpy.float32) / 255 - self.MEAN) / self.STD, "class": target}


def pictures_of_dali(pipeline, rows):
    """Returns DALI's batches of the same pictures on the current GPU, where it crops, mirrors and normalises them; on the
    host if torch sees no GPU."""
    import nvidia.dali
    import nvidia.dali.fn as fn
    import nvidia.dali.tfrecord as tfrecord
    import nvidia.dali.types as types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    gpu = torch.cuda.is_available()

    @nvidia.dali.pipeline_def(batch_size=rows, num_threads=CPUS, device_id=torch.cuda.current_device() if gpu else None)
    def pictures(files, indexes):
        features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, ""), "label": tfrecord.FixedLenFeature([], tfrecord.int64, 0)}
        got = fn.readers.tfrecord(path=files, index_path=indexes, features=features, random_shuffle=True)
        image, label = fn.reshape(got["image"], shape=[3, 32, 32], layout="CHW"), got["label"]
        if gpu:
            image, label = image.gpu(), label.gpu()
        image = fn.slice(image, [-4, -4], [40, 40], axes=[1, 2], out_of_bounds_policy="pad")
        image = fn.crop_mirror_normalize(
            image,
            crop=[32, 32],
            crop_pos_x=fn.random.uniform(range=[0, 1]),
            crop_pos_y=fn.random.uniform(range=[0, 1]),
            mirror=fn.random.coin_flip(),
            mean=list(255 * Pictures.MEAN.ravel()),
            std=list(255 * Pictures.STD.ravel()),
            dtype=types.FLOAT,
            output_layout="CHW",
        )
        return image, fn.one_hot(label, num_classes=10, on_value=0.91, off_value=0.01)

    with tempfile.TemporaryDirectory() as folder:
        files = feedline.Loader(pipeline).files
        indexes = [os.path.join(folder, str(number)) for number in range(len(files))]
        for file, index in zip(files, indexes):
            subprocess.run([os.path.join(os.path.dirname(sys.executable), "tfrecord2idx"), file, index], check=True, stdout=subprocess.DEVNULL)
        iterator = DALIGenericIterator(pictures(files, indexes), ["image", "class"])
        while True:  # it has no end, as no size is given
            yield next(iterator)[0]


def positions_of_tf_data(pipeline, rows, shuffle=1000):
    """Returns the chess positions as a tf.data.Dataset of batches, again and again."""
    import tensorflow as tf

    features = {"d": tf.io.FixedLenFeature([], tf.string), "s": tf.io.FixedLenFeature([], tf.int64)}
    # One row of eight floats for each value of a byte. A gather is the fastest way to unpack bits with TensorFlow.
    table = tf.constant(numpy.unpackbits(numpy.arange(256, dtype=numpy.uint8)[:, None], axis=1).astype(numpy.float32))
    signs = tf.constant(2 * ([1] * 6 + [-1] * 6), tf.float32)

    def parse(records):
        columns = tf.io.parse_example(records, features)
        packed = tf.ensure_shape(tf.io.decode_raw(columns["d"], tf.uint8), [None, 194])
        bits = tf.reshape(tf.gather(table, tf.cast(packed, tf.int32)), [-1, 1552])
        # Channels 0, 4, 8, ..., 1, 5, ...: a transpose, which is faster than a gather of single floats.
        board = tf.transpose(tf.reshape(bits[:, :1536], [-1, 64, 6, 4]), [0, 1, 3, 2])
        s, mate = tf.cast(columns["s"], tf.float32), bits[:, 1546]
        won = tf.sign(s) * (0.85 + 0.15 / 29 * tf.maximum(0.0, 30 - tf.abs(s)))
        score = (1 - mate) * 0.85 * tf.tanh(s / 410) + mate * won
        return {"board": tf.reshape(board, [-1, 8, 8, 24]) * signs, "flags": bits[:, 1536:1546], "score": score}

    records = tf.data.TFRecordDataset(feedline.Loader(pipeline).files).cache().shuffle(shuffle).repeat()
    return records.batch(rows).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
