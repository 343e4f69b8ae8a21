"""feedline.tf: steps of TensorFlow tensors, in loops and as a tf.data.Dataset."""

import json
import re

import pytest
from conftest import QUIET, free_port, python, run_ranks

import feedline

START = """
import sys, warnings
import tensorflow as tf, pytest
import feedline
from feedline.tf import Batch, Loader
pipeline = feedline.Pipeline(sys.argv[1])
shuffled = {"buffer_size": 50}
"""


def run(code, pipeline):
    pytest.importorskip("tensorflow")
    done = python(START + code + "\nprint('good')", pipeline, **QUIET)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


def test_a_step(mixed):
    run(
        """
loader = Loader(pipeline)
first, *_, last = loader
assert type(first) is Batch and (first.epoch, first.step, first.rows, last.valid_count) == (0, 0, 5, 2)
assert first["n"].dtype == tf.int64 and first["n"].numpy().tolist() == [0, 1, 2, 3, 4]
assert first["s"].dtype == tf.string and first["s"].numpy().tolist() == [b"text %d" % i for i in range(5)]
assert isinstance(first["list"], tf.RaggedTensor) and first["list"].to_list() == [[], [0], [0, 1], [0, 1, 2], []]
assert first["words"].to_list() == [[], [b"w0"], [b"w0", b"w1"], [], [b"w0"]]
assert last.valid_mask.numpy().tolist() == [True, True, False, False, False]
""",
        mixed,
    )


def test_dtypes(numbers):
    run(
        """
names = "BOOL UINT8 INT8 UINT16 INT16 UINT32 INT32 INT64 FLOAT16 BFLOAT16 FLOAT32 FLOAT64".split()
loader = Loader(pipeline, output=[{"name": name, "feature": "n", "dtype": name} for name in names])
for batches in loader, loader.dataset():
    batch = next(iter(batches))
    for name in names:
        assert batch[name].dtype.name == name.lower()
        assert tf.cast(batch[name], tf.int32).numpy().tolist() == [n if name != "BOOL" else int(n > 0) for n in range(10)]
""",
        numbers,
    )


def test_a_dataset_has_the_outputs(mixed):
    run(
        """
loader = Loader(pipeline)
dataset = loader.dataset()
assert dataset.cardinality() == 3
assert dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
for epoch in range(2):
    elements = list(dataset)
    for element, batch in zip(elements, Loader(pipeline), strict=True):
        assert element.keys() == batch.keys()
        assert all(str(element[name]) == str(batch[name]) for name in batch)
pair = next(iter(Loader(pipeline, as_tuple=("list", "@valid")).dataset()))
assert pair[0].to_list()[3] == [0, 1, 2] and pair[1].dtype == tf.bool
with pytest.raises(feedline.Error, match="leave out 'devices'"):
    Loader(pipeline, devices="host:2", batch={"global_batch_size": 4}).dataset()
""",
        mixed,
    )


def test_the_mask_of_windows(numbers):
    run(
        """
fields = dict(window={"size": 4, "drop_remainder": False}, batch={"global_batch_size": 7}, as_tuple=("n", "@valid"))
for (n, valid), (wanted, mask) in zip(Loader(pipeline, **fields).dataset(), Loader(pipeline, **fields), strict=True):
    assert valid.shape == n.shape == (7, 4) and valid[-1].numpy().tolist() == [True, False, False, False]
    assert valid.numpy().tolist() == mask.numpy().tolist() and n.numpy().tolist() == wanted.numpy().tolist()
""",
        numbers,
    )


def test_nested_lists(root):
    run(
        """
loader = Loader(pipeline)
batch = next(iter(loader))
assert [element.kind for element in loader.elements()] == ["nested"]
wanted = Loader(pipeline).dataset().element_spec["t"]
assert wanted.is_compatible_with(batch["t"]) and batch["t"].ragged_rank == 2
assert next(iter(loader.dataset()))["t"].to_list() == batch["t"].to_list()
""",
        feedline.tfrecords(f"{root}/tests/golden/sequence/ragged_unequal.tfrecord", record_type="SEQUENCE_EXAMPLE")
        .feature("t", int, kind="VARIABLE", where="FEATURE_LIST")
        .batch(3),
    )


