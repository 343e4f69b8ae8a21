#!/usr/bin/env python3
"""Shows that the tests on fake GPUs notice each missing wait: removes one after another, builds, and runs the tests.

  tests/gpu/remove_waits.py BUILD [WORD]     only the waits of files with WORD in their names

BUILD is a build directory with CUDA, whose sources it changes and restores; so commit first. Streams of fake GPUs work
at once, or only when somebody waits for them, or after random delays (FAKE_CUDA_PACE). All programs must pass with all
waits; how long they take says when one that lacks a wait does not end; so nothing else should run meanwhile. Exits with
1 if no test fails without some wait. It takes ten minutes with all waits, then up to a minute for each, and half an hour
for one that no test notices.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RING, FEED = "tests/gpu/fake_device_ring_test", "tests/feeder/fake_device_feed_test"
BETWEEN, RANKS = "tests/feeder/fake_nccl_feed_test", "tests/ranks/fake_nccl_test"
TRAINING = "tests/training/fake_data_parallel_test"
FILES = {
    "gpu/cuda/cuda_ring.cc": [RING, FEED, BETWEEN],
    "gpu/cuda/cuda_copy.cc": [RING, FEED],
    "gpu/cuda/cuda_peer.cc": [RING, FEED],
    "gpu/cuda/cuda_handles.h": [RING, FEED],
    "gpu/cuda/cuda_queue.cc": [TRAINING, RANKS],
    "ranks/nccl/nccl_communicator.cc": [RANKS, BETWEEN, TRAINING],
    "training/asynchronous.cc": [TRAINING],
    "training/buckets.cc": [TRAINING],
    "training/data_parallel.cc": [TRAINING],
    "training/places.cc": [TRAINING],
    "flowgraph/feed/upload.cc": [FEED],
    "flowgraph/table/table.cc": [FEED],
}
PACES = ["lazy", "delayed:1", "", "delayed:2"]
# Most of the time goes into tests that make call after call fail. They run only if the others have noticed nothing.
OTHERS = ["~any failing CUDA call*", "~whatever call*", "~a table on GPUs*", "~a thousand feeders*", "~a long wait*", "~[.alone]"]
# A wait, and what stands in for it: it takes the same arguments and does nothing.
WAIT = r"\b(?!reading)([\w.\->\[\]()]+)(?:\.|->)(?:wait_on|wait|follow|follow_mark|lead|drain)"
WAITS = [
    (re.compile(WAIT + r"\((?!\)|lock)"), r"[](auto&&...) {}(\1, "),
    (re.compile(WAIT + r"\(\)"), r"[](auto&&...) {}(\1)"),
    (re.compile(r"(?<!void )wait_for_streams\(\);"), "{}"),
    (re.compile(r"cuda(?:Stream|Event)Synchronize\("), r"[](auto) { return cudaGetLastError(); }("),
]


def run(build, program, pace, tests, limit):
    """Returns in words how the program's tests failed; None if they passed."""
    command, environment = [build / program, "--abort", *tests], dict(os.environ, FAKE_CUDA_PACE=pace)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=limit)
    except subprocess.TimeoutExpired:
        return f"{program}: {pace or 'at once'}: does not end"
    if done.returncode == 0:
        return None
    last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return f"{program}: {pace or 'at once'}: exit {done.returncode}: {last[-1] if last else ''}"


def limits_of(build, programs):
    """Returns how many seconds each run of a program may take: one that ends takes far less. All must pass."""
    limits = {}
    for program in programs:
        for pace in PACES:
            begun = time.monotonic()
            failure = run(build, program, pace, OTHERS, 900)
            if failure:
                sys.exit(f"With all waits: {failure}")
            limits[program, pace] = 10 + 4 * (time.monotonic() - begun)
    return limits


def failing(build, programs, limits):
    """Returns how a test fails; None if all pass."""
    runs = sorted(((program, pace) for program in programs for pace in PACES), key=lambda one: limits[one])
    quick = (run(build, program, pace, OTHERS, limits[program, pace]) for program, pace in runs)
    whole = (run(build, program, pace, ["~[.alone]"], 900) for program, pace in runs)
    return next(filter(None, itertools.chain(quick, whole)), None)


def main():
    build, word = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else ""
    unnoticed = 0
    files = {name: programs for name, programs in FILES.items() if word in name}
    wanted = sorted({program for programs in files.values() for program in programs})
    subprocess.run(["ninja", "-C", build, *wanted], check=True, stdout=subprocess.DEVNULL)
    limits = limits_of(build, wanted)
    for name, programs in files.items():
        file = ROOT / name
        text = file.read_text()
        for line, code in enumerate(text.splitlines(), 1):
            wait = next(((found, instead) for found, instead in WAITS if found.search(code)), None)
            if not wait or code.lstrip().startswith("//"):
                continue
            lines = text.splitlines(keepends=True)
            lines[line - 1] = wait[0].sub(wait[1], lines[line - 1])
            try:
                file.write_text("".join(lines))
                built = subprocess.run(["ninja", "-C", build, *programs], capture_output=True, text=True)
                compiles = built.returncode == 0
                found = failing(build, programs, limits) if compiles else f"does not compile: {built.stdout[-300:]}"
            finally:
                file.write_text(text)
            print(f"{name}:{line}: {code.strip()}\n    {found or 'NO TEST FAILS'}", flush=True)
            unnoticed += found is None or not compiles
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
