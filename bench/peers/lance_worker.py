"""Lance: a columnar format and its scanner, with Lance's default of checks. The records' features are its columns.

Variants: scan (Lance's scanner, whose threads read and decode ahead; numpy in this thread), threads (the same, and the
tensors of the next batches are made in threads). By Lance's guide to performance, nothing but the columns is asked for, a
batch is asked for as large as it is delivered, and its pool has a thread for each CPU."""
import itertools
import os

os.environ["LANCE_CPU_THREADS"] = str(len(os.sched_getaffinity(0)))
import lance
import pyarrow as pa
from sets import BATCH, BYTES_KEY, full
from worker import ahead, arguments, columns_of, converted, serve

args = arguments(["scan", "threads"])
name, batch = args.set, BATCH[args.set]


def column(values):
    """Returns an Arrow array of a numpy column; lists have one length."""
    flat = pa.array(values.reshape(-1))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def write(path, to):
    batches = (pa.record_batch({key: column(values) for key, values in columns.items()}) for columns in columns_of(path, name, batch))
    first = next(batches)
    lance.write_dataset(pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches)), to)


def numpy_of(array):
    if pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy().reshape(len(array), -1)
    return array.to_numpy()


def tensors(rows):
    columns = {key: numpy_of(rows.column(key)) for key in rows.schema.names}
    if args.work == "read":
        return (list(columns[BYTES_KEY[name]]),)
    return full(name, columns) if args.work == "full" else tuple(columns.values())


def open_pass(files):
    rows = lance.dataset(converted(files[0], "lance", write)).to_batches(batch_size=batch)
    batches = ahead(tensors, rows) if args.variant == "threads" else map(tensors, rows)
    for out in batches:
        yield len(out[0]), out


serve(args, open_pass, of_one_file=True)
