"""Measures feedline and each peer's best way of doing the same work, in turn, and checks that they deliver the same.

  compare.py --tool build/feedline --data DIR --out DIR [--ceilings FEED.json] [--rounds N] [--seconds S] [--steps N]
             [--only WORKLOAD]...

Writes OUT/peers.json, OUT/peers.md (the table) and OUT/peers.png. bench/results/peers.md says what is measured.
"""
import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import report
from sets import PICTURES, record_bytes

HERE = os.path.dirname(os.path.abspath(__file__))

# The variants of each peer. feedline is compared with the one that is fastest in a first round.
IN_ORDER = {"tfdata": ["one", "fast", "inner"], "dali": ["one", "shards"], "grain": ["t0", "threads", "mp2"],
            "tfrecord": ["loader"]}
RAW = {peer: variants for peer, variants in IN_ORDER.items() if peer != "dali"}  # DALI always parses
SHUFFLED = {"tfdata": ["shuffle"], "dali": ["shuffle"]}
DECODED = {"tfdata": ["one", "fast"], "dali": ["one", "shards"], "torchvision": ["tensor", "pil", "threads"]}
WINDOWS = {**DECODED, "tfdata": ["one", "crop", "fast"]}
QUANTILES = [n / 100 for n in range(100)] + [0.995, 0.999, 0.9999, 1]
NAMES = {"tfdata": "tf.data", "dali": "DALI", "grain": "Grain", "tfrecord": "tfrecord",
         "torchvision": "torchvision", "feedline": "feedline"}
# The paths of feed_bench that deliver the same tensors. The plot shows their composed ceilings.
CEILINGS = {"chess": "chess: board, flags and score", "chess, features": "chess: features as they are",
            "3 KB images": "3 KB images: float32", "197 KB images": "197 KB images: float32",
            "2.83 MB records": "2.83 MB records: uint8", "click log": "click log: dense arrays"}
WORKLOADS = {  # name: (set, work, feedline's variant, peers)
    "chess": ("chess", "full", "one", IN_ORDER),
    "chess, shuffled": ("chess", "full", "shuffle", SHUFFLED),
    "chess, features": ("chess", "parse", "one", IN_ORDER),
    "3 KB images": ("image-raw", "full", "one", IN_ORDER),
    "197 KB images": ("image-large", "full", "one", IN_ORDER),
    "2.83 MB records": ("big", "read", "one", RAW),
    "2.83 MB to float32": ("big", "full", "one", IN_ORDER),
    "click log": ("floats", "full", "one", IN_ORDER),
    "JPEG decoded": ("jpeg", "decode", "one", DECODED),
    "JPEG to 224": ("jpeg", "resize", "one", WINDOWS),
    "JPEG, random windows": ("jpeg", "augment", "one", WINDOWS),
    "PNG decoded": ("png", "decode", "one", DECODED),
}
GROWTH = ["chess", "JPEG to 224"]  # measured on fewer cores, too

# How far the values of a peer may be from feedline's, by set, work and peer. Decoded pixels are equal.
CLOSE = {("chess", "full"): 2e-3,  # tanh
         ("jpeg", "decode"): 0, ("png", "decode"): 0,
         # Resized pixels, divided by 255 x 0.2435 or more: 1/62 is a step of uint8. tf.data computes in float32;
         # torchvision rounds to uint8 after each of two passes; DALI's weights are others.
         ("jpeg", "resize"): {"feedline": 0, "tfdata": 1e-4, "torchvision": 1.5 / 62, "dali": 2 / 62}}
OTHERWISE_CLOSE = 1e-5  # scale and mean are applied in another order


