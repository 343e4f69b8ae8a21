#!/usr/bin/env python3
"""programs_without_tbb.py FOLDER: the tests of rooms that need not use oneTBB, a line each: name, tab, program."""

import json
import os
import re
import sys

ROOMS = re.compile(r"tests/(base|io|gpu|ranks)/|tests/trainer_bridge/.*data_parallel")

folder = sys.argv[1]
with open(os.path.join(folder, "meson-info/intro-tests.json"), encoding="utf-8") as file:
    for test in json.load(file):
        program = os.path.relpath(test["cmd"][0], folder)
        if ROOMS.match(program):
            print(test["name"], program, sep="\t")
