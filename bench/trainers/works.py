"""What is trained, and the two loaders that feed it: feedline's, and the one that users of the framework write."""

import os

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.torch import Loader

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Positions(Dataset):
    """Chess positions for torch's DataLoader. The records are in memory; each is unpacked when it is asked for."""

    def __init__(self, files):
        records = [feedline.parse_example(record) for file in files for record in feedline.records(file)]
        self.bits = numpy.frombuffer(b"".join(record["d"][0] for record in records), numpy.uint8).reshape(-1, 194)
        self.scores = numpy.array([record["s"][0] for record in records])
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


if __name__ == "__main__":
    # Both loaders have the same samples.
    pipeline = os.path.join(ROOT, "examples/train.textproto")
    loader = Loader(pipeline, shuffle={"buffer_size": 1}, batch={"global_batch_size": 3000})
    ours = next(iter(loader))
    theirs = next(iter(DataLoader(Positions(loader.files), 3000)))
    for name in theirs:
        print(name, (ours[name] - theirs[name]).abs().max())
