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
with pytest.warns(RuntimeWarning, match="the program keeps more batches"):
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
    (dict(sharding=rows, device=jax.devices()[0]), "sharding and device are both given; give only one"),
    (dict(sharding=NamedSharding(mesh, P(None, "model"))), "does not split only rows"),
    (dict(sharding=jax.devices()[0]), "does not split only rows"),
    (dict(device=jax.devices()[0], devices="cpu"), "device and devices are both given; give only one"),
    (dict(devices="host:2"), "devices: 'host:2' names 2 devices; name only one, and start a process for each GPU"),
    (dict(devices="auto"), "devices: 'auto' is not a device; give 'cpu' or a GPU, such as 'cuda:0'"),
    (dict(devices=["cpu"]), "is not a device"),
    (dict(devices="cpu", sharding=rows), "only on cpu:0, but this process has different devices in the mesh"),
    (dict(devices="cpu", gpu_communicator="nccl"), "gpu_communicator: .* leave gpu_communicator out"),
    (dict(sharding=rows, rank=1, world_size=2), "JAX says process 0 of 1"),
]
for arguments, message in refused:
    with pytest.raises(feedline.Error, match=message):
        Loader(pipeline, output=narrow, **arguments)
for device in "cpu", 0:
    with pytest.raises(feedline.Error, match=f"device: {device!r} is not a device of JAX; give a device such as jax.devices"):
        Loader(pipeline, device=device, output=narrow)
uneven = Loader(pipeline, sharding=rows, output=narrow, batch={"global_batch_size": 16, "last_batch_policy": "PARTIAL"})
steps = iter(uneven)
assert [next(steps).rows for _ in range(3)] == [16] * 3
with pytest.raises(feedline.Error, match="step 3 has 2 rows .* for the last step .*last_batch_policy to DROP or PAD"):
    next(steps)
with pytest.raises(feedline.Error, match="step 0 has 10 rows in this process, .* 4 shards; set batch.global_batch_size to a multiple of 4"):
    next(iter(Loader(pipeline, sharding=rows, output=narrow)))
with pytest.raises(feedline.Error, match="'n' is ragged"):
    ragged = feedline.tfrecords(str(pipeline).split('"')[1]).feature("n", int, kind="VARIABLE").batch(8)
    Loader(ragged, sharding=rows, output=narrow)
import os
os.environ.update(RANK="1", WORLD_SIZE="2")
with pytest.raises(feedline.Error, match=r"started 2 processes, but JAX knows of only one; call jax.distributed.initialize"):
    Loader(pipeline, sharding=rows, output=narrow)
assert len(Loader(pipeline, output=narrow, batch={"global_batch_size": 10})) == 5  # the launcher's part of two
""",
        numbers,
        **EIGHT,
    )


def test_arrays_that_jax_copies(numbers):
    """The feed fills its memory again, the program keeps all arrays, donates them, or names another default device."""
    run(
        """
import pickle
from_dlpack, of_the_feed = jax.dlpack.from_dlpack, set()
def taken(tensor):
    array = from_dlpack(tensor)
    of_the_feed.add(array.unsafe_buffer_pointer())
    return array
jax.dlpack.from_dlpack = taken
names = "BOOL UINT8 INT8 UINT16 INT16 UINT32 INT32 FLOAT16 BFLOAT16 FLOAT32".split()
loader = Loader(pipeline, devices="cpu", output=[{"name": name, "feature": "n", "dtype": name} for name in names])
def check(batch, step):
    wanted = range(10 * step, 10 * step + 10)
    assert [batch[name].tolist() for name in names] == [[n % 256 if name != "BOOL" else n != 0 for n in wanted] for name in names]
    assert all(batch[name].dtype.name == name.lower() for name in names) and batch.valid_mask.tolist() == [True] * 10
    assert all(array.devices() == {jax.devices()[0]} for array in batch.values())
kept = [batch for _ in range(8) for batch in loader]
for number, batch in enumerate(kept):
    assert type(batch) is Batch and (batch.epoch, batch.step, batch.rows, batch.valid_count) == (*divmod(number, 5), 10, 10)
    check(batch, number % 5)
