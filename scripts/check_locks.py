#!/usr/bin/env python3
"""check_locks.py FOLDER: what clang says of every file of this build that uses base/mutex.h.

Compilers other than clang ignore the annotations of base/mutex.h. Here clang only reads the files, and makes nothing of
them. Exits with 1 where a member that a mutex guards is used without it, or where a file does not compile.
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

# Options that clang does not know, or that would make it write files.
LEFT_OUT = re.compile(r"-(MD|c|Werror|Wno-psabi|Wno-restrict|fpch-preprocess|Winvalid-pch)$")
LEFT_OUT_WITH_VALUE = {"-MQ", "-MF", "-o", "-include"}


def uses_mutex(folder: str) -> set[str]:
    """The objects of ninja whose file includes base/mutex.h, directly or not."""
    text = subprocess.run(["ninja", "-C", folder, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    return {block.split(":", 1)[0] for block in text.split("\n\n") if re.search(r"/base/mutex\.h$", block, re.MULTILINE)}


def command_of(entry: dict) -> list[str]:
    words = shlex.split(entry["command"])
    words = iter(words[2 if os.path.basename(words[0]) in ("ccache", "sccache") else 1 :])
    kept = ["clang++", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety", "-Wno-unknown-warning-option"]
    for word in words:
        if word in LEFT_OUT_WITH_VALUE:
            next(words)
        elif not LEFT_OUT.match(word):
            kept.append(word)
    return kept


def check(entry: dict) -> str:
    done = subprocess.run(command_of(entry), cwd=entry["directory"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{entry['file']}:\n{done.stderr}"


def main() -> None:
    folder = sys.argv[1]
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    guarded = uses_mutex(folder)
    chosen = [entry for entry in entries if entry["output"] in guarded and "/tests/" not in entry["file"]]
    if not chosen:
        sys.exit("check_locks.py: no file uses base/mutex.h: was the build made?")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(check, chosen) if fault]
    print(f"clang has looked at the locks of {len(chosen)} files, and refuses {len(faults)}")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
