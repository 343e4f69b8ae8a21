#!/usr/bin/env python3
"""What a step costs in Python: the loop, the batch of three outputs, and each tensor for numpy, torch and jax; and how
soon Ctrl-C ends a wait.

  python_step.py [--rounds N] [--peers] [--loaders]

The pipeline is small (64 chess boards a step), and each round first lets the feed run ahead while the loop sleeps, so
that next() finds its batch ready and what is measured is Python's part. Prints medians over the rounds, in microseconds.
--loaders adds the loaders of the frameworks that are installed, and TensorFlow's dataset of one.
--peers adds the iterators of tf.data, PyTorch's DataLoader and DALI over three arrays in memory, which decode nothing.
"""
import argparse
import importlib
import os
import signal
import statistics
import threading
import time

import numpy as np

import feedline

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def us(seconds, count):
    return 1e6 * seconds / count


def loader_of(kind=feedline.Loader):
    return kind(
        feedline.tfrecords(os.path.join(ROOT, "tests/golden/chess/main-*.tfrecord"))
        .feature("d", bytes, length=194)
        .feature("s", int)
        .output("board", dtype="uint8", feature="d", unpack_bits={"shape": [8, 8, 24]})
        .output("flags", feature="d", unpack_bits={"bit_offset": 1536, "shape": [10]})
        .output("score", dtype="float32", feature="s")
        .epoch(repeat=-1)
        .batch(4)
        .parallelism(host_prefetch=256)
    )


def rounds_of(iterator, count, rounds, use):
    """Returns the time of a step in each round; the feed runs ahead between rounds."""
    times = []
    for _ in range(rounds):
        time.sleep(0.05)
        start = time.perf_counter()
        for _ in range(count):
            use(next(iterator))
        times.append(us(time.perf_counter() - start, count))
    return statistics.median(times)


def measure_exports(batch, rounds):
    takers = {"numpy.from_dlpack": np.from_dlpack}
    array = np.array(batch["board"])
    try:
        import torch

        takers["torch.from_dlpack"] = torch.from_dlpack
        takers["torch.from_dlpack of numpy's array"] = lambda _: torch.from_dlpack(array)
    except ImportError:
        pass
    try:
        import jax

        takers["jax.numpy.from_dlpack"] = jax.numpy.from_dlpack
    except ImportError:
        pass
    for name, take in takers.items():
        tensor, times = batch["board"], []
        take(tensor)
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(1000):
                take(tensor)
            times.append(us(time.perf_counter() - start, 1000))
        print(f"{name:34} {statistics.median(times):8.2f} us a tensor")


def measure_interrupts(rounds):
    """Measures from a signal to the KeyboardInterrupt that ends a wait: of a replica that waits for another one."""
    loader = feedline.Loader(loader_of().pipeline, devices="host:2")
    other = threading.Thread(target=loader._feeder.next, args=(1,))  # a thread that waited for itself would be told so
    other.start()
    other.join()
    times, sent = [], []

    def interrupt():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    def wait():
        while True:
            loader._feeder.next(0)

    for round in range(rounds):
        timer = threading.Timer(0.3 + 0.01 * (round % 10), interrupt)  # at another moment of each wait
        timer.start()
        try:
            wait()
        except KeyboardInterrupt:
            times.append(1e3 * (time.perf_counter() - sent[-1]))
        timer.join()
    print(f"{'Ctrl-C to KeyboardInterrupt':34} {statistics.median(times):8.2f} ms, at most {max(times):.2f}")


def loaders(rounds):
    for name in "numpy", "torch", "jax", "tf":
        try:
            loader = loader_of(importlib.import_module("feedline." + name).Loader)
        except ImportError:
            continue
        print(f"{f'feedline.{name}.Loader':34} {rounds_of(iter(loader), 200, rounds, lambda b: None):8.2f} us a step")
        if name == "tf":
            dataset = iter(loader.dataset())
            print(f"{'its dataset()':34} {rounds_of(dataset, 200, rounds, lambda b: None):8.2f} us a step")


def peers(rounds):
    arrays = [np.zeros((4096, *shape), dtype) for shape, dtype in [((8, 8, 24), "u1"), ((10,), "u1"), ((), "f4")]]
    try:
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices(tuple(arrays)).repeat().batch(4).prefetch(256)
        print(f"{'tf.data, arrays in memory':34} {rounds_of(iter(data), 200, rounds, lambda b: None):8.2f} us a step")
    except ImportError:
        pass
    try:
        import torch

        data = torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays))
        loader = iter(torch.utils.data.DataLoader(data, batch_size=4))
        print(f"{'DataLoader, arrays in memory':34} {rounds_of(loader, 200, min(rounds, 5), lambda b: None):8.2f} us a step")
    except ImportError:
        pass


    try:
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        @pipeline_def(batch_size=4, num_threads=2, device_id=None, prefetch_queue_depth=8)
        def constants():
            return tuple(fn.constant(idata=0, shape=[*a.shape[1:]] or [1], dtype=_dali_type(a.dtype)) for a in arrays)

        iterator = DALIGenericIterator([constants()], ["board", "flags", "score"])
        print(f"{'DALI to torch, constants':34} {rounds_of(iterator, 200, min(rounds, 5), lambda b: None):8.2f} us a step")
    except ImportError:
        pass


def _dali_type(dtype):
    from nvidia.dali import types

    return {"uint8": types.UINT8, "float32": types.FLOAT}[str(dtype)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--loaders", action="store_true")
    args = parser.parse_args()
    loader = loader_of()
    iterator = iter(loader)
    first = next(iterator)
    del first
    print(f"{'a step of three outputs':34} {rounds_of(iterator, 200, args.rounds, lambda b: None):8.2f} us a step")
    take = lambda batch: [np.from_dlpack(tensor) for tensor in batch.values()]
    print(f"{'the same, and numpy takes all three':34} {rounds_of(iterator, 200, args.rounds, take):8.2f} us a step")
    batch = next(iterator)
    measure_exports(batch, args.rounds)
    measure_interrupts(args.rounds)
    if args.loaders:
        loaders(args.rounds)
    if args.peers:
        peers(args.rounds)


if __name__ == "__main__":
    main()
