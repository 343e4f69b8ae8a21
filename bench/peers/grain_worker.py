"""Grain. It gives raw bytes, which protobuf and numpy parse.

Variants: t0 (its experimental dataset of one TFRecord file, the main thread), threads (16 shards, prefetch threads), mp2
(two worker processes); these check no CRC. array (ArrayRecord, which Grain advises: one file, groups of one record as it
wants them, uncompressed as its guide advises for local files; a thread for each CPU reads a batch at a time), array-mp (the
same in a process for each CPU)."""
import os

import grain
from array_record.python.array_record_module import ArrayRecordWriter
from grain import experimental as gx
from sets import BATCH, full, stack
from tfrecord import example_pb2, reader
from worker import arguments, converted, serve

args = arguments(["t0", "threads", "mp2", "array", "array-mp"])
cpus = len(os.sched_getaffinity(0))


def write(path, to):
    out = ArrayRecordWriter(to, "group_size:1,uncompressed")
    for record in reader.tfrecord_iterator(path):
        out.write(bytes(record))
    out.close()


def collate(records):
    if args.work == "read":
        return (records,)
    parse = example_pb2.Example.FromString  # here, because a protobuf class cannot be sent to a worker process
    columns = stack(args.set, [parse(r) for r in records])
    return full(args.set, columns) if args.work == "full" else tuple(columns.values())


def of_array_record(path):
    source = grain.sources.ArrayRecordDataSource(converted(path, "array_record", write))
    rows = BATCH[args.set]
    ds = grain.MapDataset.range(0, len(source), rows)
    ds = ds.map(lambda begin: collate(source.__getitems__(range(begin, min(begin + rows, len(source))))))
    if args.variant == "array":
        return ds.to_iter_dataset(grain.ReadOptions(num_threads=cpus, prefetch_buffer_size=2 * cpus))
    ds = ds.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    return ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=cpus))


def of_tfrecords(files):
    if args.variant == "t0":
        ds = gx.TFRecordIterDataset(files[0])
    else:
        ds = gx.InterleaveIterDataset([gx.TFRecordIterDataset(f) for f in files], cycle_length=4)
    ds = ds.batch(BATCH[args.set], batch_fn=collate)
    if args.variant == "threads":
        ds = gx.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=4)
    elif args.variant == "mp2":
        ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return ds


def open_pass(files):
    for out in of_array_record(files[0]) if args.variant.startswith("array") else of_tfrecords(files):
        yield len(out[0]), out


if __name__ == "__main__":
    serve(args, open_pass, of_one_file=args.variant in ("t0", "array", "array-mp"))