def test_iterations_of_a_dataset_are_epochs(numbers):
    run(
        """
loader = Loader(pipeline, shuffle=shuffled, seed=1)
wanted = []
for epoch in range(4):
    wanted.append([batch["n"].numpy().tolist() for batch in loader])
loader.set_epoch(0)
dataset = loader.dataset()
def epoch(data):
    return [element["n"].numpy().tolist() for element in data]
assert epoch(dataset) == wanted[0]
assert epoch(dataset.take(2)) == wanted[1][:2]  # ends early, so the next iteration begins there again
assert epoch(dataset.take(5)) == wanted[1]  # does not ask for the end
assert epoch(dataset.prefetch(2)) == wanted[2]
eager = iter(dataset.prefetch(2))  # takes steps that nobody sees
assert epoch(dataset) == wanted[3]
loader.set_epoch(1)
next(iter(loader))
middle = loader.state_dict()
resumed = Loader(pipeline, shuffle=shuffled, seed=1)
resumed.load_state_dict(middle)
dataset = resumed.dataset()
assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
assert [epoch(dataset), epoch(dataset)] == [wanted[1][1:], wanted[2]]
resumed.load_state_dict(middle)
assert epoch(resumed.dataset().repeat().take(9)) == wanted[1][1:] + wanted[2]
""",
        numbers,
    )


def test_an_old_iteration_of_a_dataset_is_told(numbers):
    run(
        """
loader = Loader(pipeline)
whole = loader.state_dict(epoch=0, step=1)
loader.load_state_dict(whole)
one_by_one = tf.data.Options()
one_by_one.experimental_optimization.inject_prefetch = False
dataset = loader.dataset().with_options(one_by_one)  # of unknown cardinality, so TensorFlow does not count its steps
steps = iter(dataset)
next(steps)
assert next(iter(dataset))["n"].numpy().tolist() == list(range(10, 20))  # begins again
with pytest.raises(tf.errors.OpError, match="another iteration of this dataset began before this iteration was done"):
    next(steps)
loader.set_epoch(0)
steps = iter(dataset)
next(steps)
loader.set_epoch(3)
with pytest.raises(tf.errors.OpError, match="when another iteration of the loader began, or when"):
    next(steps)
with pytest.raises(feedline.Error, match="when another iteration of the loader began"):
    for batch in loader:
        list(loader)
""",
        numbers,
    )


def test_a_state_while_a_dataset_is_iterated(numbers):
    """TensorFlow takes steps ahead of the program, which says how far it is."""
    run(
        """
import pickle
def resumed(state):
    loader = Loader(pipeline, shuffle=shuffled, seed=1)
    if state is not None:
        loader.load_state_dict(state)
    return loader, loader.dataset().prefetch(3)
def train(state, die_after):
    loader, dataset = resumed(state)
    seen, first = [], loader.step
    for epoch in range(loader.epoch, 3):
        for step, element in enumerate(dataset, first):
            seen.append(element["n"].numpy().tolist())
            state = loader.state_dict(epoch=epoch, step=step + 1)
            if len(seen) == die_after:
                return seen, state
        first = 0
    return seen, state
whole, _ = train(None, 99)
for taken in range(1, 15):
    begun, state = train(None, taken)
    assert begun + train(state, 99)[0] == whole, taken
loader, dataset = resumed(None)
for element in dataset:
    for unknown in {}, {"step": 3}:
        with pytest.raises(feedline.Error, match=r"more steps of the dataset.*for example state_dict\\(epoch=2, step=100\\)"):
            loader.state_dict(**unknown)
other = pickle.loads(pickle.dumps(loader))
assert next(iter(other)).step == 0 and other.state_dict() == loader.state_dict(epoch=0, step=1)
loader.set_epoch(2)
assert loader.state_dict() == loader.state_dict(epoch=2)
assert next(iter(loader)).step == 0 and loader.state_dict() == loader.state_dict(epoch=2, step=1)
""",
        numbers,
    )


def test_mirrored_strategy(numbers):
    run(
        """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
distributed = strategy.experimental_distribute_dataset(Loader(pipeline, shuffle=shuffled).dataset())
@tf.function
def step(batch):
    return strategy.run(lambda b: tf.identity(b["n"]), (batch,))
for epoch in range(3):
    seen = []
    for batch in distributed:
        parts = strategy.experimental_local_results(step(batch))
        assert [part.shape[0] for part in parts] == [5, 5]
        seen += [n for part in parts for n in part.numpy().tolist()]
    assert sorted(seen) == list(range(50))
""",
        numbers,
    )


CLUSTER = """
import json, os
cluster = {"worker": sys.argv[3:]}
if sys.argv[2] == "resolver":
    resolve = tf.distribute.cluster_resolver.SimpleClusterResolver
    known = resolve(tf.train.ClusterSpec(cluster), task_type="worker", task_id=int(os.environ["TASK"]))
else:
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": int(os.environ["TASK"])}})
    known = None
early = Loader(pipeline, as_tuple=("n",))
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=known)
seen = []
for loader in early, Loader(pipeline, as_tuple=("n",)):
    seen.append([])
    for (n,) in strategy.experimental_distribute_dataset(loader.dataset()):
        seen[-1] += [int(one) for part in strategy.experimental_local_results(n) for one in part]
print(json.dumps(seen))
"""


