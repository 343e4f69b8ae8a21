"""Writes the golden cases of tf.data's order (README.md beside this file) with TensorFlow's own answers.

    python3 make_order_cases.py [FOLDER]      the default FOLDER is this one

Needs tensorflow (version 2.21.0 made the files here) and numpy. Writes the record files, order.json and buffer.json.
The random orders have fixed seeds, so a second run writes the same bytes. Takes two minutes.
"""
import itertools
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import tensorflow as tf

HERE = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))

# The number of records in each file.
SETS = {
    "even": [6, 6, 6, 6],
    "uneven": [7, 1, 12, 3, 5],
    "empty_first": [0, 5, 3, 8],
    "empty_middle": [4, 0, 0, 9, 2],
    "empty_last": [3, 6, 2, 0],
    "empty_everywhere": [0, 3, 0, 0, 5, 1, 0],
    "one": [17],
    "many": [1, 2, 3, 0, 1, 4, 2, 1, 0, 5, 2, 3],
    "long": [40, 23, 0, 31],
    "all_empty": [0, 0, 0],
    "clips": [10, 8, 0, 6],
}
# The clip of each record of "clips": some have one record, some several, and one begins in file 0 and ends in file 1.
CLIPS = [0] * 4 + [1] + [2] * 7 + [3] * 6 + [4] * 2 + [5] * 4

WINDOWS = [(size, shift, stride, drop)
           for size in range(1, 11) for shift in range(1, size + 3) for stride in (1, 2, 3) for drop in (True, False)]
FEW_WINDOWS = [(size, shift, stride, drop) for size in (1, 2, 3, 5, 10, 20, 50) for shift in sorted({1, size, size + 2})
               for stride in (1, 2) for drop in (True, False)]


def files_of(name):
    n = len(SETS[name])
    return [os.path.join(HERE, f"{name}-{i:05}-of-{n:05}.tfrecord") for i in range(n)]


def write_set(name):
    number = 0
    for f, (path, count) in enumerate(zip(files_of(name), SETS[name])):
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(count):
                values = {"id": number, "file": f, "record": record}
                if name == "clips":
                    values["clip"] = CLIPS[number]
                example = tf.train.Example()
                for key, value in values.items():
                    example.features.feature[key].int64_list.value.append(value)
                writer.write(example.SerializeToString(deterministic=True))
                number += 1


def ids(files, key=None):
    """Returns a data set of the records' numbers, or with `key` of (number, value of key)."""
    def parse(record):
        parsed = tf.io.parse_single_example(record, {k: tf.io.FixedLenFeature([], tf.int64) for k in ["id"] + [key] * bool(key)})
        return (parsed["id"], parsed[key]) if key else parsed["id"]
    return tf.data.TFRecordDataset(files).map(parse)


def windowed(dataset, size, shift, stride, drop):
    return dataset.window(size, shift, stride, drop).flat_map(lambda window: window.batch(size))


def answer(dataset):
    return [element.tolist() for element in dataset.as_numpy_iterator()]


def by_file(name):
    return tf.data.Dataset.from_tensor_slices(tf.constant(files_of(name), tf.string))


def window_of(size, shift, stride, drop, across=False, key=None):
    out = {"size": size, "shift": shift, "stride": stride, "drop_remainder": drop, "across_files": across}
    return out | ({"key": key} if key else {})


def interleave_cases():
    for name in SETS:
        for cycle, block in itertools.product((1, 2, 3, 4, 7, 16), (1, 2, 3, 5, 16)):
            expect = answer(by_file(name).interleave(ids, cycle_length=cycle, block_length=block, num_parallel_calls=None))
            threads = answer(by_file(name).interleave(ids, cycle_length=cycle, block_length=block, num_parallel_calls=min(3, cycle), deterministic=True))
            assert threads == expect, (name, cycle, block)
            yield {"set": name, "interleave": {"cycle_length": cycle, "block_length": block}, "expect": expect}


def window_cases():
    for name, windows in [("uneven", WINDOWS), ("one", FEW_WINDOWS), ("empty_everywhere", FEW_WINDOWS), ("many", FEW_WINDOWS), ("all_empty", FEW_WINDOWS[:6])]:
        for across in (False, True):
            for window in windows:
                data = windowed(ids(files_of(name)), *window) if across else by_file(name).flat_map(lambda f: windowed(ids(f), *window))
                yield {"set": name, "window": window_of(*window, across), "expect": answer(data)}


def interleave_window_cases():
    for name in ("even", "uneven", "empty_everywhere", "many"):
        for cycle, block in ((1, 1), (2, 1), (2, 3), (3, 2), (16, 1), (16, 5)):
            for window in ((1, 1, 1, True), (2, 1, 1, True), (3, 3, 1, True), (3, 3, 1, False), (3, 1, 2, True), (4, 6, 1, False), (10, 1, 1, False)):
                data = by_file(name).interleave(lambda f: windowed(ids(f), *window), cycle_length=cycle, block_length=block)
                yield {"set": name, "interleave": {"cycle_length": cycle, "block_length": block}, "window": window_of(*window), "expect": answer(data)}


