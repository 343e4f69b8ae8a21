#!/usr/bin/env python3
"""tiers.py BUILD: checks that each test of this build is of one tier: commit, merge or nightly (tests/README.md)."""

import collections
import json
import os
import sys

TIERS = {"commit", "merge", "nightly"}


def main() -> None:
    with open(os.path.join(sys.argv[1], "meson-info", "intro-tests.json"), encoding="utf-8") as file:
        tests = json.load(file)
    counts: collections.Counter[str] = collections.Counter()
    faults = []
    for test in tests:
        tiers = TIERS & {suite.split(":")[-1] for suite in test["suite"]}
        counts.update(tiers)
        if len(tiers) != 1:
            faults.append(f"{test['name']}: its tiers are {sorted(tiers) or 'none'}; name one of {sorted(TIERS)} in its suites")
    if faults or not tests:
        sys.exit("\n".join(faults) or "there is no test")
    print(", ".join(f"{tier}: {counts[tier]}" for tier in sorted(TIERS)))


if __name__ == "__main__":
    main()
