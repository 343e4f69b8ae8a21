#!/usr/bin/env python3
"""count_tests.py TESTLOG: prints the tests that did not pass, and last how many passed, failed and were skipped.

Exits with 1 where one failed."""

import json
import sys

groups: dict[str, list[dict]] = {"passed": [], "failed": [], "skipped": []}
print()
with open(sys.argv[1], encoding="utf-8") as log:
    for line in log:
        test = json.loads(line)
        group = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
        groups[group].append(test)
        if group != "passed" or "feeder, " in test["name"]:
            reasons = [line for line in test.get("stdout", "").splitlines() if line.startswith("skipped: ")]
            print(f"{test['name']}: " + (reasons[0] if group == "skipped" and reasons else group))
print(", ".join(f"{len(tests)} {group}" for group, tests in groups.items()))
sys.exit(bool(groups["failed"]))
