#!/usr/bin/env python3
"""fuzz_lines.py PROGRAM PROFILE FILE...: prints how many of the lines of FILE... a run of a fuzz target has reached.

PROFILE is what the run of PROGRAM left (LLVM_PROFILE_FILE), after llvm-profdata. The first line of the answer is the share
of all lines, in percent; each line after it names a file of which less than 95 % were reached. A file may be written from
the top of the tree. Exits with 1 if the program has no such file, or if the share of all is less than 95 %."""

import json
import subprocess
import sys

wanted_percent = 95


def main(program, profile, *files):
    # llvm-cov's own choice of files fails for those that are compiled by a path such as ../io/file.cc.
    exported = subprocess.run(
        ["llvm-cov", "export", "--summary-only", "-instr-profile", profile, program], capture_output=True, check=True
    )
    of_all = json.loads(exported.stdout)["data"][0]["files"]
    total = reached = 0
    low = []
    for name in files:
        of_file = [file["summary"]["lines"] for file in of_all if file["filename"].endswith("/" + name)]
        if len(of_file) != 1:
            sys.exit(f"fuzz_lines.py: {program} has {len(of_file)} files that are named {name}, not one")
        total += of_file[0]["count"]
        reached += of_file[0]["covered"]
        if of_file[0]["percent"] < wanted_percent:
            low.append(f"{name}: {of_file[0]['percent']:.1f} %")
    percent = 100 * reached / total
    print(f"{percent:.1f} %", *low, sep="\n")
    return 0 if percent >= wanted_percent else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
