"""Shows how well each shuffle mixes: a picture (mixing.png) and a table (results/mixing.md).

    python3 bench/mixing.py [--feedline build/feedline] [--records 1000000] [--out bench/results/mixing.png]

Needs numpy and matplotlib, and TensorFlow for tf.data's row. Without TensorFlow the row comes from the same algorithm
in NumPy, and says so. The script writes a file of records sorted by label to a temporary folder (--data keeps it), lets
`feedline dump` write the order of one epoch in each mode, and compares the places of the records. A mode that the tool
refuses is left out with a note.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

LABELS, BATCH, PLANE_BYTES = 10, 512, 194


def crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


def masked_crc32c(rows, table=crc_table()):
    """Returns the masked CRC-32C of each row (uint8 [N, length]), as uint8 [N, 4]."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = table[(crc ^ column) & 0xFF] ^ crc >> 8
    crc = ~crc
    return ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype("<u4")[:, None].view(np.uint8)


def write_records(path, records):
    """Writes Examples like chess positions: "d" (194 bytes), "label" (int64; record * LABELS / records)."""
    def field(number, content):
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    def entry(name, kind, content):
        return field(1, field(1, name) + field(2, field(kind, content)))
    example = field(1, entry(b"d", 1, field(1, b"\xff" * PLANE_BYTES)) + entry(b"label", 3, field(1, b"\x00")))
    payload = np.frombuffer(example, np.uint8)
    d = example.index(b"\xff" * PLANE_BYTES)
    length = np.frombuffer(len(example).to_bytes(8, "little"), np.uint8)
    header = np.concatenate([length, masked_crc32c(length[None])[0]])
    rng = np.random.default_rng(0)
    with open(path, "wb") as out:
        for first in range(0, records, 100_000):
            number = np.arange(first, min(records, first + 100_000))
            rows = np.tile(payload, (len(number), 1))
            rows[:, d:d + PLANE_BYTES] = rng.integers(0, 256, (len(number), PLANE_BYTES), np.uint8)
            rows[:, -1] = number * LABELS // records
            out.write(np.hstack([np.tile(header, (len(number), 1)), rows, masked_crc32c(rows)]).tobytes())


