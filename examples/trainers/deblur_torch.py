"""Trains a small convolutional network to sharpen pictures, from patches of pairs of a blurred and a sharp picture.

    python examples/trainers/deblur_torch.py --data build/deblur
    python examples/trainers/deblur_torch.py --data build/deblur --loader torch    # Pillow in a DataLoader instead
    torchrun --nproc-per-node 2 examples/trainers/deblur_torch.py --data build/deblur --precision bfloat16

The first start makes the pictures. Prints by how many dB pictures that were not trained on differ from the sharp ones:
blurred, and as the network restores them.
"""

import argparse
import io
import json
import os

import numpy
import torch
import torch.distributed as dist
from PIL import Image, ImageDraw, ImageFilter
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler

import feedline
from feedline.torch import Loader

SIZE, PATCH = (640, 480), 64


def make_pairs(path, pictures, seed):
    """Writes pairs of pictures: coloured shapes, and the same out of focus. Both are JPEGs."""
    draws = numpy.random.default_rng(seed)

    def jpeg(picture):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=95)
        return file.getvalue()

    def pair():
        sharp = Image.new("RGB", SIZE, tuple(draws.integers(256, size=3)))
        draw = ImageDraw.Draw(sharp)
        for _ in range(150):
            corner, extent = draws.integers(-50, SIZE), draws.integers(3, 120, size=2)
            shape = draw.ellipse if draws.integers(2) else draw.rectangle
            shape([*corner, *(corner + extent)], fill=tuple(draws.integers(256, size=3)))
        return {"blurred": jpeg(sharp.filter(ImageFilter.GaussianBlur(1.5))), "sharp": jpeg(sharp)}

    feedline.write(path, (pair() for _ in range(pictures)))


def files_in(folder):
    """Returns the files of the pairs to train on, and of those that are held out. Makes them if they are not there."""
    train, held_out = (os.path.join(folder, name) for name in ("train.tfrecord", "held_out.tfrecord"))
    if not os.path.exists(held_out):
        os.makedirs(folder, exist_ok=True)
        make_pairs(train, 48, seed=1)
        make_pairs(held_out, 8, seed=2)
    return train, held_out


def pairs_of(file, rows, dtype="FLOAT32", **cuts):
    """Returns the pipeline of the pairs, cut as `cuts` says: as in examples/deblur.textproto, but without a cache."""
    pipeline = feedline.tfrecords(file).batch(rows)
    scaled = {"normalize": {"scale": 1 / 255}, "layout": "CHW"}
    for name in ("blurred", "sharp"):
        pipeline = pipeline.feature(name, bytes)
        pipeline = pipeline.output(name, dtype=dtype, feature=name, decode_image={}, **scaled, **cuts)
    return pipeline


def patches_of(file, rows, dtype="FLOAT32"):
    """Returns the pipeline of training: patches from random places, mirrored or not; eight of each picture in an epoch."""
    crop = {"mode": "RANDOM", "size": [PATCH, PATCH], "group": "pair"}
    pipeline = pairs_of(file, rows, dtype, crop=crop, flip={"group": "pair"})
    return pipeline.shuffle(mode="GLOBAL", seed=1).epoch(repeat=8)


class Pairs(Dataset):
    """The same as users of torch write it: the records lie in memory, and Pillow decodes pictures when they are asked
    for."""

    def __init__(self, file):
        self.examples = [feedline.parse_example(record) for record in feedline.records(file)]

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, number):
        left, top = (torch.randint(length - PATCH + 1, ()).item() for length in SIZE)
        mirrored = torch.randint(2, ()).item()

        def patch(name):
            picture = Image.open(io.BytesIO(self.examples[number][name][0])).crop((left, top, left + PATCH, top + PATCH))
            pixels = numpy.asarray(picture, numpy.float32).transpose(2, 0, 1) / 255
            return torch.from_numpy(pixels[:, :, ::-1].copy() if mirrored else pixels)

        return {"blurred": patch("blurred"), "sharp": patch("sharp")}


class Network(torch.nn.Module):
    """Adds to a picture what four convolutions of 5 x 5 pixels compute from it: at first nothing."""

    def __init__(self):
        super().__init__()
        channels = (3, 16, 16, 16, 3)
        layers = [torch.nn.Conv2d(i, o, 5, padding=2) for i, o in zip(channels, channels[1:])]
        self.layers = torch.nn.Sequential(*[one for layer in layers for one in (layer, torch.nn.LeakyReLU(0.1))][:-1])
        torch.nn.init.zeros_(layers[-1].weight)
        torch.nn.init.zeros_(layers[-1].bias)

    def forward(self, picture):
        return picture + self.layers(picture)


def step(model, optimizer, batch, precision):
    """Trains with a batch. The weights and the loss stay float32; what the layers compute is in the given precision."""
    blurred, sharp = (batch[name].to(next(model.parameters()).device) for name in ("blurred", "sharp"))
    with torch.autocast(blurred.device.type, precision, enabled=precision != torch.float32):
        restored = model(blurred)
    loss = (restored.float() - sharp.float()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def psnr(pictures, sharp):
    """Returns the mean over pictures of the ratio of the largest value, 1, to the mean error, in dB."""
    return (-10 * (pictures - sharp).square().mean((1, 2, 3)).log10()).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder for the pictures")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8, help="patches in a step, of all processes together")
    parser.add_argument("--loader", choices=["feedline", "torch"], default="feedline")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    flags = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    if "RANK" in os.environ:
        dist.init_process_group()
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
    if rank == 0:
        files_in(flags.data)
    if ranks > 1:
        dist.barrier()
    train, held_out = files_in(flags.data)

    if flags.loader == "feedline":
        loader = Loader(patches_of(train, flags.rows, flags.precision), device=device)
    else:
        pairs = ConcatDataset(8 * [Pairs(train)])
        sampler = DistributedSampler(pairs, ranks, rank)
        loader = DataLoader(pairs, flags.rows // ranks, sampler=sampler, num_workers=2, persistent_workers=True)
    model = Network().to(device, memory_format=torch.channels_last)  # in which mixed precision is faster
    trained = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.003, total_steps=flags.epochs * len(loader))
    for epoch in range(flags.epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            step(trained, optimizer, batch, getattr(torch, flags.precision))
            schedule.step()

    if rank == 0:
        batch = next(iter(Loader(pairs_of(held_out, 8, crop={"size": [256, 256]}), rank=0, world_size=1, device=device)))
        with torch.no_grad():
            restored = model(batch["blurred"])
        print(json.dumps({"blurred": psnr(batch["blurred"], batch["sharp"]), "restored": psnr(restored, batch["sharp"])}))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
