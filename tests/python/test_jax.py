"""feedline.jax: steps of JAX arrays, on one device and split over a mesh, in one process and in two."""

import json

import pytest
from conftest import QUIET, free_port, python, run_ranks

import feedline

EIGHT = {**QUIET, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
START = """
import sys, warnings
import jax, jax.numpy as jnp, numpy as np, pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import feedline
from feedline.jax import Batch, Loader
pipeline = feedline.Pipeline(sys.argv[1])
narrow = [{"name": "n", "feature": "n", "dtype": "INT32"}]
"""


def run(code, pipeline, **environment):
    pytest.importorskip("jax")
    done = python(START + code + "\nprint('good')", pipeline, **environment)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


def test_a_step_and_jit(mixed):
    run(
        """
with pytest.raises(feedline.Error, match=r"JAX would cut 'n' \\(INT64\\), 'list' \\(INT64\\) to 32 bits; .* INT32"):
    Loader(pipeline)
jax.config.update("jax_enable_x64", True)
loader = Loader(pipeline)
first, *_, last = loader
assert type(first) is Batch and (first.epoch, first.step, first.rows, last.valid_count) == (0, 0, 5, 2)
assert isinstance(first["n"], jax.Array) and first["n"].dtype == "int64" and first["n"].tolist() == [0, 1, 2, 3, 4]
assert first["s"].tolist() == [b"text %d" % i for i in range(5)] and first["words"].values.shape == (4,)
assert first["list"].row_splits.tolist() == [0, 0, 1, 3, 6, 6]
assert last.valid_mask.tolist() == [True, True, False, False, False]
traced = []
@jax.jit
def total(batch):
    traced.append(1)
    return jnp.sum(batch["n"] * batch.valid_mask)
sums = []
for batch in loader:
    for name in "s", "words", "list":  # strings are not for JAX, and each ragged shape would be compiled
        del batch[name]
    sums.append(total(batch).item())
assert sums == [10, 35, 21] and len(traced) == 1
doubled = jax.tree.map(lambda x: x * 2, batch)
assert doubled["n"].tolist()[:2] == [20, 22] and not hasattr(doubled, "epoch") and "'n': " in repr(doubled)
""",
        mixed,
        **QUIET,
    )


def test_dtypes_and_kept_batches(numbers):
    run(
        """
import pickle
warnings.simplefilter("ignore")
names = "BOOL UINT8 INT8 UINT16 INT16 UINT32 INT32 FLOAT16 BFLOAT16 FLOAT32".split()
outputs = [{"name": name, "feature": "n", "dtype": name} for name in names]
loader = Loader(pipeline, output=outputs)
kept = [batch for _ in range(4) for batch in loader]
for number, batch in enumerate(kept):
    for name in names:
        array = batch[name]
        wanted = [n % 256 if name != "BOOL" else n != 0 for n in range(number % 5 * 10, number % 5 * 10 + 10)]
        assert (array.dtype.name, array.tolist()) == (name.lower(), wanted), name
# What jitted functions have not done yet when the batch goes, they still do with its values.
f = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda i, y: y @ jnp.eye(10), x).sum())
late = [f(batch["FLOAT32"]) for _ in range(4) for batch in loader]
assert [x.item() for x in late] == [sum(range(10 * i, 10 * i + 10)) for i in range(5)] * 4
again = pickle.loads(pickle.dumps(Loader(pipeline, output=outputs, as_tuple=("FLOAT32", "@valid"))))
assert [x.tolist()[0] for x, valid in again] == [0, 10, 20, 30, 40]
""",
        numbers,
        **QUIET,
    )


def test_large_batches_are_kept(tmp_path):
    """JAX takes them where they are, so the feed runs out of memory, and goes on in memory of their own."""
    feedline.write(tmp_path / "x", ({"x": bytes([i]) * 40_000} for i in range(100)))
    large = feedline.tfrecords(tmp_path / "x").feature("x", bytes, length=40_000).batch(10)
    run(
        """
with pytest.warns(RuntimeWarning, match="more batches are kept"):
    loader = Loader(pipeline, parallelism={"host_prefetch": 1})
    kept = [batch["x"] for batch in loader]
assert loader.report()["batches_copied"] > 0
assert [x[:, -1].tolist() for x in kept] == [list(range(10 * i, 10 * i + 10)) for i in range(10)]
""",
        large,
        **QUIET,
    )


def test_eight_devices(numbers):
    run(
        """
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
rows = NamedSharding(mesh, P("data"))
loader = Loader(pipeline, sharding=rows, output=narrow, batch={"global_batch_size": 16, "last_batch_policy": "PAD"})
steps = list(loader)
for i, step in enumerate(steps):
    assert step["n"].sharding == rows and step["n"].shape == (16,) and step.rows == 16
    for shard in step["n"].addressable_shards:
        first = shard.index[0].start
        assert shard.data.tolist() == [min(n, 49) for n in range(16 * i + first, 16 * i + first + 4)]
assert [int(step.valid_mask.sum()) for step in steps] == [16, 16, 16, 2]
assert float(jax.jit(lambda b: jnp.sum(b["n"]))(steps[1])) == sum(range(16, 32))
everywhere = Loader(pipeline, sharding=NamedSharding(mesh, P()), output=narrow)
assert next(iter(everywhere))["n"].addressable_shards[7].data.tolist() == list(range(10))
here = Loader(pipeline, device=jax.devices()[3], output=narrow)
assert next(iter(here))["n"].devices() == {jax.devices()[3]}
refused = [
    (dict(sharding=rows, device=jax.devices()[0]), "give sharding or device"),
    (dict(sharding=NamedSharding(mesh, P(None, "model"))), "does more than split rows"),
    (dict(sharding=jax.devices()[0]), "does more than split rows"),
    (dict(sharding=rows, devices="host:2"), "leave devices out"),
    (dict(devices="cuda"), "makes its batches on the host"),
    (dict(sharding=rows, rank=1, world_size=2), "JAX says process 0 of 1"),
]
for arguments, message in refused:
    with pytest.raises(feedline.Error, match=message):
        Loader(pipeline, output=narrow, **arguments)
for device in "cpu", 0:
    with pytest.raises(feedline.Error, match=f"device: {device!r} is no device of JAX; give one such as jax.devices"):
        Loader(pipeline, device=device, output=narrow)
uneven = Loader(pipeline, sharding=rows, output=narrow, batch={"global_batch_size": 16, "last_batch_policy": "PARTIAL"})
steps = iter(uneven)
assert [next(steps).rows for _ in range(3)] == [16] * 3
with pytest.raises(feedline.Error, match="step 3 has 2 rows .* for the last step .*last_batch_policy DROP or PAD"):
    next(steps)
with pytest.raises(feedline.Error, match="step 0 has 10 rows in this process, .* 4 shards; give batch.global_batch_size a multiple of 4"):
    next(iter(Loader(pipeline, sharding=rows, output=narrow)))
with pytest.raises(feedline.Error, match="'n' is ragged"):
    ragged = feedline.tfrecords(str(pipeline).split('"')[1]).feature("n", int, kind="VARIABLE").batch(8)
    Loader(ragged, sharding=rows, output=narrow)
import os
os.environ.update(RANK="1", WORLD_SIZE="2")
with pytest.raises(feedline.Error, match=r"started 2 processes, and JAX knows of one; call jax.distributed.initialize"):
    Loader(pipeline, sharding=rows, output=narrow)
assert len(Loader(pipeline, output=narrow, batch={"global_batch_size": 10})) == 5  # the launcher's part of two
""",
        numbers,
        **EIGHT,
    )


PROCESS = """
import json, os
rank = int(sys.argv[2])
jax.distributed.initialize("127.0.0.1:" + sys.argv[3], 2, rank)
devices = np.array(jax.devices())
def shards(array):
    return sorted((shard.index[0].start or 0, shard.data.tolist()) for shard in array.addressable_shards)
"""


def two_processes(code, pipeline):
    pytest.importorskip("jax")
    port, done = free_port(), [None, None]

    def start(rank):
        environment = {**QUIET, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        done[rank] = python(START + PROCESS + code, pipeline, rank, port, **environment)

    run_ranks(2, start)
    assert [process.returncode for process in done] == [0, 0], done[0].stderr + done[1].stderr
    return [json.loads(process.stdout.splitlines()[-1]) for process in done]  # Gloo writes there, too


def test_two_processes(numbers):
    """Rank and world size, the check that ranks have the same data, and global arrays of which each process has half."""
    found = two_processes(
        """
mesh = Mesh(devices, ("data",))
loader = Loader(pipeline, sharding=NamedSharding(mesh, P("data")), output=narrow, batch={"global_batch_size": 20})
total = jax.jit(lambda batch: jnp.sum(batch["n"]))
sums, local = [], []
for batch in loader:
    sums.append(total(batch).item())
    local += shards(batch["n"])
assert batch["n"].shape == (20,) and batch.rows == 20
same = NamedSharding(Mesh(devices.reshape(2, 2).T, ("data", "model")), P("data"))  # each process has both halves
shared = [shards(batch["n"]) for batch in Loader(pipeline, sharding=same, output=narrow)]
errors = []
partial = {"sharding": same, "batch": {"last_batch_policy": "PARTIAL"}}
for arguments in {"rank": rank, "world_size": 3}, {"seed": rank}, partial:
    try:
        Loader(pipeline, output=narrow, **arguments)
    except feedline.Error as error:
        errors.append(error.message)
alone = [batch["n"].tolist() for batch in Loader(pipeline, rank=0, world_size=1, output=narrow)]
print(json.dumps([sums, local, shared, errors, alone]))
""",
        numbers,
    )
    (sums, first, shared, errors, alone), (other_sums, second, other_shared, other_errors, _) = found
    assert sums == other_sums == [sum(range(20)), sum(range(20, 40))]
    assert [start for start, _ in first] == 2 * [0, 5] and [start for start, _ in second] == 2 * [10, 15]
    assert sorted(n for _, rows in first + second for n in rows) == list(range(40))
    assert shared == other_shared == [[[0, list(range(10 * i, 10 * i + 5))], [5, list(range(10 * i + 5, 10 * i + 10))]] for i in range(5)]
    assert "JAX says process 0 of 2" in errors[0] and "JAX says process 1 of 2" in other_errors[0]
    assert "seed" in errors[1] and "PARTIAL gives processes different numbers of rows" in errors[2]
    assert alone == [list(range(10 * i, 10 * i + 10)) for i in range(5)]