def feedline_order(tool, data, shuffle):
    """Returns the numbers of the records in the order of an epoch and None; or None and why the tool refuses."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline = os.path.join(folder, "mixing.textproto")
        pathlib.Path(pipeline).write_text(f"""
            source {{ files: "{data}" }}
            feature {{ name: "label" dtype: INT64 }}
            output {{ name: "record" feature: "@record" }}
            {shuffle}
            batch {{ global_batch_size: {BATCH} last_batch_policy: PARTIAL }}
            seed: 1""")
        done = subprocess.run([tool, "dump", pipeline, "--out", folder], capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip().splitlines()[-1]
        return np.load(os.path.join(folder, "record.npy")), None


def tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        import tensorflow
    except ImportError:
        return None
    return tensorflow


def tf_data_order(tf, records, buffer):
    if not tf:
        return simulated_buffer(records, buffer), None
    return np.concatenate(list(tf.data.Dataset.range(records).shuffle(buffer, seed=1).batch(BATCH).as_numpy_iterator())), None


def tf_data_interleaved_order(tf, records, buffer):
    """Writes the same records to 64 files."""
    if not tf:
        return None, "needs TensorFlow"
    files = tf.data.Dataset.range(64).shuffle(64, seed=1)
    data = files.interleave(lambda f: tf.data.Dataset.range(f * records // 64, (f + 1) * records // 64), cycle_length=16, block_length=1)
    return np.concatenate(list(data.shuffle(buffer, seed=1).batch(BATCH).as_numpy_iterator())), None


def simulated_buffer(records, buffer):
    """Fills a buffer, delivers a random record of it and puts the next one in its place; then the rest at random."""
    rng = np.random.default_rng(1)
    held, out = np.arange(min(buffer, records)), np.empty(records, np.int64)
    places = rng.integers(0, len(held), records)
    for i in range(records - len(held)):
        out[i] = held[places[i]]
        held[places[i]] = i + len(held)
    out[records - len(held):] = rng.permutation(held)
    return out


def figures(order, records):
    """Returns the figures that results/mixing.md defines: mean displacement, label run, batch spread, labels missing."""
    label = order * LABELS // records
    displacement = np.abs(np.arange(len(order)) - order).mean() / records
    run = len(order) / (1 + np.count_nonzero(np.diff(label)))
    whole = label[:len(label) // BATCH * BATCH].reshape(-1, BATCH)
    counts = (whole[:, :, None] == np.arange(LABELS)).sum(1)
    spread = ((counts - BATCH / LABELS)**2).sum(1) / (BATCH / LABELS) / (LABELS - 1)
    return displacement, run, spread.mean(), (counts == 0).sum(1).mean()


def draw(path, panels, records):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    shown = np.random.default_rng(0)
    columns = 3
    rows = -(-len(panels) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(8.4, 2.9 * rows + 0.3), sharex=True, sharey=True, squeeze=False)
    for ax in axes.flat[len(panels):]:
        ax.set_axis_off()
    for ax, (title, order) in zip(axes.flat, panels):
        at = shown.choice(len(order), min(len(order), 5000), replace=False)
        ax.plot(at / records, order[at] / records, ",", color="#1f4e8c")
        ax.set_title(title, fontsize=9)
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        ax.set_aspect("equal")
    fig.supxlabel("position in the epoch (fraction)", fontsize=9)
    fig.supylabel("position in the file (fraction)", fontsize=9)
    fig.tight_layout()
    fig.savefig(path, dpi=110, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--feedline", default="build/feedline")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--data", help="folder for the records, which are kept; default: a temporary one")
    parser.add_argument("--out", default="bench/results/mixing.png")
    args = parser.parse_args()
    n, small, large = args.records, args.records // 100, args.records // 10
    tf = tensorflow()
    tf_name = f"TensorFlow {tf.__version__}" if tf else "tf.data's algorithm in NumPy"

    with tempfile.TemporaryDirectory() as temporary:
        data = os.path.abspath(os.path.join(args.data or temporary, f"sorted-{n}.tfrecord"))
        if not os.path.exists(data):
            os.makedirs(os.path.dirname(data), exist_ok=True)
            write_records(data + ".part", n)
            os.rename(data + ".part", data)

        def ours(shuffle):
            return feedline_order(args.feedline, data, f"shuffle {{ {shuffle} }}")
        # The name, the order, and the title if it is in the picture.
        rows = [
            ("`NONE`", ours("mode: NONE"), "NONE"),
            (f"tf.data: `shuffle({small})`", tf_data_order(tf, n, small), f"tf.data, shuffle({small})"),
            (f"tf.data: 64 files shuffled, `interleave(cycle_length=16)`, `shuffle({small})`", tf_data_interleaved_order(tf, n, small),
             f"tf.data, 64 files, shuffled,\n16 interleaved, shuffle({small})"),
            (f"tf.data: `shuffle({large})`", tf_data_order(tf, n, large), None),
            (f"`BUFFER`, `buffer_size: {small}`", ours(f"mode: BUFFER buffer_size: {small}"), f"BUFFER, buffer_size: {small}"),
            (f"`BUFFER`, `buffer_size: {large}`", ours(f"mode: BUFFER buffer_size: {large}"), None),
            (f"`BLOCK`, `buffer_size: {small}`, `lanes: 8`", ours(f"mode: BLOCK buffer_size: {small} lanes: 8"), None),
            (f"`BLOCK`, `buffer_size: {small}`", ours(f"mode: BLOCK buffer_size: {small}"), f"BLOCK, buffer_size: {small}"),
            (f"`BLOCK`, `buffer_size: {large}`", ours(f"mode: BLOCK buffer_size: {large}"), None),
            ("`GLOBAL`", ours("mode: GLOBAL"), "GLOBAL"),
            ("a random permutation", (np.random.default_rng(0).permutation(n), None), None),
        ]

    print(f"{n:,} records, {LABELS} labels, batches of {BATCH}; {tf_name}\n")
    print("| order | mean displacement | label run | batch spread | labels missing |\n|---|---|---|---|---|")
    panels = []
    for name, (order, refused), title in rows:
        if refused:
            print(f"| {name} | not in this build | | | |")
            print(f"{name} is left out: {refused}", file=sys.stderr)
            continue
        displacement, run, spread, missing = figures(order, n)
        print(f"| {name} | {displacement:.3f} | {run:,.2f} | {spread:,.2f} | {missing:.2f} |")
        if title:
            panels.append((title, order))
    draw(args.out, panels, n)


if __name__ == "__main__":
    main()
