"""`python -m feedline convert parquet`: converts Parquet files to TFRecord shards, and writes a pipeline for them."""

import argparse
import itertools
import os
import subprocess
import sys

from . import _feedline
from ._errors import Error
from ._records import RecordWriter


def convert_parquet(files: list[str], folder: str, shard_bytes: int = 100_000_000) -> tuple[list[str], str]:
    """Converts the rows of Parquet files with the same columns, in order, into shards of about `shard_bytes`. Returns
    the names of the shards, and the pipeline that it has written beside them. At the end the new files replace those of
    the same names, all together. Integers and booleans become int64, other numbers float32, and texts and binaries
    bytes. A column of lists has several values for each row. A null, or an empty list, becomes a missing feature.
    Raises feedline.Error for a column of another type, and ImportError without the package pyarrow."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{error}; Parquet files are read with pyarrow: pip install pyarrow") from None

    versions = [_version(file) for file in files]
    tables = [pyarrow.parquet.ParquetFile(file) for file in files]
    for file, table in zip(files, tables):
        if not table.schema_arrow.equals(tables[0].schema_arrow):
            raise Error(f"the columns differ from those of {files[0]}; convert this file separately", file=file)
        for column in table.schema_arrow:
            _check(file, column.name, column.type)
    rows = sum(table.metadata.num_rows for table in tables)
    groups = [table.metadata.row_group(i) for table in tables for i in range(table.num_row_groups)]
    shards = max(1, min(rows, round(sum(group.total_byte_size for group in groups) / shard_bytes)))
    names = [f"data-{shard:05}-of-{shards:05}.tfrecord" for shard in range(shards)]
    records, written = _records_of(files, tables), 0
    out = _feedline.OutputFolder(folder)
    try:
        for shard, name in enumerate(names):
            with RecordWriter(out.place(name)) as writer:
                for file, number, row in itertools.islice(records, rows * (shard + 1) // shards - rows * shard // shards):
                    try:
                        writer.write(row)
                        written += 1
                    except (Error, TypeError, OverflowError) as error:
                        if getattr(error, "category", None) == "io_error":
                            raise  # the shard cannot be written, so the row is not to blame
                        raise Error(f"row {number} cannot be converted to a record: {error}", file=file) from None
        for file, version in zip(files, versions):
            if _version(file) != version:
                wrong = "the file changed while it was read; convert again when no program writes to it"
                raise Error(wrong, "io_error", file=file)
        if written != rows or next(records, None) is not None:
            raise Error(
                f"the Parquet files say that they have {rows} rows, but a different number was read; nothing was "
                "replaced"
            )
        out.publish()
        shards = [os.path.join(folder, name) for name in names]
        inspect = [sys.executable, "-m", "feedline", "inspect", "--pipeline", *shards]
        inspected = subprocess.run(inspect, check=False, capture_output=True, text=True)
        if inspected.returncode != 0:
            raise Error(
                f"the shards in {folder} are complete, but their pipeline was not written: {inspected.stderr.strip()}"
            )
        pipeline = inspected.stdout
        out.write_pipeline(pipeline)
    finally:
        out.close()
    return names, pipeline


def _version(file):
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def _records_of(files, tables):
    """Yields each row: its file, its number in the file, and its values by column."""
    for file, table in zip(files, tables):
        number = 0
        for batch in table.iter_batches():
            for row in batch.to_pylist():
                yield file, number, {name: value for name, value in row.items() if value is not None}
                number += 1


def _check(file, name, kind):
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    simple = [types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string]
    simple += [types.is_binary, types.is_large_binary, types.is_fixed_size_binary]
    if not any(test(kind) for test in simple):
        raise Error(
            f"column {name!r} has the type {kind}, which a record cannot hold; before the conversion, use pyarrow to "
            "cast the column to numbers or text, or to leave it out",
            file=file,
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m feedline convert parquet",
        description="Makes TFRecord shards and a pipeline for them from Parquet files. Needs the package pyarrow.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="Parquet files with the same columns")
    out_help = "folder to write to; at the end, files with the same names are replaced"
    parser.add_argument("--out", required=True, metavar="DIR", help=out_help)
    flags = parser.parse_args(arguments)
    try:
        names, pipeline = convert_parquet(flags.files, flags.out)
    except (Error, OSError, ImportError, ValueError) as error:  # errors of Arrow are ValueErrors
        place = getattr(error, "file", None)
        print(f"feedline: {place}: {error}" if place else f"feedline: {error}", file=sys.stderr)
        return 1
    path = os.path.join(flags.out, "pipeline.textproto")
    print(f"{len(names)} {'shard' if len(names) == 1 else 'shards'} in {flags.out}\n\n{path}:\n\n{pipeline}", end="")
    return 0