def key_cases():
    """Returns windows that do not cross a change of `clip`: those of each clip, one clip after another.

    No two clips have the same number, so for a file these are its clips, one after another."""
    def of_clips(files, window):
        clips = tf.data.Dataset.range(max(CLIPS) + 1)
        return clips.flat_map(lambda clip: windowed(ids(files, "clip").filter(lambda n, c: c == clip).map(lambda n, c: n), *window))
    for across in (False, True):
        for window in ((1, 1, 1, True), (2, 1, 1, True), (2, 1, 1, False), (3, 1, 1, True), (3, 3, 1, False), (3, 2, 2, True), (4, 5, 1, True), (10, 1, 1, False), (10, 1, 1, True)):
            data = of_clips(files_of("clips"), window) if across else by_file("clips").flat_map(lambda f: of_clips(f, window))
            yield {"set": "clips", "window": window_of(*window, across, "clip"), "expect": answer(data)}


def filter_cases():
    """Filters each file's records before they are interleaved, or the interleaved records; the orders differ."""
    def wanted(n, record):
        return record % 3 != 1
    def number(n, record):
        return n
    for name in ("even", "uneven", "empty_everywhere", "many"):
        for cycle, block in ((1, 1), (2, 1), (2, 3), (3, 2), (16, 5)):
            inside = by_file(name).interleave(lambda f: ids(f, "record").filter(wanted).map(number), cycle_length=cycle, block_length=block)
            behind = by_file(name).interleave(lambda f: ids(f, "record"), cycle_length=cycle, block_length=block).filter(wanted).map(number)
            for where, data in (("files", inside), ("interleaved", behind)):
                yield {"set": name, "filter": "mod(record, 3) != 1", "filter_of": where, "interleave": {"cycle_length": cycle, "block_length": block}, "expect": answer(data)}


def shard_cases():
    for name in ("uneven", "empty_everywhere"):
        for n in (1, 2, 3, 5, 40):
            for i in range(min(n, 5)):
                yield {"set": name, "num_shards": n, "shard_id": i, "expect": answer(ids(files_of(name)).shard(n, i))}


def choose_cases():
    sets = ["even", "one", "empty_last"]
    turns = [c % 3 for c in range(90)]
    quotas = [0, 0, 1, 0, 2, 0, 1, 0] * 10
    for choices, stop in itertools.product((turns, quotas, turns[:20]), (True, False)):
        for names in (sets, ["even", "all_empty", "one"]):
            parts = [ids(files_of(name)).map(lambda n, d=d: (tf.cast(d, tf.int64), n)) for d, name in enumerate(names)]
            data = tf.data.Dataset.choose_from_datasets(parts, tf.data.Dataset.from_tensor_slices(tf.constant(choices, tf.int64)), stop_on_empty_dataset=stop)
            yield {"sets": names, "choices": choices, "stop_on_empty_dataset": stop, "expect": [[int(d), int(n)] for d, n in data.as_numpy_iterator()]}


def buffer_figures(samples=2000, labels=10, orders=400):
    quantiles = [0, 1, 10, 50, 90, 99, 100]
    label_of = np.arange(samples) // (samples // labels)
    rows = []
    for size in (1, 10, 100, 200, 1000, 2000, 5000):
        data = tf.data.Dataset.range(samples).shuffle(size, seed=size, reshuffle_each_iteration=True).batch(samples).repeat(orders)
        figures = []
        for order in data.as_numpy_iterator():
            assert np.array_equal(np.sort(order), np.arange(samples))
            moved = np.arange(samples) - order  # position out - position in, by position out
            runs = 1 + np.count_nonzero(np.diff(label_of[order]))
            figures.append([np.abs(moved).mean(), order[0] == 0, samples / runs] + [np.percentile(moved, q) for q in quantiles])
        figures = np.array(figures, float)
        mean, error = figures.mean(0), figures.std(0, ddof=1) / np.sqrt(orders)
        pair = [[round(float(m), 6), round(float(e), 6)] for m, e in zip(mean, error)]
        rows.append({"buffer_size": size, "mean_displacement": pair[0], "first_stays": pair[1], "label_run": pair[2],
                     "quantiles": {str(q): p for q, p in zip(quantiles, pair[3:])}})
        print(rows[-1])
    return {"format": 1, "tensorflow": tf.__version__, "samples": samples, "labels": labels, "orders": orders, "figures": rows}


def lines(head, name, rows):
    compact = [json.dumps(row, separators=(",", ":")) for row in rows]
    return json.dumps(head)[:-1] + f', "{name}": [\n' + ",\n".join(compact) + "\n]}\n"


print("TensorFlow", tf.__version__)
for name in SETS:
    write_set(name)
cases = []
for group, made in (("interleave", interleave_cases()), ("window", window_cases()), ("interleave_window", interleave_window_cases()),
                    ("window_key", key_cases()), ("interleave_filter", filter_cases()), ("shard", shard_cases()), ("choose", choose_cases())):
    before = len(cases)
    cases += [{"group": group} | case for case in made]
    print(f"{group}: {len(cases) - before} cases")
sets = {name: {"files": [os.path.basename(f) for f in files_of(name)], "records": counts} for name, counts in SETS.items()}
with open(os.path.join(HERE, "order.json"), "w") as out:
    out.write(lines({"format": 1, "tensorflow": tf.__version__, "sets": sets}, "cases", cases))
buffer = buffer_figures()
with open(os.path.join(HERE, "buffer.json"), "w") as out:
    out.write(lines({k: v for k, v in buffer.items() if k != "figures"}, "figures", buffer["figures"]))