assert of_the_feed.isdisjoint(array.unsafe_buffer_pointer() for batch in kept for array in jax.tree.leaves(batch))
doubled = jax.jit(lambda x: 2 * x, donate_argnums=0)
assert [doubled(batch["INT32"]).tolist()[0] for batch in loader] == [0, 20, 40, 60, 80]
assert loader.report()["batches_copied"] == 0
rows = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",)), P("data"))
for context in jax.default_device(jax.devices()[1]), jax.set_mesh(Mesh(np.array(jax.devices()), ("all",))), jax.disable_jit():
    with context:
        for batch in loader:
            check(batch, batch.step)
        for batch in Loader(pipeline, devices="cpu", sharding=rows, output=narrow):
            assert batch["n"].sharding == rows and batch["n"].tolist() == list(range(10 * batch.step, 10 * batch.step + 10))
for refused in loader, Loader(pipeline, device=jax.devices()[0], output=narrow):
    with pytest.raises(TypeError, match="a sharding or a device of JAX cannot be pickled"):
        pickle.dumps(refused)
again = Loader(pipeline, devices="cpu", output=narrow, as_tuple=("n", "@valid"))
assert [n.tolist()[0] for n, valid in again if valid.all()] == [0, 10, 20, 30, 40]
""",
        numbers,
        **EIGHT,
    )


def test_what_jax_does_not_copy(mixed):
    run(
        """
jax.config.update("jax_enable_x64", True)
for name, kind in ("s", "strings"), ("list", "ragged"), ("words", "strings"):
    with pytest.raises(feedline.Error, match=f"output '{name}' is {kind}: if .*'devices' is given.* leave out 'devices', or leave out this output"):
        Loader(pipeline, devices="cpu", output=[{"name": name, "feature": name}])
padded = Loader(pipeline, devices="cpu", feature=[{"name": "list", "dtype": "INT64", "kind": "FIXED_SEQUENCE"}], output=[{"name": "list", "feature": "list"}])
assert [batch["list"].shape for batch in padded] == [(5, 3), (5, 3), (5, 3)]
import feedline.jax
class Gpu:
    local_hardware_id = 1
    def get_stream_for_external_ready_events(self):
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED")
jax.local_devices = lambda backend: [Gpu()]
for number, why in (0, "JAX has no such device"), (1, "UNIMPLEMENTED"):
    with pytest.raises(feedline.Error, match=f"JAX cannot take batches from cuda:{number} .{why}.*; leave out 'devices'"):
        feedline.jax._device_of("cuda", number)
""",
        mixed,
        **QUIET,
    )


# JAX on a GPU is played: it gives a tensor's memory back at once, and makes the copy of it when that is waited for.
LATE = """
import ctypes, os
import feedline.jax
class Taken:
    def __init__(self, tensor):
        array = np.from_dlpack(tensor)
        self.address, self.bytes = array.ctypes.data, array.nbytes
    def __len__(self):
        return 10
copies = []
class Copy:
    def __init__(self, taken):
        self.taken, self.content = taken, None
        copies.append(self)
    def is_deleted(self):
        return False
    def is_ready(self):
        return self.content is not None
    def block_until_ready(self):
        if not self.is_ready():
            self.content = ctypes.string_at(self.taken.address, self.taken.bytes)
jax.dlpack.from_dlpack, feedline.jax._copy = Taken, lambda batch: (batch, Copy(batch["n"]))
def check(steps):
    for step, one in zip(steps, copies, strict=True):
        assert np.frombuffer(one.content, np.int32).tolist() == list(range(10 * step, 10 * step + 10)), step
def made():
    return Loader(pipeline, devices="cpu", output=narrow, parallelism={"host_prefetch": 2})
"""


def test_late_copies_have_what_was_fed(numbers):
    run(
        LATE
        + """
steps = []
def take(batches, most):
    for batch in batches:
        steps.append(batch.step)
        assert [one.is_ready() for one in copies[-3:]] == [True, False, False][-len(steps):]
        if len(steps) == most:
            return