class Worker:
    def __init__(self, args, peer, name, work, variant, cores):
        self.peer, self.variant = peer, variant
        command = [sys.executable, os.path.join(HERE, f"{peer}_worker.py"), "--data", args.data, "--set", name, "--work", work,
                   "--variant", variant]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, "FEEDLINE": os.path.abspath(args.tool)},
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        except BrokenPipeError:
            pass
        self.log.seek(0)
        raise RuntimeError(f"{self.peer} {self.variant} ended: {self.log.read()[-2000:]}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_alone(args, peer, name, work, variant, cores):
    """Measures in a worker of its own, because waiting loaders still hold memory, and some prefetch."""
    worker = Worker(args, peer, name, work, variant, cores)
    worker.ask(f"measure {min(1, args.seconds)}")  # warms the page cache and the allocator
    answer = worker.ask(f"measure {args.seconds}")
    worker.close()
    return answer


def best_of(args, peer, name, work, variants, cores):
    """Returns the variant that is fastest in one measurement."""
    if len(variants) == 1:
        return variants[0]
    return max(variants, key=lambda variant: measure_alone(args, peer, name, work, variant, cores)["rec_s"])


def compared(workloads):
    """Returns {(set, work): peers} whose tensors are compared: those of whole records, and pictures if not at random."""
    pairs = {}
    for workload in workloads:
        name, work, _, peers = WORKLOADS[workload]
        if work != "augment":
            pairs[name, work if name in PICTURES else "full"] = peers if name in PICTURES else IN_ORDER
    return pairs


def compare_tensors(args, name, work, peers, cores):
    """Compares the tensors of the first variant of each peer, which keeps the order, with feedline's, value by value."""
    tensors = {}
    with tempfile.TemporaryDirectory() as folder:
        for peer, variant in [("feedline", "one")] + [(peer, variants[0]) for peer, variants in peers.items()]:
            worker = Worker(args, peer, name, work, variant, cores)
            path = os.path.join(folder, f"{peer}.npz")
            worker.ask(f"check {path}")
            worker.close()
            tensors[peer] = list(np.load(path).values())
    for peer, theirs in tensors.items():
        close = CLOSE.get((name, work), OTHERWISE_CLOSE)
        for ours, other in zip(tensors["feedline"], theirs, strict=True):
            np.testing.assert_allclose(ours, other.reshape(ours.shape), rtol=0,
                                       atol=close[peer] if isinstance(close, dict) else close,
                                       err_msg=f"{name}, {work}: feedline and {peer}")


def measure(args, workload, cores):
    """Returns one line for each loader: the figures of its rounds, and feedline's ratio to it in each."""
    name, work, ours, peers = WORKLOADS[workload]
    lines = {}
    loaders = [("feedline", ours)] + [(peer, best_of(args, peer, name, work, variants, cores)) for peer, variants in peers.items()]
    for _ in range(args.rounds):
        answers = [measure_alone(args, peer, name, work, variant, cores) for peer, variant in loaders]
        for (peer, variant), answer in zip(loaders, answers):
            line = lines.setdefault(peer, {"workload": workload, "peer": NAMES[peer], "cores": len(cores), "variant": variant,
                                           "rounds": [], "ratios": []})
            line["rounds"].append(answer)
            line["ratios"].append(answers[0]["rec_s"] / answer["rec_s"])
    for line in lines.values():
        line["rec_s"] = statistics.median(answer["rec_s"] for answer in line["rounds"])
        line["cpu_s_per_mrec"] = statistics.median(answer["cpu_s_per_mrec"] for answer in line["rounds"])
        line["ratio"] = statistics.median(line["ratios"])
        line["bytes_s"] = line["rec_s"] * record_bytes(args.data, name)
        print(f"{workload:20} {len(cores)} cores  {line['peer'] + ' ' + line['variant']:18} {report.short(line['rec_s']):>8} records/s"
              f"  feedline is {line['ratio']:6.2f} x ({min(line['ratios']):.2f} to {max(line['ratios']):.2f})", flush=True)
    return list(lines.values())


def pace(args, cores):
    """Measures next() and CPU time per record beside a step of 5 ms: each peer, chess tensors from one file."""
    lines = []
    for peer, variant in [("feedline", "one"), ("tfdata", "one"), ("dali", "one"), ("grain", "threads")]:
        worker = Worker(args, peer, "chess", "full", variant, cores)
        answer = worker.ask(f"pace {args.steps}")
        worker.close()
        times = np.array(answer["next_us"])
        line = {"peer": NAMES[peer], "variant": variant, "steps": len(times), "readiness": answer.get("readiness"),
                "cpu_s_per_mrec": answer["cpu_s_per_mrec"]}
        line["quantiles"] = [[q, float(np.quantile(times, q))] for q in QUANTILES]
        lines.append(line)
        print(f"next() beside 5 ms steps  {line['peer']:10} p50 {np.quantile(times, 0.5):8.1f} us  p99 {np.quantile(times, 0.99):8.1f} us"
              f"  max {times[-1]:8.1f} us  CPU {answer['cpu_s_per_mrec'] * 1000:7.0f} ns a record", flush=True)
    return lines


def ceilings(path, cores):
    """Returns {workload: records/s of its composed ceiling} from the output of feed_bench --json."""
    with open(path) as file:
        rows = json.load(file)[f"{cores} core{'s' * (cores > 1)}"]
    return {workload: next(row["ceiling"] for row in rows if row["name"].startswith(f"{title} /"))
            for workload, title in CEILINGS.items()}


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    return f"{model[1] if model else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, Linux {'.'.join(platform.release().split('.')[:2])}"


def versions():
    from importlib.metadata import version
    packages = ["tensorflow-cpu", "nvidia-dali-cuda130", "grain", "tfrecord", "torch", "torchvision"]
    return ", ".join(f"{package} {version(package)}" for package in packages)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True, help="feedline's program")
    parser.add_argument("--data", required=True, help="where make_data.py wrote to")
    parser.add_argument("--out", required=True)
    parser.add_argument("--ceilings", help="what feed_bench --json wrote, on as many cores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--steps", type=int, default=2000, help="of 5 ms, for the distribution of next()")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    workloads = args.only or list(WORKLOADS)
    for (name, work), peers in compared(workloads).items():
        compare_tensors(args, name, work, peers, cpus)
        print(f"{name}, {work}: all deliver the same tensors", flush=True)
    lines = []
    for workload in workloads:
        lines += measure(args, workload, cpus)
    for n in [n for n in (1, 2, 4, 8, 16, 32, 64) if n < len(cpus)]:
        for workload in [workload for workload in GROWTH if workload in workloads]:
            lines += measure(args, workload, cpus[:n])
    os.makedirs(args.out, exist_ok=True)
    result = {"machine": machine(), "date": datetime.date.today().isoformat(), "versions": versions(), "rounds": args.rounds,
              "seconds": args.seconds, "lines": lines,
              "ceilings": ceilings(args.ceilings, len(cpus)) if args.ceilings else {}, "next": pace(args, cpus) if "chess" in workloads else []}
    with open(os.path.join(args.out, "peers.json"), "w") as out:
        json.dump(result, out, indent=1)
    report.write(result, args.out)
    print(f"table, plots and figures: {args.out}/peers.md, peers.png, peers.json")


if __name__ == "__main__":
    main()
