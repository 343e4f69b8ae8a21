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


@pytest.mark.parametrize("framework", sorted({framework for framework, _ in BLOCKS if framework}))
def test_the_examples_of_a_framework_run(folder, framework):
    need(framework)
    for needed, block in BLOCKS:
        if needed == framework:
            done = python(block, **QUIET)
            assert done.returncode == 0, done.stderr
