#!/usr/bin/env python3
"""What the monitor costs the process that it is in, while a page is open.

  monitor_cost.py FEEDLINE PIPELINE [--seconds 20] [--rounds 5] [--step-ms 20]

Feeds the pipeline to a trainer that takes --step-ms for a step: in turn without a monitor, and with one that a client asks
each second for what the page asks for. Prints the CPU time of the process in both, the median of their ratio by rounds,
and the CPU time of the monitor's own thread as a share of the time.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import time
import urllib.request


def poll(address, seconds):
    """Asks for what the page asks for, each second; for a look at a batch twice in five seconds."""
    following = looks = 0
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        paths = ["report.json", "system.json", f"history.json?from={following}"]
        for path in ["sample.json", *paths] if looks % 5 < 2 else paths:
            with urllib.request.urlopen(address + path, timeout=10) as response:
                answer = json.load(response)
        following = answer["next"]
        looks += 1
        time.sleep(min(1, end - now))


def thread_seconds(pid):
    """Returns the CPU time of the monitor's thread, which the kernel counts in nanoseconds."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "feedline-http":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise SystemExit("there is no monitor's thread")


def run(args, monitor):
    """Returns the CPU time of the process for each second of the run, and that of the monitor's thread."""
    command = [args.feedline, "run", args.pipeline, "--json", "--epochs", "1000000", "--step-ms", str(args.step_ms)]
    feed = subprocess.Popen(command + (["--monitor", "127.0.0.1:0"] if monitor else []),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    own = 0
    if monitor:
        address = next(found[0] for line in feed.stderr if (found := re.search("http://.*/", line)))
        poll(address, 1)  # the thread has its name now
        start, begun = time.monotonic(), thread_seconds(feed.pid)
        poll(address, args.seconds)
        own = (thread_seconds(feed.pid) - begun) / (time.monotonic() - start)
    else:
        time.sleep(args.seconds)
    feed.send_signal(2)
    report = json.loads(feed.communicate()[0])
    return report["cpu_s"] / report["wall_s"], own


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("feedline")
    parser.add_argument("pipeline")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=20)
    args = parser.parse_args()
    ratios, owns = [], []
    for number in range(args.rounds):
        first = number % 2 == 1  # the order changes with each round
        results = {monitor: run(args, monitor) for monitor in (first, not first)}
        ratios.append(results[True][0] / results[False][0])
        owns.append(results[True][1])
        print(f"round {number + 1}: {100 * results[False][0]:.2f} % of a CPU without a monitor, "
              f"{100 * results[True][0]:.2f} % with one, of which its thread {100 * owns[-1]:.3f} %", flush=True)
    print(f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
          f"the monitor's thread {100 * statistics.median(owns):.3f} % of a CPU")


main()
