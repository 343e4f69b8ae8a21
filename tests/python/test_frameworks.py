"""One process with everything else: frameworks that are imported before and after feedline, and take its tensors.

A framework that is not installed, or cannot be imported by itself, is skipped with the reason.
"""

import ctypes.util
import json
import os

import pytest
from conftest import QUIET, free_port, need, python, run_ranks, why_not

FRAMEWORKS = ["tensorflow", "torch", "jax", "nvidia.dali"]
JEMALLOC = ctypes.util.find_library("jemalloc")

FEED = """
import importlib, os, sys
def use(names):
    for name in names.split():
        if name == "global":
            sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        else:
            importlib.import_module(name)
use(sys.argv[2])
import feedline
def feed():
    return sum(batch.valid_count for batch in feedline.Loader(sys.argv[1]))
rows = feed()
use(sys.argv[3])
try:
    feedline.Pipeline("nonsense")
except feedline.Error:
    print(rows + feed())
"""


@pytest.mark.parametrize("order", ["{}|", "|{}", "global {}|", "global|{}"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_import_orders(root, framework, order):
    need(framework)
    before, after = order.format(framework).split("|")
    done = python(FEED, os.path.join(root, "examples/digits.textproto"), before, after, **QUIET)
    assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr


def test_all_of_them(root):
    there = [framework for framework in FRAMEWORKS if not why_not(framework)]
    if len(there) < 2:
        pytest.skip("fewer than two frameworks are installed")
    for order in (there, there[::-1]):
        done = python(FEED, os.path.join(root, "examples/digits.textproto"), " ".join(order[:1]), " ".join(order[1:]), **QUIET)
        assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr


@pytest.mark.parametrize("framework", ["", *FRAMEWORKS])
def test_with_jemalloc(root, framework):
    if not JEMALLOC:
        pytest.skip("there is no jemalloc")
    if framework:
        need(framework)
    done = python(FEED, os.path.join(root, "examples/digits.textproto"), framework, "", LD_PRELOAD=JEMALLOC, **QUIET)
    assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr


TAKE = {
    "torch": """
import torch
take = torch.from_dlpack
kept = [take(batch["n"]) for batch in loader]
assert [t.tolist() for t in kept] == wanted and kept[0].dtype == torch.int64
kept[0][0] = 99  # a batch is the user's
""",
    "jax": """
import jax, warnings
jax.config.update("jax_enable_x64", True)
kept = [jax.numpy.from_dlpack(batch["n"]) for batch in loader]
assert [k.tolist() for k in kept] == wanted
jitted = jax.jit(lambda x: x * 2)
loader.set_epoch(0)
late = [jitted(jax.numpy.from_dlpack(batch["n"])) for batch in loader]
assert [k.tolist() for k in late] == [[2 * n for n in step] for step in wanted]
""",
    "tensorflow": """
import tensorflow as tf
kept = [tf.experimental.dlpack.from_dlpack(batch["n"].__dlpack__()) for batch in loader]
assert [k.numpy().tolist() for k in kept] == wanted
dataset = tf.data.Dataset.from_generator(
    lambda: (batch["n"] for batch in feedline.Loader(pipeline)), output_signature=tf.TensorSpec([10], tf.int64))
assert [k.tolist() for k in dataset.as_numpy_iterator()] == wanted
""",
}


@pytest.mark.parametrize("framework", TAKE)
def test_tensors_are_taken(numbers, framework):
    need(framework)
    start = """
import sys, warnings
warnings.simplefilter("ignore")
import feedline
pipeline = feedline.Pipeline(sys.argv[1])
loader = feedline.Loader(pipeline)
wanted = [list(range(10 * i, 10 * i + 10)) for i in range(5)]
"""
    done = python(start + TAKE[framework] + "\nprint('good')", numbers, **QUIET)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@pytest.mark.parametrize("communicator", ["dist.group.WORLD", "feedline.Tcp(exchange=dist.group.WORLD)"])
def test_ranks_of_a_process_group(numbers, communicator):
    need("torch")
    code = f"""
import json, sys, feedline, numpy as np, torch.distributed as dist
dist.init_process_group("gloo")
loader = feedline.Loader(feedline.Pipeline(sys.argv[1]), communicator={communicator}, shuffle={{"buffer_size": 50}})
print(json.dumps([np.asarray(batch["n"]).tolist() for batch in loader]))
dist.barrier()  # a loader that goes may end the feed of the other rank
"""
    port, done = str(free_port()), [None, None]

    def run(rank):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        done[rank] = python(code, numbers, **QUIET, **place)

    run_ranks(2, run)
    assert [rank.returncode for rank in done] == [0, 0], [rank.stderr for rank in done]
    steps = [json.loads(rank.stdout) for rank in done]
    assert [len(rank) for rank in steps] == [5, 5]
    assert sorted(n for rank in steps for step in rank for n in step) == list(range(50))
