"""Shared by the workers: each process holds one loader and measures it on command, so that loaders can alternate.

A worker is started as `X_worker.py --data DIR --set NAME --work read|parse|full|decode|resize|augment --variant V` and reads commands:

  measure SECONDS   makes one pass over the data, which ends early after SECONDS -> {"rec_s", "cpu_s_per_mrec", ...}
  pace STEPS        takes batches as a trainer that sleeps 5 ms after each: the times that next() took, and the CPU
                    time -> {"next_us": [...], "cpu_s_per_mrec"}
  check FILE        delivers the checked records and saves their tensors as .npz -> {}
  sums -            makes one whole pass -> {"records", "sums": [the sum of the values of each tensor; of records as they
                    are, of their bytes]}

The worker answers each command with one line of JSON. The clock starts when the first batch has come, which does not
count.
"""
import argparse
import collections
import glob
import itertools
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from sets import BATCH, CHECKED, RECORDS, STEP_S, check, one, shards, stack


def arguments(variants):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--set", required=True, choices=list(BATCH))
    parser.add_argument("--work", required=True, choices=["read", "parse", "full", "decode", "resize", "augment"])
    parser.add_argument("--variant", required=True, choices=variants)
    return parser.parse_args()


def family():
    """Returns the ids of this process and its live descendants."""
    todo, seen = [os.getpid()], []
    while todo:
        pid = todo.pop()
        seen.append(pid)
        for path in glob.glob(f"/proc/{pid}/task/*/children"):
            try:
                todo += [int(p) for p in open(path).read().split()]
            except OSError:
                pass
    return seen


def cpu_seconds():
    """Returns the CPU time of this process, its live descendants, and those that have ended."""
    total = 0
    for pid in family():
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15]))
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def rss_mb():
    """Returns the peak so far, summed over the family. Pages that processes share count more than once."""
    total = 0
    for pid in family():
        try:
            total += sum(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM"))
        except OSError:
            pass
    return total / 1024


def measure(args, open_pass, files, seconds):
    opened = time.perf_counter()
    batches = iter(open_pass(files))
    first, batch = next(batches)
    start, cpu, done, whole = time.perf_counter(), cpu_seconds(), 0, True
    last = start
    for n, batch in batches:
        done += n
        last = time.perf_counter()
        if last - start > seconds:
            whole = False
            break
    cpu = cpu_seconds() - cpu
    if whole and first + done != RECORDS[args.set]:
        raise SystemExit(f"{first + done} records came, there are {RECORDS[args.set]}")
    return {"rec_s": done / (last - start), "cpu_s_per_mrec": cpu / done * 1e6, "first_batch_s": start - opened,
            "rss_mb": rss_mb()}


def pace(open_pass, files, steps):
    """Measures next(). Leaves out the first batch of a pass, which waits for a pipeline to be built."""
    times, cpu, records = [], 0, 0
    while len(times) < steps:
        batches = iter(open_pass(files))
        next(batches)
        cpu -= cpu_seconds()
        for _ in range(steps - len(times)):
            time.sleep(STEP_S)
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                break
            times.append((time.perf_counter() - start) * 1e6)
            records += batch[0]
        cpu += cpu_seconds()
    return {"next_us": sorted(times), "cpu_s_per_mrec": cpu / records * 1e6}


def save_checked(args, open_pass, as_array, to):
    columns, left = [], CHECKED[args.set]
    for n, batch in open_pass([check(args.data, args.set)]):
        columns.append([as_array(tensor)[:min(n, left)] for tensor in batch])
        left -= len(columns[-1][0])
        if left == 0:
            break
    np.savez(to, *[np.concatenate(tensors) for tensors in zip(*columns)])
    return {}


def sums(args, open_pass, as_array, files):
    """Returns what a whole pass delivers."""
    records, totals = 0, None
    for n, batch in open_pass(files):
        records += n
        if args.work == "read":
            of_batch = [sum(len(record) for record in (batch[0] if isinstance(batch[0], list) else as_array(batch[0])))]
        else:
            of_batch = [float(np.sum(as_array(tensor)[:n], dtype=np.float64)) for tensor in batch]
        totals = of_batch if totals is None else [total + more for total, more in zip(totals, of_batch, strict=True)]
    return {"records": records, "sums": totals}


def converted(path, ending, write):
    """Returns the file or folder with the records of `path` in another format, which write(path, to) makes once."""
    to = f"{path}.{ending}"
    if not os.path.exists(to):
        shutil.rmtree(to + ".part", ignore_errors=True)
        write(path, to + ".part")
        os.rename(to + ".part", to)
    return to


def columns_of(path, name, rows):
    """Yields the dense columns of so many records at a time."""
    from tfrecord import example_pb2, reader
    for records in in_batches(map(bytes, reader.tfrecord_iterator(path)), rows):
        yield stack(name, map(example_pb2.Example.FromString, records))


def ahead(make, items):
    """Yields make(item) in order, which threads, one for each CPU, begin for as many items ahead."""
    cpus = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cpus) as pool:
        begun = collections.deque()
        for item in items:
            begun.append(pool.submit(make, item))
            if len(begun) > cpus:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def serve(args, open_pass, of_one_file, as_array=np.asarray):
    """Answers commands. open_pass(files) yields (records in the batch, its tensors in the order of sets.full; of
    pictures: image, label; of records as they are: a list of them). as_array(tensor) is a numpy array."""
    files = [one(args.data, args.set)] if of_one_file else shards(args.data, args.set)
    for line in sys.stdin:
        command, argument = line.split()
        if command == "measure":
            answer = measure(args, open_pass, files, float(argument))
        elif command == "pace":
            answer = pace(open_pass, files, int(argument))
        elif command == "sums":
            answer = sums(args, open_pass, as_array, files)
        else:
            answer = save_checked(args, open_pass, as_array, argument)
        print(json.dumps(answer), flush=True)


def in_batches(records, size):
    records = iter(records)
    while batch := list(itertools.islice(records, size)):
        yield batch
