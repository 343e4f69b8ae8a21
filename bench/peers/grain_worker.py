"""Grain's TFRecord dataset (experimental). It gives raw bytes and checks no CRC; protobuf and numpy parse the records.

Variants: t0 (one file, the main thread), threads (16 shards, prefetch threads), mp2 (two worker processes)."""
import grain
from grain import experimental as gx
from sets import BATCH, full, stack
from tfrecord import example_pb2
from worker import arguments, serve

args = arguments(["t0", "threads", "mp2"])


def collate(records):
    if args.work == "read":
        return (records,)
    parse = example_pb2.Example.FromString  # here, because a protobuf class cannot be sent to a worker process
    columns = stack(args.set, [parse(r) for r in records])
    return full(args.set, columns) if args.work == "full" else tuple(columns.values())


def open_pass(files):
    if args.variant == "t0":
        ds = gx.TFRecordIterDataset(files[0])
    else:
        ds = gx.InterleaveIterDataset([gx.TFRecordIterDataset(f) for f in files], cycle_length=4)
    ds = ds.batch(BATCH[args.set], batch_fn=collate)
    if args.variant == "threads":
        ds = gx.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=4)
    elif args.variant == "mp2":
        ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    for out in ds:
        yield len(out[0]), out


if __name__ == "__main__":
    serve(args, open_pass, of_one_file=args.variant == "t0", whole_passes=args.variant != "mp2")
