#!/usr/bin/env python3
"""gpu_results_test.py SOURCE: what scripts/gpu_results.py writes into copies of the documents, from results made up here."""

import json
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
DOCUMENTS = ("docs/limits.md", "gpu/README.md", "bench/results/gpus.md")
BEGIN, END = "<!-- ./dev gpu-results writes what follows -->", "<!-- until here -->"
ON = {"gpu": "NVIDIA H100, driver 580.1", "date": "2027-01-02"}


def figure(name: str, value: float) -> dict:
    return {"name": name, "what": f"what {name} is", "value": value, "min": value - 0.125, "max": value + 0.125}


def bench(**values: float) -> dict:
    return {"batch": 4096, "figures": [figure(name.replace("_", "/"), value) for name, value in values.items()]}


def path_of_feed(cores: int, against: bool) -> dict:
    return {"name": "chess: board / (read)", "value": cores * 1e6, "ratio": 0.95 if against else 0.9}


RESULTS = [
    {"name": "unpack", "verdict": "passed", "why": "3000 specs", **ON},
    {"name": "copy", "verdict": "passed", "why": "skipped: 2 GPUs are wanted", **ON},
    {"name": "copy-after-host-function", "verdict": "passed", "figures": {"4 bytes": "what was there"}, **ON},
    {"name": "feed", "verdict": "failed", "why": "a | b", **ON},
    {"name": "python: torch", "of": "python", "verdict": "passed", "figure": {"steps/s": 5, "kept": 2}, **ON},
    {"name": "python: jax", "of": "python", "verdict": "passed", "figure": None, **ON},
    {"name": "python", "verdict": "passed", **ON},
    {"name": "nccl", "verdict": "skipped", "why": "there is no NCCL", **ON},
    {"name": "thousand-feeders", "verdict": "hung", "why": "it took more than 60 s", "gpu": "NVIDIA H200", "date": "2027-01-03"},
    {"name": "tables", "verdict": "passed", "gpu": "no GPU", "date": "2027-01-03"},
    {"name": "gpu-bench", "verdict": "failed", "why": "MISSED", "figures": bench(copy_link=0.75, unpack_memset=0.875, link=25), **ON},
    {"name": "gpu-bench-1-connection", "verdict": "passed", "figures": bench(copy_link=0.5), **ON},
    {"name": "trainers", "verdict": "passed", "figures": {"chess": {"feedline": [
        {"step_ms": 2.0, "wait_ms": 0.5, "gpu_idle": 0.25, "cpu_ms": 3.0}, {"step_ms": 4.0, "wait_ms": 0.5, "cpu_ms": 3.0},
        {"step_ms": 9.0, "wait_ms": 0.5, "cpu_ms": 3.0}]}}, **ON},
    {"name": "ncu-bits", "verdict": "passed", "figures": {"DRAM Throughput": "% 91.5"}, **ON},
    {"name": "unpack-rates", "verdict": "passed", "figures": {"an image": "5 GB/s"}, **ON},
    {"name": "cores", "verdict": "passed", "figures": {
        "1 core": [path_of_feed(1, False)], "16 cores": [path_of_feed(16, False)], "16 cores against 1": [path_of_feed(16, True)]},
     **ON},
    {"name": "memcheck-feed", "verdict": "not run", "why": "3 s were left, and it may take 180 s"},
]  # fmt: skip


def written(root: pathlib.Path, entries: list[dict]) -> tuple[dict[str, str], str]:
    """Returns what the documents have between their marks afterwards, and what the script says."""
    (root / "results.json").write_text(json.dumps({"steps": entries}))
    command = [sys.executable, SOURCE / "scripts" / "gpu_results.py", root]
    said = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    blocks = {}
    for name in DOCUMENTS:
        before, _, rest = (root / name).read_text(encoding="utf-8").partition(BEGIN)
        blocks[name], _, after = rest.partition(END)
        original = (SOURCE / name).read_text(encoding="utf-8")
        assert original.startswith(before + BEGIN) and original.endswith(END + after), f"{name} has changed beside its marks"
    return blocks, said


