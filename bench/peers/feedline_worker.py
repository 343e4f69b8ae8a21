"""feedline through its own tool: `feedline run` for the rate, `feedline dump` for the tensors. FEEDLINE names the tool.

Variants: one (in file order), shuffle (BLOCK over 10,000). Both check every CRC."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from sets import BATCH, CHECKED, RECORDS, STEP_S, check, one
from worker import arguments

args = arguments(["one", "shuffle"])
tool = os.environ["FEEDLINE"]
here = os.path.dirname(os.path.abspath(__file__))

OUTPUTS = {"chess": ["board", "flags", "score"], "image-raw": ["image", "label"], "image-large": ["image", "label"],
           "big": ["x"], "floats": ["x", "ids", "y"], "jpeg": ["image", "label"], "png": ["image", "label"]}


def feedline(command, data_file, *more):
    pipelines = ["read"] if args.work == "read" else [args.set]
    if args.work not in ("read", "parse") and args.set != "floats":  # the parsed columns of "floats" are its tensors
        pipelines.append(f"{args.set}-{args.work}")
    settings = {"source.files": os.path.abspath(data_file)}
    if args.work == "read":
        settings["batch.global_batch_size"] = BATCH[args.set]
    if args.variant == "shuffle":
        settings["shuffle.buffer_size"] = 10_000
    sets = [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
    files = [os.path.join(here, f"{name}.textproto") for name in pipelines]
    done = subprocess.run([tool, command, *files, *sets, *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def measure(seconds):
    epochs = max(1, round(seconds * measure.rate / RECORDS[args.set]))
    report = json.loads(feedline("run", one(args.data, args.set), "--epochs", str(epochs), "--json"))
    while report["records_per_s"] is None:  # too little to measure, as in a trial
        epochs *= 4
        report = json.loads(feedline("run", one(args.data, args.set), "--epochs", str(epochs), "--json"))
    measure.rate = report["records_per_s"]
    return {"rec_s": report["records_per_s"], "cpu_s_per_mrec": report["cpu_s"] / report["records"] * 1e6,
            "first_batch_s": report["first_batch_s"], "rss_mb": report["rss_peak_bytes"] / 1e6}


measure.rate = 0


def pace(steps):
    epochs = 1 + steps * BATCH[args.set] // RECORDS[args.set]
    report = json.loads(feedline("run", one(args.data, args.set), "--epochs", str(epochs), "--steps", str(steps), "--step-ms",
                                 str(1000 * STEP_S), "--json"))
    return {"next_us": [us for us, calls in report["next_us"]["histogram"] for _ in range(calls)],
            "readiness": report["data_readiness_ratio"], "cpu_s_per_mrec": report["cpu_s"] / report["records"] * 1e6}


def save_checked(to):
    with tempfile.TemporaryDirectory() as folder:
        feedline("dump", check(args.data, args.set), "--out", folder)
        tensors = [np.load(os.path.join(folder, f"{name}.npy"))[:CHECKED[args.set]] for name in OUTPUTS[args.set]]
    np.savez(to, *tensors)
    return {}


def sums(_):
    """Returns what a pass delivers by `feedline stats`, and of how many values."""
    report = json.loads(feedline("stats", one(args.data, args.set), "--json"))
    of_outputs = [output.get("numbers") or output["sizes"] for output in report["outputs"]]
    totals = [of["count"] * of["mean"] for of in of_outputs]
    return {"records": report["samples"], "sums": totals, "values": [of["count"] for of in of_outputs]}


for line in sys.stdin:
    command, argument = line.split()
    answer = {"measure": measure, "pace": pace, "check": save_checked, "sums": sums}[command](
        {"measure": float, "pace": int, "check": str, "sums": str}[command](argument))
    print(json.dumps(answer), flush=True)
