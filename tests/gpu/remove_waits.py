#!/usr/bin/env python3
"""Shows that the tests on fake GPUs notice each missing wait: removes one after another, builds, and runs the tests.

  tests/gpu/remove_waits.py BUILD [WORD]     only the waits of files with WORD in their names

BUILD is a build directory with CUDA, whose sources it changes and restores; so commit first. Streams of fake GPUs work at
once, or only when somebody waits for them, or after random delays (FAKE_CUDA_PACE). Exits with 1 if no test fails
without some wait. It takes about two minutes for each wait.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEED, BETWEEN = "tests/feeder/fake_device_feed_test", "tests/feeder/fake_nccl_feed_test"
RANKS, TRAINING = "tests/ranks/fake_nccl_test", "tests/trainer_bridge/fake_data_parallel_test"
FILES = {
    "gpu/cuda/cuda_ring.cc": [FEED, BETWEEN],
    "gpu/cuda/cuda_copy.cc": [FEED],
    "gpu/cuda/cuda_peer.cc": [FEED],
    "gpu/cuda/cuda_queue.cc": [TRAINING, RANKS],
    "ranks/nccl/nccl_communicator.cc": [RANKS, BETWEEN, TRAINING],
}
PACES = ["lazy", "delayed:1", "", "delayed:2"]
# A wait, up to the bracket before its arguments, and what stands in for it: it takes the same arguments and does nothing.
WAITS = [
    (re.compile(r"([\w.\->\[\]]+)(?:\.|->)wait_on\("), r"[](auto&&...) {}(\1, "),
    (re.compile(r"([\w.\->\[\]]+)(?:\.|->)wait\("), r"[](auto&&...) {}(\1"),
    (re.compile(r"cuda(?:Stream|Event)Synchronize\("), r"[](auto) { return cudaGetLastError(); }("),
]


def failing(build, programs):
    """Returns the program and pace with which a test fails; None if all pass."""
    for pace in PACES:
        for program in programs:
            environment = dict(os.environ, FAKE_CUDA_PACE=pace)
            try:
                if subprocess.run([build / program, "--abort"], env=environment, capture_output=True, timeout=400).returncode != 0:
                    return program, pace or "at once"
            except subprocess.TimeoutExpired:
                return program, f"{pace or 'at once'}: does not end"
    return None


def main():
    build, word = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else ""
    unnoticed = 0
    for name, programs in FILES.items():
        if word not in name:
            continue
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
                found = ("does not compile", built.stdout[-300:]) if built.returncode else failing(build, programs)
            finally:
                file.write_text(text)
            print(f"{name}:{line}: {code.strip()}\n    {'NO TEST FAILS' if found is None else ': '.join(found)}", flush=True)
            unnoticed += found is None or found[0] == "does not compile"
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
