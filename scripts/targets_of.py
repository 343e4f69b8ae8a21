#!/usr/bin/env python3
"""targets_of.py FOLDER TIER: what the tests of this tier need to be built, as ninja knows it, a line each."""

import json
import os
import sys


def introspected(folder: str, what: str) -> list[dict]:
    with open(os.path.join(folder, f"meson-info/intro-{what}.json"), encoding="utf-8") as file:
        return json.load(file)


folder, tier = sys.argv[1:]
tests = [test for test in introspected(folder, "tests") if any(suite.endswith(f":{tier}") for suite in test["suite"])]
needed = {target for test in tests for target in test["depends"]}
for target in introspected(folder, "targets"):
    if target["id"] in needed:
        for name in target["filename"]:
            print(os.path.relpath(os.path.realpath(name), os.path.realpath(folder)))
