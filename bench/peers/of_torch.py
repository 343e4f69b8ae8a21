"""How PyTorch's users load pictures, for the workers of torchvision and torchcodec, which decode. The records are parsed
and in memory before the clock starts, and nobody checks a CRC."""
import collections
import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torchvision.transforms.v2.functional as F
from sets import BATCH, MEAN, STD, TARGET, WINDOW
from tfrecord import reader
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms.v2 import RandomResizedCrop
from worker import in_batches, serve

cores = len(os.sched_getaffinity(0))
torch.set_num_threads(1)


def load(args, decode, encoded):
    """Returns the image that args.work asks for: uint8 [3, height, width], or float32 [3, 224, 224]."""
    image = decode(encoded)
    if args.work != "decode":
        if args.work == "augment":
            top, left, height, width = RandomResizedCrop.get_params(image, (0.08, 1), (3 / 4, 4 / 3))
        else:
            top, left, height, width = WINDOW["y"], WINDOW["x"], WINDOW["height"], WINDOW["width"]
        image = F.resized_crop(image, top, left, height, width, [TARGET, TARGET], antialias=True)
        if args.work == "augment" and torch.rand(1) < 0.5:
            image = F.horizontal_flip(image)
    if not isinstance(image, torch.Tensor):
        image = F.pil_to_tensor(image)
    return image if args.work == "decode" else F.normalize(F.to_dtype(image, torch.float32, scale=True), MEAN, STD)


class Pictures(Dataset):
    def __init__(self, args, decode, path):
        records = list(reader.tfrecord_loader(path, None, {"image": "byte", "label": "int"}))
        images = [bytes(record["image"]) for record in records]
        self.args, self.decode = args, decode
        self.images = images if args.variant == "pil" else [torch.frombuffer(bytearray(image), dtype=torch.uint8) for image in images]
        self.labels = [int(record["label"][0]) for record in records]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return load(self.args, self.decode, self.images[i]), self.labels[i]


def batches_of_threads(pictures, rows_of_batch):
    with ThreadPoolExecutor(cores) as pool:
        begun = collections.deque()
        for rows in in_batches(range(len(pictures)), rows_of_batch):
            begun.append([pool.submit(pictures.__getitem__, i) for i in rows])
            if len(begun) > 2:
                yield default_collate([future.result() for future in begun.popleft()])
        while begun:
            yield default_collate([future.result() for future in begun.popleft()])


def serve_pictures(args, decode):
    """Answers commands. decode(encoded) returns an image of torch, or with the variant pil one of Pillow; encoded is a
    tensor of bytes, with pil the bytes. With the variant threads, threads of this process load, two batches ahead;
    otherwise PyTorch's DataLoader with a process for each core."""
    pictures = {}

    def open_pass(files):
        if files[0] not in pictures:
            pictures[files[0]] = Pictures(args, decode, files[0])
        if args.variant == "threads":
            batches = batches_of_threads(pictures[files[0]], BATCH[args.set])
        else:
            batches = DataLoader(pictures[files[0]], batch_size=BATCH[args.set], num_workers=cores)
        for image, label in batches:
            if args.work == "decode":
                image = image.permute(0, 2, 3, 1)  # a view, in the order of the other loaders
            yield len(label), (image, label)

    serve(args, open_pass, of_one_file=True)
