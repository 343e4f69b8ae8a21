"""The examples of python/README.md. One that needs a framework names it: ```py run torch."""

import os
import re

import pytest
from conftest import QUIET, ROOT, need, python

with open(os.path.join(ROOT, "python/README.md"), encoding="utf-8") as readme:
    BLOCKS = re.findall(r"(?ms)^```py run *(\w*)\n(.*?)^```$", readme.read())


@pytest.fixture
def folder(root, tmp_path, monkeypatch):
    """A folder from which the examples find the data of the tests."""
    for name in ("examples", "tests"):
        os.symlink(os.path.join(root, name), tmp_path / name)
    monkeypatch.chdir(tmp_path)


def test_the_examples_run(folder, capsys):
    blocks = [block for framework, block in BLOCKS if not framework]
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, "python/README.md", "exec"), {})
    assert "steps an epoch" in capsys.readouterr().out


@pytest.mark.parametrize("framework", sorted({framework for framework, _ in BLOCKS if framework} - {"tensorboard"}))
def test_the_examples_of_a_framework_run(folder, framework):
    need(framework)
    for needed, block in BLOCKS:
        if needed == framework:
            done = python(block, **QUIET)
            assert done.returncode == 0, done.stderr


def test_tensorboard_reads_what_its_example_writes(folder):
    need("tensorboard", "torch")
    (block,) = [block for framework, block in BLOCKS if framework == "tensorboard"]
    read = """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator("runs/digits").Reload()
assert [one.step for one in events.Scalars("feedline/data_readiness_ratio")] == list(range(len(loader)))
assert all(0 <= one.value <= 1 for one in events.Scalars("feedline/next_wait_ratio"))
(last,) = events.Tensors("feedline/verdict/text_summary")[-1].tensor_proto.string_val
assert last.decode() == report["verdict"]
"""
    done = python(block + read, **QUIET)
    assert done.returncode == 0, done.stderr
