"""Trains with one loader, and prints what the loader cost as a line of JSON.

    python bench/trainers/works.py chess feedline
    python bench/trainers/works.py chess torch      # what users of torch write: a Dataset, and a DataLoader with workers
    python bench/trainers/works.py chess --same     # whether both loaders give the same samples
"""

import argparse
import json
import os
import sys

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.torch import Loader
from measure import Measure

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "examples", "trainers"))


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


def chess():
    from chess_torch import Network

    model = Network()
    return "train.textproto", 256, Positions, model, lambda b: (model(b["board"], b["flags"]) - b["score"]).square().mean()


def cifar():
    from cifar_torch import network

    model = network()
    return "cifar_train.textproto", 64, Pictures, model, lambda b: torch.nn.functional.cross_entropy(model(b["image"]), b["class"])


WORKS = {"chess": chess, "cifar": cifar}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("loader", choices=["feedline", "torch"], nargs="?", default="feedline")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--workers", type=int, default=2, help="processes of torch's DataLoader")
    parser.add_argument("--same", action="store_true")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pipeline, rows, samples, model, loss_of = WORKS[flags.work]()
    pipeline = os.path.join(ROOT, "examples", pipeline)
    if flags.same:
        return same(pipeline, samples)

    if flags.loader == "feedline":
        loader = Loader(pipeline, batch={"global_batch_size": rows}, epoch={"repeat": 1000})
    else:
        samples = samples(pipeline)
        loader = DataLoader(
            torch.utils.data.ConcatDataset([samples] * 1000),
            rows,
            shuffle=True,
            num_workers=flags.workers,
            persistent_workers=flags.workers > 0,
        )
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    steps, measure = iter(loader), None
    for step in range(flags.steps + 50):
        if step == 50:  # the first steps start the workers and fill the queues
            measure = Measure()
            steps = measure.over(steps)
        optimizer.zero_grad()
        loss_of(next(steps)).backward()
        optimizer.step()
    result = measure.result()
    print(json.dumps({"work": flags.work, "loader": flags.loader, **result}))


def same(pipeline, samples):
    """Prints how far apart the samples of both loaders are. Windows of pictures are at random places."""
    theirs = samples(pipeline)
    ours = next(iter(Loader(pipeline, batch={"global_batch_size": len(theirs)}, shuffle={"mode": "NONE"})))
    for name, wanted in next(iter(DataLoader(theirs, len(theirs)))).items():
        apart = (ours[name] - wanted).abs().max().item()
        print(f"{name}: {apart:.1e} apart")


if __name__ == "__main__":
    main()
