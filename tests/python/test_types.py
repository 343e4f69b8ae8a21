"""What type checkers and editors are told: annotations, the stub of the extension module, and docstrings."""

import inspect
import os
import re
import subprocess
import sys

import pytest
from conftest import need

import feedline

PROGRAM = """
from typing import Any, assert_type

import numpy as np

import feedline

pipeline = feedline.tfrecords("*.tfrecord").feature("n", int).output("x", feature="n", dtype=np.float32).batch(512)
with feedline.Loader(pipeline, devices="host:2", as_tuple=("x", "@valid"), batch={"global_batch_size": 64}) as loader:
    for step in loader:
        assert_type(step, Any)
batch: feedline.Batch = next(iter(feedline.Loader("x.textproto", rank=0, world_size=1)))
assert_type((batch.epoch, batch.rows), tuple[int, int])
tensor = batch.valid_mask
assert_type(tensor, feedline.Tensor)
assert_type(tensor.shape, tuple[int, ...])
assert_type((tensor.dtype, tensor.ndim, tensor.size, tensor.nbytes, len(tensor)), tuple[str, int, int, int, int])
assert_type(bytes(tensor), bytes)
np.asarray(tensor)
np.from_dlpack(tensor)
text: feedline.Strings = batch["text"]
assert_type(text.tolist(), list[bytes])
assert_type(loader.elements()[0].shape, tuple[int, ...])
loader.load_state_dict(loader.state_dict(epoch=1, step=3), accept_changes=True)
assert_type((loader.epoch, loader.step), tuple[int, int])
loader.set_weights(np.array([1.0, 2.0]))
for record in feedline.records("x.tfrecord", on_error="skip"):
    assert_type(feedline.parse_example(record), dict[str, list[Any]])
with feedline.RecordWriter("x.tfrecord") as writer:
    writer.write({"n": 1})
try:
    feedline.write("x.tfrecord", [b"record"])
except feedline.Error as error:
    print(error.category, error.file)
"""


def mypy(program, folder):
    """Returns the errors that mypy finds in a program. Its cache is in the folder."""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--allow-any-generics", "--follow-imports=silent", "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": os.path.dirname(os.path.dirname(feedline.__file__))},
    )
    return done.stdout + done.stderr if done.returncode else ""


def test_a_program(tmp_path):
    pytest.importorskip("mypy")
    assert mypy(PROGRAM, tmp_path) == ""
    assert "int" in mypy(PROGRAM + "loader.set_epoch('a')\n", tmp_path)


# For each framework: a program, one line more that is wrong, and what mypy says of that.
FRAMEWORKS = {
    "numpy": (
        """
from typing import Any, assert_type

from feedline.numpy import Batch, Loader

with Loader("x.textproto", rank=0, world_size=1, batch={"global_batch_size": 8}) as loader:
    batch: Batch = next(iter(loader))
    assert_type((batch.step, batch["x"]), tuple[int, Any])
""",
        "Loader(5)",
        'incompatible type "int"',
    ),
    "torch": (
        """
from feedline.torch import Batch, Loader

loader = Loader("x.textproto", device="cuda:0", ragged="nested", as_tuple=("x", "y"))
assert loader.next_into((1, 2)) in (True, False)
batch: Batch = next(iter(Loader("x.textproto"))).to("cpu", non_blocking=True).pin_memory()
""",
        "Loader('x.textproto', mesh=4)",
        '"mesh" .* has incompatible type "int"',
    ),
    "jax": (
        """
import jax
from jax.sharding import NamedSharding

from feedline.jax import Batch, Loader

def split(sharding: NamedSharding) -> Loader:
    return Loader("x.textproto", sharding=sharding, devices="cuda:0")

batch: Batch = next(iter(Loader("x.textproto", device=jax.devices()[0])))
""",
        "Loader('x.textproto', rank='0')",
        '"rank" .* has incompatible type "str"',
    ),
    "tf": (
        """
from typing import Any, assert_type

from feedline.tf import Batch, Loader

loader = Loader("x.textproto", as_tuple=("x", "y"), devices="host")
for step in loader.dataset():
    loader.load_state_dict(loader.state_dict(epoch=1, step=2))
assert_type((len(loader), loader.epoch), tuple[int, int])
batch: Batch = next(iter(Loader("x.textproto")))
assert_type((batch.rows, batch["x"]), tuple[int, Any])
""",
        "loader.state_dict(epoch='1')",
        '"epoch" .* has incompatible type "str"',
    ),
    "keras": (
        """
from collections.abc import Generator
from typing import Any, assert_type

from feedline.keras import SaveState, Validation, steps
from feedline.numpy import Loader

loader = Loader("x.textproto")
assert_type(steps(loader, ["x", "y"], {"z": "z"}, "@valid"), Generator[tuple[Any, ...], None, None])
validation = Validation(loader, "x", y="y")
assert_type((len(validation), validation[0]), tuple[int, tuple[Any, ...]])
save = SaveState(loader, "folder", every=5)
save.on_train_batch_end(3)
""",
        "steps(loader, 5)",
        'has incompatible type "int"',
    ),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_program_of_a_framework(tmp_path, name):
    pytest.importorskip("mypy")
    need({"tf": "tensorflow"}.get(name, name))
    program, wrong, message = FRAMEWORKS[name]
    found = mypy(f"{program}{wrong}\n", tmp_path)
    assert re.match(rf"program.py:{program.count(chr(10)) + 1}: error: .*{message}", found), found
    assert found.count("error:") == 1, found


PROTOCOLS = ["__array__", "__bytes__", "__dlpack__", "__dlpack_device__", "__iter__", "__len__"]


@pytest.mark.parametrize("name", feedline.__all__)
def test_what_is_public_has_a_docstring(name):
    public = getattr(feedline, name)
    assert public.__doc__
    for member, value in vars(public).items() if inspect.isclass(public) else ():
        if not member.startswith("_") or member in PROTOCOLS:
            described_by_the_class = inspect.ismemberdescriptor(value) or not hasattr(value, "__get__")
            assert described_by_the_class or inspect.getdoc(value), member
