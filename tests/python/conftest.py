"""What the tests of the Python package share: data, frameworks, and processes of their own."""

import functools
import os
import socket
import subprocess
import sys
import threading

import pytest

import feedline

ROOT = os.environ.get("FEEDLINE_ROOT", os.path.join(os.path.dirname(__file__), "..", ".."))
TOOL = os.environ.get("FEEDLINE_TOOL", os.path.join(ROOT, "build", "feedline"))


@pytest.fixture
def root():
    return os.path.abspath(ROOT)


@pytest.fixture
def tool():
    return os.path.abspath(TOOL)


@pytest.fixture
def numbers(tmp_path):
    """A pipeline of the numbers 0 to 49 in two files, in batches of 10: five steps an epoch."""
    for file in range(2):
        feedline.write(tmp_path / f"{file}.tfrecord", ({"n": file * 25 + i} for i in range(25)))
    return feedline.tfrecords(tmp_path / "*.tfrecord").feature("n", int).batch(10)


@pytest.fixture
def mixed(tmp_path):
    """Rows with a number, a string, and lists of numbers and strings of different lengths."""
    feedline.write(
        tmp_path / "mixed.tfrecord",
        (
            {"n": i, "s": f"text {i}", "list": list(range(i % 4)), "words": [f"w{j}" for j in range(i % 3)]}
            for i in range(12)
        ),
    )
    return (
        feedline.tfrecords(tmp_path / "mixed.tfrecord")
        .feature("n", int)
        .feature("s", bytes)
        .feature("list", int, kind="VARIABLE")
        .feature("words", bytes, kind="VARIABLE")
        .batch(5, last_batch_policy="PAD")
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(count, body):
    """Calls body(rank) for each rank, in threads of their own, and waits for all of them."""
    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# What keeps frameworks from looking for a GPU and from talking about it.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


# PyTorch without its own copies of CUDA's libraries finds those of the system.
CUDA = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), "/usr/local/cuda/lib64"]))


def python(code, *arguments, **environment):
    """Runs Python code in a process of its own, and returns the finished process."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LD_LIBRARY_PATH": CUDA, **environment},
    )


def trainer(name, *arguments, before=(), launcher=(), **environment):
    """Starts a trainer of examples/trainers. `before` is the command that starts its processes, or `launcher` the
    arguments of Python that do."""
    return subprocess.Popen(
        [*before, sys.executable, *map(str, launcher), os.path.join(ROOT, "examples/trainers", name), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": CUDA, "OMP_NUM_THREADS": "1", **QUIET, **environment},
    )


def kill_tree(process):
    """Kills a process with all that it has started, and waits for their end."""
    import psutil

    root = psutil.Process(process.pid)
    tree = [root, *root.children(recursive=True)]
    for one in tree:
        one.kill()
    psutil.wait_procs(tree)
    process.communicate()


def pytest_sessionfinish(session, exitstatus):
    """Tells Meson by exit code 77 that every case was skipped, and count_tests.py why."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and stats.get("skipped"):
        if not any(stats.get(result) for result in ("passed", "xfailed", "xpassed")):
            print("\nskipped:", stats["skipped"][0].longrepr[2].removeprefix("Skipped: "))
            session.exitstatus = 77


@functools.cache
def why_not(framework):
    """Returns why a framework cannot be imported; an empty text if it can."""
    done = python(f"import {framework}", **QUIET)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it cannot be imported"])[-1]


def need(*frameworks):
    """Skips the test if one of the frameworks cannot be imported."""
    for framework in frameworks:
        if why_not(framework):
            pytest.skip(f"{framework}: {why_not(framework)}")
