#!/usr/bin/env python3
"""peers_results.py [--check]: writes the figures of bench/results/peers.json, which `./dev bench peers` measures, into
README.md and bench/results/peers.md, between their marks. With --check it only says which of them differs."""

import json
import pathlib
import sys
import textwrap

from marks import between_marks, table

RESULTS = "bench/results/peers.json"

# The works in README.md, and what it calls them.
IN_README = {
    "chess": "chess boards, 245 B",
    "chess, shuffled": "shuffled over 10,000",
    "chess, features": "chess features",
    "3 KB images": "3 KB images to float32",
    "197 KB images": "197 KB images to float32",
    "2.83 MB records": "2.83 MB records",
    "click log": "click log, 393 B",
}


def rate(records_per_s: float) -> str:
    if records_per_s >= 1e6:
        return f"{records_per_s / 1e6:#.3g} M"
    return f"{records_per_s / 1e3:.{0 if records_per_s >= 2e4 else 1}f} k"


def microseconds(us: float) -> str:
    return f"{us:,.{0 if us >= 100 else 1}f}"


def paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def measured(row: dict) -> str:
    return f"{row['date']}, {row['machine']}"


def notes(rows: list[dict], absent: list[str]) -> list[str]:
    """Returns what else is to be known of these rows, and which peers have no figure in them."""
    said = [row["note"] for row in rows if "note" in row] + ([f"Not measured yet: {', '.join(absent)}."] if absent else [])
    return paragraph(" ".join(dict.fromkeys(said)))


def columns(result: dict, of: str, rows: list[dict]) -> tuple[list[str], list[str]]:
    """Returns the loaders that have a figure in these rows, and the peers without any."""
    have = {name for row in rows for name in row["loaders"]}
    all_peers = result["peers"][of]
    return ["feedline", *(peer for peer in all_peers if peer in have)], [peer for peer in all_peers if peer not in have]


def readme(result: dict) -> list[str]:
    """Returns the rates of all loaders on all CPUs."""
    most = max(row["cpus"] for row in result["rows"])
    rows = [row for row in result["rows"] if row["work"] in IN_README and row["cpus"] == most]
    loaders, absent = columns(result, "records", rows)
    pace = result["pace"]["loaders"]
    lines = []
    for row in rows:
        rates = [rate(row["loaders"][name]["rec_s"]) if name in row["loaders"] else "" for name in loaders]
        lines.append([IN_README[row["work"]], f"**{rates[0]}**", *rates[1:]])
    cpu = {name: line["cpu_us"] for name, line in pace.items()}
    p99 = {name: dict(line["next_us"])[0.99] for name, line in pace.items()}
    for what, us in (("CPU a board beside steps of 5 ms", cpu), ("`next()` beside them, p99", p99)):
        times = [f"{microseconds(us[name])} us" if name in us else "" for name in loaders]
        lines.append([what, f"**{times[0]}**", *times[1:]])
    when = " and ".join(dict.fromkeys(map(measured, [*rows, result["pace"]])))
    return [*paragraph(f"{when}:"), *table(["work", *loaders], lines), *notes(rows, absent)]


def peers(result: dict) -> list[str]:
    """Returns every figure: a table for each run, of pace, and of the sizes of formats."""
    lines, absent = [], []
    for of in result["peers"]:
        of_kind = [row for row in result["rows"] if row["of"] == of]
        absent += columns(result, of, of_kind)[1]
        for run in dict.fromkeys(map(run_of, of_kind)):
            rows = [row for row in of_kind if run_of(row) == run]
            loaders, _ = columns(result, of, rows)
            rounds = " or ".join(dict.fromkeys(f"{row['rounds']}" for row in rows))
            lines += paragraph(f"{run}, medians of {rounds} rounds:")
            lines += table(["work", *loaders], [compared(row, loaders) for row in rows])
            with_cpu = [row for row in rows if row["cpus"] > 1 and "cpu_us" in row["loaders"]["feedline"]]
            lines += table(["CPU a record, us", *loaders], [cpu_times(row, loaders) for row in with_cpu])
    pace, sizes = result["pace"], result["sizes"]
    times = {name: [*map(dict(line["next_us"]).get, (0.5, 0.99, 1)), line["cpu_us"]] for name, line in pace["loaders"].items()}
    lines += paragraph(f"{pace['date']}, {pace['steps']} steps:")
    lines += table(["beside steps of 5 ms, us", "`next()`: p50", "p99", "most", "CPU a record"],
                   [[name, *map(microseconds, of)] for name, of in times.items()])  # fmt: skip
    if sizes:
        formats = list(next(iter(sizes["sets"].values())))
        lines += paragraph(f"Bytes a record, {sizes['date']}, {', '.join(sizes['versions'].values())}:")
        lines += table(["data", *formats], [[name, *(f"{of[key]:,.0f}" for key in formats)] for name, of in sizes["sets"].items()])
    return lines + notes(result["rows"], absent)


def run_of(row: dict) -> str:
    """Returns when and where a row was measured, and of what."""
    return f"{measured(row)}, {', '.join(row['versions'].values())}"


def label(row: dict) -> str:
    return f"{row['work']}, one CPU" if row["cpus"] == 1 else row["work"]


def compared(row: dict, loaders: list[str]) -> list[str]:
    """Returns feedline's rate and its share of its ceiling, then how many times each peer's rate that is, with the spread."""
    ours = row["loaders"]["feedline"]
    ratios = [row["loaders"].get(name, {}).get("ratio") for name in loaders[1:]]
    share = [rate(ours["rec_s"])] if "rec_s" in ours else []
    share += [f"({ours['ceiling']:.2f})"] if "ceiling" in ours else []
    return [label(row), " ".join(share), *("{:.1f} ({:.1f}..{:.1f})".format(*ratio) if ratio else "" for ratio in ratios)]


def cpu_times(row: dict, loaders: list[str]) -> list[str]:
    return [label(row), *(f"{row['loaders'][name]['cpu_us']:.3g}" if name in row["loaders"] else "" for name in loaders)]


DOCUMENTS = {"README.md": readme, "bench/results/peers.md": peers}


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("peers_results.py takes --check, or nothing")
    result = json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))
    different = 0
    for path, write in DOCUMENTS.items():
        text = between_marks(path, "bench peers", write(result))
        if text != pathlib.Path(path).read_text(encoding="utf-8"):
            different += 1
            if sys.argv[1:]:
                print(f"{path} has other figures than {RESULTS}; run scripts/peers_results.py", file=sys.stderr)
            else:
                pathlib.Path(path).write_text(text, encoding="utf-8")
    return 1 if different and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