def test(root: pathlib.Path) -> None:
    for name in DOCUMENTS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text((SOURCE / name).read_text(encoding="utf-8"), encoding="utf-8")

    before = {name: (root / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    for bad, wanted in (
        ({"steps": []}, "no step of it was run on a GPU"), ({}, "'steps'"), ([], "is no result"),
        ({"steps": [{"name": "trainers", "verdict": "passed", "figures": {"chess": {"feedline": []}}, **ON}]}, "is no result"),
    ):  # fmt: skip
        (root / "results.json").write_text(json.dumps(bad))
        refused = subprocess.run([sys.executable, SOURCE / "scripts" / "gpu_results.py", root], cwd=root, capture_output=True, text=True)
        assert refused.returncode == 1 and wanted in refused.stderr and "Traceback" not in refused.stderr, refused.stderr
        assert before == {name: (root / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    (root / "old.md").write_text("Nothing has run on a GPU yet.\n", encoding="utf-8")

    blocks, said = written(root, RESULTS)
    assert "old.md:1: still says: Nothing has run on a GPU yet." in said.splitlines(), said
    left = [line for line in said.splitlines() if "still says: " not in line]
    assert left == [
        "not run on a GPU: nccl: skipped: there is no NCCL",
        "not run on a GPU: tables: passed: ",
        "not run on a GPU: memcheck-feed: not run: 3 s were left, and it may take 180 s"], said  # fmt: skip
    on = "NVIDIA H100, driver 580.1, 2027-01-02"
    limits = blocks["docs/limits.md"].splitlines()
    for line in (
        f"| passes | **failed**: feed, less the cases for several GPUs of copy, not run: nccl, not run: nccl-feed, not run: nccl-processes, not run: data-parallel; {on} |",
        f"PyTorch, CuPy and JAX: the host's bytes | passes | passed; {on} |",
        "| memory and files as before | **hung**: thousand-feeders; NVIDIA H200, 2027-01-03 |",
        "in the suite `gpu` | passes | not run |",
        f"| 0.90 of a bare pinned copy | 0.75 (0.625 to 0.875); {on} |",
        "| 0.60 of what the host's CPUs could have ready | not run |",
    ):
        assert sum(row.endswith(line) for row in limits) == 1, (line, limits)
    for line in (
        f"| feed | **failed**: a \\| b | {on} |",
        f"| copy | passed, less cases for several GPUs | {on} |",
        f"| python: torch | passed: steps/s 5, kept 2 | {on} |",
        f"| unpack, copy-after-host-function, python: jax, python, gpu-bench-1-connection, trainers, ncu-bits, unpack-rates, cores | passed | {on} |",
        "| thousand-feeders | **hung**: it took more than 60 s | NVIDIA H200, 2027-01-03 |",
        "| bits | % 91.5 |",
        "| an image | 5 GB/s |",
        "| 4 bytes | what was there |",
    ):
        assert line in blocks["gpu/README.md"].splitlines(), (line, blocks["gpu/README.md"])
    assert "tables" not in blocks["gpu/README.md"] and "memcheck" not in blocks["gpu/README.md"]
    for line in (
        "| copy/link | what copy/link is | 0.75 (0.625 to 0.875) | 0.5 (0.375 to 0.625) |",
        "| link | what link is | 25 (24.9 to 25.1) |  |",
        "| chess | feedline | 250 | 0.5 | 25% | 3 |",
        "| chess: board / (read) | 1000 k, 0.90 | 16000 k, 0.90 |",
    ):
        assert line in blocks["bench/results/gpus.md"].splitlines(), (line, blocks["bench/results/gpus.md"])

    again, _ = written(root, RESULTS)
    assert again == blocks


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        test(pathlib.Path(folder))


if __name__ == "__main__":
    main()
