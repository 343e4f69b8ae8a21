"""The tfrecord package: its loader reads one file, and numpy makes the batches. Variant: loader. It checks no CRC."""
import numpy as np
from sets import BATCH, BYTES_KEY, INT_KEY, full
from tfrecord import reader
from worker import arguments, in_batches, serve

args = arguments(["loader"])
name = args.set
description = {"x": "float", "ids": "int"} if name == "floats" else {BYTES_KEY[name]: "byte"}
if name in INT_KEY:
    description[INT_KEY[name]] = "int"


def collate(examples):
    columns = {}
    for key, kind in description.items():
        values = [e[key] for e in examples]
        if kind == "byte":
            columns[key] = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)
        else:
            columns[key] = np.array(values)
        if key == INT_KEY.get(name):
            columns[key] = columns[key].reshape(-1)
    return full(name, columns) if args.work == "full" else tuple(columns.values())


def open_pass(files):
    if args.work == "read":
        # These are views of one buffer, which the next record overwrites. Work that only reads need not copy them.
        for batch in in_batches(reader.tfrecord_iterator(files[0]), BATCH[name]):
            yield len(batch), (batch,)
    else:
        for batch in in_batches(reader.tfrecord_loader(files[0], None, description), BATCH[name]):
            yield len(batch), collate(batch)


serve(args, open_pass, of_one_file=True)
