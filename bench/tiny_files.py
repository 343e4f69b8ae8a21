"""What a record costs that has a file of its own: CPU time of the process, user and system apart, and memory.

    python3 bench/tiny_files.py [--feedline build/feedline,OTHER] [--files 100000] [--data DIR] [--rounds 5] [--tfdata]

Needs numpy; --tfdata needs TensorFlow. Writes the files once, to a temporary folder unless --data names one. A figure is
the CPU time of four epochs less that of one, over the records of three: what starting and counting take falls out of
it. The programs take turns. The result is the median of the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from mixing import masked_crc32c

BATCH = 512
ORDERS = {"NONE": "mode: NONE", "BLOCK": "mode: BLOCK buffer_size: 10000", "BUFFER": "mode: BUFFER buffer_size: 10000",
          "GLOBAL": "mode: GLOBAL"}


def write_files(folder, files):
    """Writes files of 52 bytes: an Example with "x", 7 bytes, and "id", a varint of four bytes."""
    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    record = field(1, field(1, field(1, b"x") + field(2, field(1, field(1, b"0" * 7)))) +
                   field(1, field(1, b"id") + field(2, field(3, field(1, b"\x80\x80\x80\x01")))))
    rows = np.tile(np.frombuffer(record, np.uint8), (files, 1))
    at = len(record) - 4
    ids = np.arange(files)
    for byte in range(3):
        rows[:, at + byte] |= (ids >> 7 * byte & 127).astype(np.uint8)
    header = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)[None]
    whole = np.concatenate([np.tile(np.concatenate([header, masked_crc32c(header)], 1), (files, 1)), rows,
                            masked_crc32c(rows)], 1)
    for file in range(files):
        (folder / f"{file:07}.tfrecord").write_bytes(whole[file].tobytes())


def measured(command):
    """Runs a command. Returns its user and system time in s, the peak of its memory in MiB, and what it printed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}")
        output.seek(0)
        return usage.ru_utime, usage.ru_stime, usage.ru_maxrss / 1024, output.read().decode()


def feedline(tool, pipeline, order, records):
    """Returns user and system time in us a record, and MiB of memory, as planned and at the peak."""
    one, four = (measured([tool, "run", pipeline, "--set", f"shuffle={ORDERS[order]}", "--epochs", str(epochs), "--json"])
                 for epochs in (1, 4))
    planned = json.loads(four[3])["planned_bytes"] / 2**20
    return (four[0] - one[0]) / 3e-6 / records, (four[1] - one[1]) / 3e-6 / records, planned, four[2]


def tfdata(files, order, epochs):
    """Feeds tf.data's way, in this process."""
    import tensorflow as tf

    features = {"id": tf.io.FixedLenFeature([], tf.int64), "x": tf.io.FixedLenFeature([], tf.string)}
    data = tf.data.TFRecordDataset(sorted(map(str, files)))
    if order == "BUFFER":
        data = data.shuffle(10000)
    data = data.batch(BATCH, drop_remainder=True)
    data = data.map(lambda batch: tf.io.parse_example(batch, features), num_parallel_calls=tf.data.AUTOTUNE)
    for _ in range(epochs):
        for _ in data.prefetch(tf.data.AUTOTUNE):
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feedline", default="build/feedline", help="the tool; several, separated by commas")
    parser.add_argument("--files", type=int, default=100000)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--tfdata", action="store_true")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.data or pathlib.Path(tempfile.mkdtemp(prefix="feedline-tiny-files-"))
    if args.worker:
        return tfdata(folder.glob("*.tfrecord"), args.worker[0], int(args.worker[1]))
    folder.mkdir(exist_ok=True)
    if not (folder / f"{args.files - 1:07}.tfrecord").exists():
        write_files(folder, args.files)
    pipeline = folder / "pipeline.textproto"
    pipeline.write_text(f"""source {{ files: "*.tfrecord" }}
feature {{ name: "id" dtype: INT64 }}
feature {{ name: "x" dtype: BYTES length: 7 }}
batch {{ global_batch_size: {BATCH} last_batch_policy: DROP }}
output {{ name: "id" feature: "id" }}
output {{ name: "x" dtype: UINT8 feature: "x" }}
""")
    records = args.files // BATCH * BATCH
    figures = {}
    for _ in range(args.rounds):
        for order in args.orders.split(","):
            for tool in args.feedline.split(","):
                figures.setdefault((order, tool), []).append(feedline(tool, pipeline, order, records))
            if args.tfdata and order in ("NONE", "BUFFER"):
                one, four = (measured([sys.executable, __file__, "--data", folder, "--worker", order, epochs])
                             for epochs in ("1", "4"))
                figures.setdefault((order, "tf.data"), []).append(
                    ((four[0] - one[0]) / 3e-6 / records, (four[1] - one[1]) / 3e-6 / records, float("nan"), four[2]))
    print("order   program  us of CPU a record (user + system)  MiB planned, taken")
    for (order, program), rounds in figures.items():
        user, system, planned, taken = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{order:7} {program}  {user + system:.2f} ({user:.2f} + {system:.2f})  {planned:.0f}, {taken:.0f}")
    if not args.data:
        subprocess.run(["rm", "-r", folder], check=True)


if __name__ == "__main__":
    main()