@pytest.mark.parametrize("told_by", ["TF_CONFIG", "resolver"])
def test_workers_of_a_cluster(numbers, told_by):
    """Each worker has rows of its own, without being told its rank, also of a loader that is made before the strategy."""
    pytest.importorskip("tensorflow")
    addresses, done = [f"127.0.0.1:{free_port()}" for _ in range(2)], [None, None]

    def worker(index):
        done[index] = python(START + CLUSTER, numbers, told_by, *addresses, **QUIET, TASK=str(index))

    run_ranks(2, worker)
    assert [one.returncode for one in done] == [0, 0], done[0].stderr + done[1].stderr
    for first, second in zip(*(json.loads(one.stdout) for one in done)):
        assert [len(first), len(second)] == [25, 25] and sorted(first + second) == list(range(50))


def test_a_dataset_begins_after_a_loop_that_was_left(numbers):
    run(
        """
loader = Loader(pipeline)
for batch in loader:
    if batch.step == 1:
        break
dataset = loader.dataset()
first = next(iter(dataset))  # an iteration that ends early: the next one begins where it began
assert first["n"].numpy().tolist() == list(range(10))
assert [step["n"].numpy().tolist() for step in dataset] == [list(range(10 * i, 10 * i + 10)) for i in range(5)]
""",
        numbers,
    )


def test_words_and_classes_become_what_tensorflow_makes_of_them(tmp_path):
    """hash, vocabulary, lookup and one_hot, beside the functions of TensorFlow and the layers of Keras."""
    words = [b"ant", b"bee", b"cat", b"", b"dog" * 9, b"eel" * 15, b"fox" * 40, "\u00e9t\u00e9".encode()]
    numbers = [0, 7, -7, 2**63 - 1, -(2**63), 3, 12345678901, 2]
    records = [
        {
            "word": words[i % 8],
            "number": numbers[i % 8],
            "pair": [words[i % 3], words[i % 7]],
            "class": i % 5 - 1,
            "classes": [i % 4, i % 3],
            "list": [k * k % 4 for k in range(i % 6)] or None,
        }
        for i in range(40)
    ]
    feedline.write(tmp_path / "a.tfrecord", ({k: v for k, v in one.items() if v is not None} for one in records))
    (tmp_path / "words.txt").write_bytes(b"ant\nbee\ncat\n")
    (tmp_path / "numbers.txt").write_bytes(b"7\n-7\n2\n")
    text = """
        source { files: "a.tfrecord" } batch { global_batch_size: 40 }
        feature { name: "word" dtype: BYTES } feature { name: "number" dtype: INT64 }
        feature { name: "pair" dtype: BYTES shape: 2 } feature { name: "class" dtype: INT64 }
        feature { name: "classes" dtype: INT64 shape: 2 } feature { name: "list" dtype: INT64 kind: VARIABLE }
        output { name: "word" feature: "word" } output { name: "number" feature: "number" }
        output { name: "pair" feature: "pair" } output { name: "class" feature: "class" }
        output { name: "classes" feature: "classes" } output { name: "list" feature: "list" }
        output { name: "word hash" feature: "word" hash { buckets: 1000 } }
        output { name: "pair hash" feature: "pair" hash { buckets: 7 } }
        output { name: "number hash" feature: "number" dtype: INT32 hash { buckets: 100 } }
        output { name: "word place" feature: "word" vocabulary { keys_file: "words.txt" unknown_buckets: 5 } }
        output { name: "number place" feature: "number" vocabulary { keys_file: "numbers.txt" unknown_buckets: 5 } }
        output { name: "hot" feature: "class" one_hot { classes: 3 on_value: 0.9 off_value: 0.05 ignore_outside: true } }
        output { name: "hots" feature: "classes" one_hot { classes: 4 } }
        output { name: "multi" feature: "list" one_hot { classes: 4 } }"""
    run(
        """
(b,) = Loader(pipeline)
same = lambda name, wanted: tf.debugging.assert_equal(tf.cast(b[name], wanted.dtype), wanted, name)
same("word hash", tf.strings.to_hash_bucket_fast(b["word"], 1000))
same("pair hash", tf.strings.to_hash_bucket_fast(b["pair"], 7))
same("number hash", tf.convert_to_tensor(tf.keras.layers.Hashing(100)(b["number"])))
def table(keys):
    values = tf.range(len(keys), dtype=tf.int64)
    return tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(keys, values), 5)
same("word place", table(tf.constant(["ant", "bee", "cat"])).lookup(b["word"]))
same("number place", table(tf.constant([7, -7, 2], tf.int64)).lookup(b["number"]))
same("hot", tf.one_hot(b["class"], 3, 0.9, 0.05))
same("hots", tf.one_hot(b["classes"], 4))
encode = tf.keras.layers.CategoryEncoding(4, output_mode="multi_hot")
same("multi", tf.stack([tf.reshape(encode(row[None]), [4]) for row in b["list"]]))
""",
        re.sub(r'"(?=\w+[.]t)', f'"{tmp_path}/', text),
    )
