"""The checks of scripts/gpu that a machine with a GPU makes, on the host: those that need no GPU pass, and the others say
so. What runs them goes on after a check that fails, hangs or ends its process."""

import json
import os
import subprocess
import sys

import pytest

NEED_A_GPU = {
    "torch_on_a_busy_side_stream",
    "torch_on_a_second_stream",
    "torch_captures_while_feeding",
    "torch_drops_inside_a_capture",
    "cupy_on_a_busy_stream",
}

def start(*command, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=900, env={**os.environ, **environment}
    )


def test_the_checks(root, tmp_path):
    found = tmp_path / "found.json"
    done = start(
        f"{root}/scripts/gpu/checks_python.py", root, "--device", "cpu", "--json", found, CUDA_VISIBLE_DEVICES="",
        JAX_PLATFORMS="cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = {result["name"]: result for result in map(json.loads, found.read_text().splitlines())}
    assert {name for name, result in results.items() if result["why"] == "it needs a GPU"} == NEED_A_GPU
    for result in results.values():
        assert set(result) == {"name", "seconds", "verdict", "figure", "why"}
        assert result["verdict"] == ("skipped" if result["why"] else "passed")
    examples = {name.removesuffix(".textproto") for name in os.listdir(f"{root}/examples") if name.endswith(".textproto")}
    assert {name.removeprefix("example_") for name in results if name.startswith("example_")} == examples
    if lacking := {results[name]["why"] for name in results.keys() - NEED_A_GPU} - {""}:
        pytest.skip("; ".join(sorted(lacking)))
    assert results["steps_per_second"]["figure"]["steps/s"] > 0


def test_a_wrong_name_or_device(root):
    for arguments, message in (["cpu", "--only", "torch"], "there is no check torch"), (["gpu"], "--device gpu: it must be"):
        done = start(f"{root}/scripts/gpu/checks_python.py", root, "--device", *arguments)
        assert done.returncode == 2 and message in done.stderr


PROGRAM = """
import json, os, signal, sys, threading
from in_turn import Check, Skip, results, work

def fails():
    raise ValueError("so it is")
def skips():
    raise Skip("there is nothing")
def hangs_for_ever():
    threading.Event().wait()
def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)
def ends():
    os._exit(3)
def spoils_the_exit():
    import atexit
    atexit.register(os._exit, 4)

calls = dict(passes=lambda: {"process": os.getpid()}, fails=fails, skips=skips, hangs=hangs_for_ever, killed=is_killed,
             passes_again=lambda: {"process": os.getpid()}, and_again=lambda: {"process": os.getpid()}, ends=ends,
             spoils=spoils_the_exit)
checks = [Check(name, call, 1 if name == "hangs" else 600) for name, call in calls.items()]
if len(sys.argv) > 1:
    work([check for check in checks if check.name in sys.argv[2:]], int(sys.argv[1]))
else:
    print("".join(json.dumps(result) + "\\n" for result in results(checks, [sys.executable, "-X", "faulthandler", __file__])))
"""


def test_checks_that_do_not_pass(root, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = start(tmp_path / "program.py", PYTHONPATH=f"{root}/scripts/gpu")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(result["name"], result["verdict"], result["why"]) for result in found] == [
        ("passes", "passed", ""),
        ("fails", "failed", "ValueError: so it is"),
        ("skips", "skipped", "there is nothing"),
        ("hangs", "failed", "it has not ended in 1 s; the log has the stacks of its threads"),
        ("killed", "failed", "its process was ended by SIGKILL"),
        ("passes_again", "passed", ""),
        ("and_again", "passed", ""),
        ("ends", "failed", "its process ended with exit status 3"),
        ("spoils", "passed", ""),
        ("exit", "failed", "the process of 1 checks ended with exit status 4"),
    ]
    assert found[5]["figure"] == found[6]["figure"] != found[0]["figure"]
    assert "in hangs_for_ever" in done.stderr and "in fails" in done.stderr
