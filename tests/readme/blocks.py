#!/usr/bin/env python3
"""blocks.py KIND FILE: prints the fenced blocks of a Markdown file whose info string is KIND, one after another."""

import re
import sys

kind, file = sys.argv[1:]
blocks = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", open(file, encoding="utf-8").read(), re.MULTILINE | re.DOTALL)
if not blocks:
    sys.exit(f"{file} has no block marked '{kind}'")
print("".join(blocks), end="")
