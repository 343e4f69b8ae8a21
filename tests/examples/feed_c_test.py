#!/usr/bin/env python3
"""feed_c_test.py PROGRAM PIPELINE: the example in C feeds the digits twice, and fails with a message."""
import subprocess
import sys

program, pipeline = sys.argv[1:]
lines = subprocess.run([program, pipeline], check=True, capture_output=True, text=True).stdout.splitlines()
assert lines[0] == "the first of 5 batches:", lines
assert "  image: 32 bits [32, 8, 8, 1]" in lines, lines
assert lines[-1].startswith("300 rows in two epochs; the state is {"), lines
failed = subprocess.run([program, "none.textproto"], capture_output=True, text=True)
assert failed.returncode == 1 and "none.textproto" in failed.stderr, failed
