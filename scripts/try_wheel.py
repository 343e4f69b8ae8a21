"""try_wheel.py PIPELINE: feeds an epoch with the feedline that is installed, and counts its rows."""

import sys
import time

import feedline

start = time.monotonic()
loader = feedline.Loader(sys.argv[1])
rows = sum(batch.valid_count for batch in loader)
assert rows == loader.samples_per_epoch, rows
print(f"Python {sys.version.split()[0]}: {rows} rows in {time.monotonic() - start:.2f} s")
