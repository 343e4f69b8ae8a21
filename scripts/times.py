#!/usr/bin/env python3
"""Tells how long building and testing took, what took longest, and what has outgrown its budget.

  times.py compiled FOLDER --before LOG --seconds S  what ninja has done since its log was LOG
  times.py tested FOLDER --seconds S                 what `meson test` has done
  times.py budget FOLDER                             writes what both took, from nothing, as the new budgets; those of
                                                     other steps and tests stay

Budgets are the CPU seconds of scripts/budget.json. A step of ninja has a core for itself, so that its duration in
.ninja_log is its CPU time where nothing else runs. Machines differ: the median of all ratios says how much slower this
one is, and a step or test has grown where it took half as long again as that leads one to expect. This is a report:
it never fails.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics

BUDGETS = pathlib.Path(__file__).with_name("budget.json")
LEAST = 2.0  # seconds; what takes less has no budget of its own
GROWN = 1.5


def steps(folder: str, before: str | None = None) -> dict[str, float]:
    """The seconds of each step of ninja, by its first output, but of those in the log `before`."""
    # A log is compared as a set, because ninja leaves out old lines and sorts the rest now and then.
    old = set(pathlib.Path(before).read_text(encoding="utf-8").splitlines()) if before else set()
    found: dict[str, float] = {}
    seen: dict[tuple[str, str], str] = {}
    with open(os.path.join(folder, ".ninja_log"), encoding="utf-8") as log:
        for line in log.read().splitlines():
            if line in old:
                continue
            words = line.split("\t")
            if len(words) != 5:
                continue
            begin, end, _, output, command = words
            # A step with several outputs has a line for each of them.
            output = seen.setdefault((begin, command), output)
            # If a source is outside the tree, as nanobind's are, its object's name has the whole path. Removes this
            # path.
            output = re.sub(r"[^/]*_site-packages_", "", output)
            found[output] = (int(end) - int(begin)) / 1000
    return found


def cpu_of_tests(folder: str) -> dict[str, float]:
    """The CPU seconds of each test, from what scripts/count_cpu.sh wrote."""
    ran = durations(folder)  # only these: two tests may have one command, and differ in their environment
    with open(os.path.join(folder, "meson-info/intro-tests.json"), encoding="utf-8") as file:
        tests = [test for test in json.load(file) if test["name"] in ran]
    names = {tuple(os.path.basename(word) for word in test["cmd"]): test["name"] for test in reversed(tests)}
    found: dict[str, float] = {}
    for path in pathlib.Path(folder, "cpu-times").iterdir():
        command, *lines = path.read_text(encoding="utf-8").splitlines()
        name = names.get(tuple(os.path.basename(word) for word in command.split("\x1f")))
        if name and len(lines) >= 2:  # `times`: the shell itself, then its children; user and system time
            found[name] = found.get(name, 0) + sum(
                60 * int(minutes) + float(seconds) for minutes, seconds in re.findall(r"(\d+)m([\d.]+)s", lines[1])
            )
    return found


def durations(folder: str) -> dict[str, float]:
    """The seconds of each test of the last run. Meson names the log after the wrapper, and a test after its suites."""
    with open(os.path.join(folder, "meson-logs/testlog-count_cpu.sh.json"), encoding="utf-8") as log:
        return {test["name"].split(" / ", 1)[-1]: test["duration"] for test in map(json.loads, log)}


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60} s" if seconds >= 60 else f"{seconds:.0f} s"


def short(name: str) -> str:
    """A step as people call it: without the folders of its libraries."""
    return re.sub(r"[^/]*\.p/(meson-generated_)?", "", name)


def longest(seconds: dict[str, float]) -> str:
    most = sorted(seconds.items(), key=lambda item: -item[1])[:5]
    return "; ".join(f"{short(name)} {value:.1f} s" for name, value in most)


def compare(what: str, took: dict[str, float]) -> None:
    if not took or not BUDGETS.exists():
        return
    budgets = json.loads(BUDGETS.read_text(encoding="utf-8"))
    known = budgets[what]
    budget = sum(known.get(name, 0) for name in took) + budgets["rest"][what] * sum(name not in known for name in took)
    ratios = [took[name] / known[name] for name in took if name in known]
    slower = statistics.median(ratios) if len(ratios) >= 5 else 1.0
    print(f"{what}: {sum(took.values()):.0f} s of CPU; the budget is {budget:.0f} s ({budgets['machine']}, {budgets['date']})")
    if abs(slower - 1) > 0.1:
        print(f"  this machine takes {slower:.2f} times as long as that one, by the median")
    for name, seconds in sorted(took.items(), key=lambda item: -item[1]):
        least = max(known.get(name, LEAST), LEAST)
        if seconds > GROWN * slower * least and seconds - slower * least > 1:
            print(f"  grown: {short(name)}: {seconds:.1f} s, budget {known.get(name, 0) or f'less than {LEAST:.0f}'} s")


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{len(names)} x {names[0]}"


def write(folder: str) -> None:
    took = {"compiling": steps(folder), "testing": cpu_of_tests(folder)}
    old = json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}
    document: dict = {"machine": machine(), "date": datetime.date.today().isoformat(), "rest": {}}
    for what, seconds in took.items():
        rest = [value for value in seconds.values() if value < LEAST]
        document["rest"][what] = round(sum(rest) / max(1, len(rest)), 2)
        kept = {name: value for name, value in old.get(what, {}).items() if name not in seconds}
        new = {name: round(value, 1) for name, value in seconds.items() if value >= LEAST}
        document[what] = dict(sorted((kept | new).items()))
    BUDGETS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["compiled", "tested", "budget"])
    parser.add_argument("folder")
    parser.add_argument("--before")
    parser.add_argument("--seconds", type=int, default=0)
    args = parser.parse_args()
    if args.command == "budget":
        write(args.folder)
    elif args.command == "compiled":
        took = steps(args.folder, args.before)
        print(f"building took {minutes(args.seconds)}" + (f"; longest: {longest(took)}" if took else ""))
        compare("compiling", took)
    else:
        print(f"\nrunning the tests took {minutes(args.seconds)}; longest: {longest(durations(args.folder))}")
        compare("testing", cpu_of_tests(args.folder))


if __name__ == "__main__":
    main()
