#!/usr/bin/env python3
"""Estimates how many GPUs a workstation can feed: scale.py FEED.json.

`feed_bench --threads 2 --json FEED.json` writes FEED.json.

Prints Markdown. bench/results/disk.md has the model, its assumptions, and how well it predicts what was measured."""
import json
import statistics
import sys
from typing import NamedTuple


class Work(NamedTuple):
    data: str            # the data set of feed_bench
    stages: list         # the stages that a record passes
    stored: int          # bytes of a record on disk
    delivered: int       # bytes of a record that go to a GPU
    written: int         # bytes of a record that are written to main memory past the caches
    path: str | None  # the path of feed_bench, if it has one
    appetites: list      # the demands of GPUs, in records/s


WORK = {
    "chess, packed": Work("chess", ["read", "CRC", "walk", "gather"], 245, 202, 0, "features as they are", [100e3, 1e6]),
    "chess, float32 board": Work("chess", ["read", "CRC", "walk", "unpack"], 245, 6144, 0, "float32 board", [100e3, 1e6]),
    "3 KB images, packed": Work("3 KB images", ["read", "CRC", "walk"], 3121, 3080, 3080, None, [50e3]),
    "3 KB images, float32": Work("3 KB images", ["read", "CRC", "walk", "unpack"], 3121, 12296, 2 * 12288, "float32", [50e3]),
    "197 KB images, packed": Work("197 KB images", ["read", "CRC", "copy"], 196700, 196608, 196608, "uint8", [1786]),
    "197 KB images, float32": Work("197 KB images", ["read", "CRC", "walk", "unpack"], 196700, 786432, 786432, "float32", [1786]),
    "2.83 MB records": Work("2.83 MB records", ["read", "CRC"], 2830044, 2830000, 2 * 2830000, "uint8", [286]),
    "click log": Work("click log", ["read", "CRC", "walk", "gather"], 393, 472, 0, "dense arrays", [2e6]),
}
# Cores, NVMe drives, bytes/s of a drive, of a GPU's link, of main memory (3/4 of 2, 4 and 8 channels of DDR5-5200).
MACHINES = {
    "16 cores, 1 NVMe, PCIe 4": (16, 1, 7e9, 25e9, 62e9),
    "16 cores, 2 NVMe, PCIe 5": (16, 2, 13e9, 50e9, 62e9),
    "32 cores, 2 NVMe, PCIe 4": (32, 2, 7e9, 25e9, 125e9),
    "32 cores, 4 NVMe, PCIe 5": (32, 4, 13e9, 50e9, 125e9),
    "64 cores, 4 NVMe, PCIe 5": (64, 4, 13e9, 50e9, 250e9),
}
COPY_TRAFFIC = 3  # a copied byte is read, fetched for writing, and written


class Costs:
    def __init__(self, report):
        self.tables = {cores: {row["name"]: row["value"] for row in report[f"{cores} core{'s' * (cores > 1)}"]} for cores in (1, 2)}
        measured = [(name, self.measured(name, 1)) for name in WORK if WORK[name].path]
        self.overhead = statistics.median(1 / rate / self.bare_s(name) for name, rate in measured)
        gains = [self.measured(name, 2) / rate for name, rate in measured]
        self.more_cores = statistics.median(gains) / 2  # the rate of a core beside others, relative to a core alone
        self.memory_bytes_s = COPY_TRAFFIC * self.tables[2]["2.83 MB records: memory copy"] * WORK["2.83 MB records"].stored

    def bare_s(self, name):
        return sum(1 / self.row(name, stage, 1) for stage in WORK[name].stages)

    def row(self, name, title, cores):
        return next(v for k, v in self.tables[cores].items() if k.startswith(f"{WORK[name].data}: {title} /"))

    def measured(self, name, cores):
        return WORK[name].path and self.row(name, WORK[name].path, cores)

    def core_s(self, name):
        return self.overhead * self.bare_s(name)

    def rate(self, name, cores):
        return cores * (self.more_cores if cores > 1 else 1) / self.core_s(name)


def number(value):
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def table(header, rows):
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main():
    costs = Costs(json.load(open(sys.argv[1])))
    print(f"Time of a path / of its bare loops: {costs.overhead:.2f}; a core beside others: {costs.more_cores:.2f} of one alone; "
          f"main memory: {number(costs.memory_bytes_s)}B/s.\n")

    rows = []
    for name, work in WORK.items():
        if not costs.measured(name, 1):
            continue
        row = [name, f"{1e9 * costs.core_s(name):.0f}"]
        for cores in (1, 2):
            predicted = min(costs.rate(name, cores), costs.memory_bytes_s / (work.stored + work.written))
            actual = costs.measured(name, cores)
            row.append(f"{number(predicted)} / {number(actual)} = {predicted / actual:.2f}")
        rows.append(row)
    table(["work", "ns a record and core", "1 core: predicted / measured", "2 cores: predicted / measured"], rows)

    print()
    rows = []
    for name, work in WORK.items():
        for appetite in work.appetites:
            row = [name, f"{number(appetite)}/s"]
            for cores, drives, drive, link, memory in MACHINES.values():
                limits = {"cores": costs.rate(name, cores), "NVMe": drives * drive / work.stored,
                          # It arrives, is read, is written unless the caches hold it, and goes to a GPU.
                          "memory": memory / (2 * work.stored + work.written + work.delivered)}
                binds = min(limits, key=limits.get)
                fed = int(limits[binds] / appetite)
                row.append("link" if appetite * work.delivered > link else f"{fed}, {binds}" if fed else f"none, {binds}")
            rows.append(row)
    table(["work", "a GPU wants", *MACHINES], rows)


if __name__ == "__main__":
    main()
