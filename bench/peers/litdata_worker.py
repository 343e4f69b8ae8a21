"""litData: chunks of 64 MB, which its optimize() writes, and its StreamingDataset. It checks nothing.

Variants: t0 (its StreamingDataLoader in this process), workers (with a process for each CPU). As its documents advise,
samples are bytes, flat arrays and numbers, whose formats have no header, chunks of large samples have 256 MB, and
collate_fn makes the tensors of a batch, here with numpy."""
import os

import numpy as np
from litdata import StreamingDataLoader, StreamingDataset, optimize
from sets import BATCH, BYTES_KEY, LENGTH, full
from worker import arguments, columns_of, converted, serve

args = arguments(["t0", "workers"])
name = args.set


def samples(path):
    for columns in columns_of(path, name, BATCH[name]):
        for values in zip(*columns.values()):
            yield {key: value.tobytes() if key == BYTES_KEY.get(name) else value if value.ndim else int(value)
                   for key, value in zip(columns, values)}


def write(path, to):
    optimize(fn=samples, inputs=[path], output_dir=to, chunk_bytes="256MB" if name == "big" else "64MB", num_workers=1, verbose=False)


def collate(batch):
    if args.work == "read":
        return ([sample[BYTES_KEY[name]] for sample in batch],)
    columns = {key: [sample[key] for sample in batch] for key in batch[0]}
    for key, values in columns.items():
        if key == BYTES_KEY.get(name):
            columns[key] = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), LENGTH[name])
        else:
            columns[key] = np.array(values)
    return full(name, columns) if args.work == "full" else tuple(columns.values())


def open_pass(files):
    dataset = StreamingDataset(converted(os.path.abspath(files[0]), "litdata", write))
    workers = len(os.sched_getaffinity(0)) if args.variant == "workers" else 0
    for out in StreamingDataLoader(dataset, batch_size=BATCH[name], num_workers=workers, collate_fn=collate):
        yield len(out[0]), out


if __name__ == "__main__":
    serve(args, open_pass, of_one_file=True)