loader = made()
take((batch for _ in range(4) for batch in loader), 20)
take(loader, 23)
state = loader.state_dict()
loader.set_epoch(7)
take(loader, 26)
loader.load_state_dict(state)
take(loader, 28)
assert steps == [0, 1, 2, 3, 4] * 4 + [0, 1, 2, 0, 1, 2, 3, 4] and loader.report()["batches_copied"] == 0
loader.close()
check(steps)
""",
        numbers,
        **QUIET,
    )


def test_loaders_that_go_wait_for_their_copies(numbers):
    """By close(), or by the last reference; but not in a forked child. A wait that Ctrl-C has ended is made up for."""
    run(
        LATE
        + """
loader = made()
steps = iter(loader)
next(steps), next(steps)
child = os.fork()
if child == 0:
    Copy.block_until_ready = lambda copy: os._exit(6)
    loader.close()
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
def interrupted(copy):
    raise KeyboardInterrupt
Copy.block_until_ready, wait = interrupted, Copy.block_until_ready
try:
    next(steps)
except KeyboardInterrupt:
    Copy.block_until_ready = wait
assert not copies[0].is_ready()
del loader, steps
check([0, 1])
with made() as loader:
    for _, batch in zip(range(2), loader):
        pass
    assert not copies[-2].is_ready()
check([0, 1] * 2)
""",
        numbers,
        **QUIET,
    )


def test_loaders_are_closed_before_jax_ends(numbers):
    pytest.importorskip("jax")
    done = python(
        """
import atexit, os, sys
import feedline
atexit.register(lambda: os._exit(0 if "closed" in repr(loader) else 7))  # when JAX's own would be called
from feedline.jax import Loader
loader = Loader(feedline.Pipeline(sys.argv[1]), output=[{"name": "n", "feature": "n", "dtype": "INT32"}])
""",
        numbers,
        **QUIET,
    )
    assert done.returncode == 0, done.stderr


PROCESS = """
import json, os
rank = int(sys.argv[2])
jax.distributed.initialize("127.0.0.1:" + sys.argv[3], 2, rank)
devices = np.array(jax.devices())
def shards(array):
    return sorted((shard.index[0].start or 0, shard.data.tolist()) for shard in array.addressable_shards)
"""


def two_processes(code, pipeline, devices=2, before=""):
    """Runs the code in two processes of JAX, and `before` while they do not know of each other."""
    pytest.importorskip("jax")
    port, done = free_port(), [None, None]

    def start(rank):
        environment = {**QUIET, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        done[rank] = python(START + before + PROCESS + code, pipeline, rank, port, **environment)

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


def test_loaders_that_are_made_before_the_processes_are_joined(numbers):
    """They become the processes of the training when they are iterated."""
    parts = two_processes(
        """
seen = [batch["n"].tolist() for batch in early]
try:
    next(iter(other))
except feedline.Error as error:
    print(json.dumps([seen, str(error)]))
""",
        numbers,
        before="early, other = (Loader(pipeline, output=narrow, seed=seed) for seed in (0, int(sys.argv[2])))\n",
    )
    assert [first + second for first, second in zip(*(seen for seen, _ in parts))] == [
        list(range(10 * i, 10 * i + 10)) for i in range(5)
    ]
    assert all("seed" in told for _, told in parts)  # they compare notes then


def test_two_processes_with_a_device_each(numbers):
    """What a process copies is its part of the global arrays."""
    (sums, first), (other_sums, second) = two_processes(
        """
rows = NamedSharding(Mesh(devices, ("data",)), P("data"))
loader = Loader(pipeline, sharding=rows, devices="cpu", output=narrow, batch={"global_batch_size": 20})
total = jax.jit(lambda batch: jnp.sum(batch["n"]))
sums, local = [], []
for batch in loader:
    assert batch["n"].sharding == rows and batch["n"].shape == batch.valid_mask.shape == (20,) and batch.rows == 20
    sums.append(total(batch).item())
    local += shards(batch["n"])
print(json.dumps([sums, local]))
""",
        numbers,
        devices=1,
    )
    assert sums == other_sums == [sum(range(20)), sum(range(20, 40))]
    assert first == [[0, list(range(10))], [0, list(range(20, 30))]]
    assert second == [[10, list(range(10, 20))], [10, list(range(30, 40))]]
