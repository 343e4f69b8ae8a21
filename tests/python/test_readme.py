"""The examples of python/README.md."""

import os
import re


def test_the_examples_run(root, tmp_path, monkeypatch, capsys):
    with open(os.path.join(root, "python/README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"(?ms)^```py run\n(.*?)^```$", file.read())
    assert len(blocks) >= 2
    os.symlink(os.path.join(root, "tests"), tmp_path / "tests")
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, "python/README.md", "exec"), {})
    assert "steps an epoch" in capsys.readouterr().out
