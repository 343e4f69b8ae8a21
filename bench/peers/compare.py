"""Measures feedline and each peer's best way of doing the same work, in turn, and checks that they deliver the same.

  compare.py --tool build/feedline --data DIR --out DIR [--results FILE] [--ceilings FEED_BENCH] [--rounds N]
             [--seconds S] [--steps N] [--only NAME]... [--trial]

A row is a work on so many CPUs. It is written into OUT/rows when it is measured, so that a run that was interrupted goes
on with the rest. In the end rows with all peers replace those of --results, of which peers.png is drawn. NAME is a work or a
peer. --trial tries all of it on few records, and its figures mean nothing. bench/results/peers.md says what is measured.
"""
import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version

if "--trial" in sys.argv:
    os.environ["FEEDLINE_PEERS_TRIAL"] = "1"
import numpy as np
from sets import PICTURES, RECORDS, one

HERE = os.path.dirname(os.path.abspath(__file__))

# The variants of each peer. feedline is compared with the one that is fastest in a first round.
IN_ORDER = {"tfdata": ["one", "fast", "inner"], "dali": ["one", "shards"], "grain": ["t0", "threads", "mp2", "array", "array-mp"],
            "litdata": ["t0", "workers"], "lance": ["scan", "threads"], "tfrecord": ["loader"]}
RAW = {peer: variants for peer, variants in IN_ORDER.items() if peer != "dali"}  # DALI always parses
SHUFFLED = {"tfdata": ["shuffle"], "dali": ["shuffle"]}
OF_TORCH = ["tensor", "pil", "threads"]
DECODED = {"tfdata": ["one", "fast"], "dali": ["one", "shards"], "torchvision": OF_TORCH, "torchcodec": ["tensor", "threads"]}
WINDOWS = {**DECODED, "tfdata": ["one", "crop", "fast"]}
NAMES = {"tfdata": "tf.data", "dali": "DALI", "grain": "Grain", "litdata": "litData", "lance": "Lance", "tfrecord": "tfrecord",
         "torchvision": "torchvision", "torchcodec": "torchcodec", "feedline": "feedline"}
PACKAGES = {"tfdata": ["tensorflow-cpu"], "dali": ["nvidia-dali-cuda130"], "grain": ["grain", "array_record"],
            "litdata": ["litdata", "torch"], "lance": ["pylance"], "tfrecord": ["tfrecord"], "torchvision": ["torchvision", "torch"],
            "torchcodec": ["torchcodec"]}
FORMATS = {"TFRecord": "", "DALI's index": ".idx", "ArrayRecord": ".array_record", "litData": ".litdata", "Lance": ".lance"}
FEATURES = ["litdata", "lance"]  # their formats hold features, so that they read a record's, where others read its bytes
START_S = 6  # what starting a worker takes, about
QUANTILES = [n / 100 for n in range(100)] + [0.995, 0.999, 0.9999, 1]
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
         ("jpeg", "resize"): {"feedline": 0, "tfdata": 1e-4, "torchvision": 1.5 / 62, "torchcodec": 1.5 / 62, "dali": 2 / 62}}
OTHERWISE_CLOSE = 1e-5  # scale and mean are applied in another order

PASSES = {}  # what whole passes have delivered


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


def compared(args, workloads):
    """Returns {(set, work): peers} whose tensors are compared: those of whole records, and pictures if not at random."""
    pairs = {}
    for workload in workloads:
        name, work, _, peers = WORKLOADS[workload]
        if work != "augment":
            pairs[name, work if name in PICTURES else "full"] = chosen(args, peers if name in PICTURES else IN_ORDER)
    return pairs


def chosen(args, peers):
    return {peer: variants for peer, variants in peers.items() if peer in args.peers}


def close_of(name, work, peer):
    close = CLOSE.get((name, work), OTHERWISE_CLOSE)
    return close[peer] if isinstance(close, dict) else close


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
        for ours, other in zip(tensors["feedline"], theirs, strict=True):
            np.testing.assert_allclose(ours, other.reshape(ours.shape), rtol=0, atol=close_of(name, work, peer),
                                       err_msg=f"{name}, {work}: feedline and {peer}")


def sums_of(args, peer, name, work, variant, cores):
    """Returns what a whole pass of this loader delivers; a second call makes no second pass."""
    key = (peer, name, work, variant)
    if key not in PASSES:
        worker = Worker(args, peer, name, work, variant, cores)
        PASSES[key] = worker.ask("sums -")
        worker.close()
    return PASSES[key]


def compare_sums(args, name, work, loaders, cores):
    """Throws ValueError if a loader does not deliver as many records as there are, or if their values have another sum."""
    for peer, variant in loaders:
        theirs = sums_of(args, peer, name, work, variant, cores)
        ours = sums_of(args, "feedline", name, "parse" if work == "read" and peer in FEATURES else work, "one", cores)
        if not theirs["records"] == ours["records"] == RECORDS[name]:
            raise ValueError(f"{name}, {work}: of {RECORDS[name]} records {peer} {variant} delivers {theirs['records']}")
        close = close_of(name, work, peer) if work == "resize" else 1e-6  # other differences are of rounding
        for tensor, (total, wanted, values) in enumerate(zip(theirs["sums"], ours["sums"], ours["values"], strict=True)):
            if work != "augment" and abs(total - wanted) > close * values:
                raise ValueError(f"{name}, {work}: {peer} {variant} delivers values that sum up to {total} in tensor {tensor}, not {wanted}")


def measure(args, workload, cores):
    """Returns the row of a work: the figures of each loader, and feedline's ratio to it in each round."""
    name, work, ours, peers = WORKLOADS[workload]
    tried = {peer: {variant: measure_alone(args, peer, name, work, variant, cores)["rec_s"] for variant in variants}
             for peer, variants in chosen(args, peers).items() if len(variants) > 1}
    loaders = [("feedline", ours)] + [(peer, max(tried[peer], key=tried[peer].get) if peer in tried else variants[0])
                                      for peer, variants in chosen(args, peers).items()]
    compare_sums(args, name, work, loaders, os.sched_getaffinity(0))
    rounds = [[measure_alone(args, peer, name, work, variant, cores) for peer, variant in loaders] for _ in range(args.rounds)]
    of, of_kind = ("pictures", DECODED) if name in PICTURES else ("records", IN_ORDER)
    row = {"work": workload, "of": of, "cpus": len(cores), "date": datetime.date.today().isoformat(), "machine": machine(),
           "versions": versions(args, of_kind), "rounds": args.rounds, "seconds": args.seconds, "loaders": {}}
    for n, (peer, variant) in enumerate(loaders):
        rates = [answers[n]["rec_s"] for answers in rounds]
        cpu_us = [answers[n]["cpu_s_per_mrec"] for answers in rounds]
        line = {"variant": variant, "rec_s": statistics.median(rates), "rates": rates, "cpu_us": statistics.median(cpu_us),
                "cpu_us_of_rounds": cpu_us, "rss_mb": statistics.median(answers[n]["rss_mb"] for answers in rounds)}
        if peer in tried:
            line["tried"] = tried[peer]
        if peer != "feedline":
            ratios = [answers[0]["rec_s"] / rate for answers, rate in zip(rounds, rates)]
            line["ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
        row["loaders"][NAMES[peer]] = line
        print(f"{workload:20} {len(cores)} CPUs  {NAMES[peer] + ' ' + variant:18} {line['rec_s']:12,.0f} records/s {line['cpu_us']:10,.3f} us of CPU each"
              + ("  feedline is {:6.2f} x ({:.2f} to {:.2f})".format(*line["ratio"]) if "ratio" in line else ""), flush=True)
    return row


def pace(args, chess, cores):
    """Measures next() and CPU time per record beside a step of 5 ms: the tensors and the variants of this row of chess."""
    result = {"date": datetime.date.today().isoformat(), "machine": machine(), "versions": chess["versions"], "steps": args.steps, "loaders": {}}
    for peer in ["feedline", *chosen(args, IN_ORDER)]:
        variant = chess["loaders"][NAMES[peer]]["variant"]
        worker = Worker(args, peer, "chess", "full", variant, cores)
        answer = worker.ask(f"pace {args.steps}")
        worker.close()
        times = np.array(answer["next_us"])
        result["loaders"][NAMES[peer]] = {"variant": variant, "cpu_us": answer["cpu_s_per_mrec"], "ready": answer.get("readiness"),
                                          "next_us": [[q, float(np.quantile(times, q))] for q in QUANTILES]}
        print(f"next() beside 5 ms steps  {NAMES[peer]:10} p50 {np.quantile(times, 0.5):8.1f} us  p99 {np.quantile(times, 0.99):8.1f} us"
              f"  max {times[-1]:8.1f} us  CPU {answer['cpu_s_per_mrec']:7.3f} us a record", flush=True)
    return result


def bytes_of(path):
    """Returns the bytes of a file, or of all files of a folder."""
    return os.path.getsize(path) if os.path.isfile(path) else sum(map(bytes_of, (entry.path for entry in os.scandir(path))))


def sizes(args):
    """Returns the bytes that a record takes in each format that there is."""
    of_sets = {}
    for name, records in RECORDS.items():
        paths = {title: one(args.data, name) + ending for title, ending in FORMATS.items()}
        of_sets[name] = {title: bytes_of(path) / records for title, path in paths.items() if os.path.exists(path)}
    return {"date": datetime.date.today().isoformat(), "versions": versions(args, ["grain", "litdata", "lance"]), "sets": of_sets}


def ceilings(args, cpus):
    """Returns {workload: records/s of its composed ceiling}, which feed_bench measures."""
    path = os.path.join(args.out, "rows", "ceilings.json")
    if not os.path.exists(path):
        # It exits with 1 if a figure misses its target, which must not end this comparison.
        subprocess.run([args.ceilings, "--threads", str(cpus), "--rounds", "5", "--json", path + ".part"])
        os.rename(path + ".part", path)
    with open(path) as file:
        rows = json.load(file)[f"{cpus} core{'s' * (cpus > 1)}"]
    return {workload: next(row["ceiling"] for row in rows if row["name"].startswith(f"{title} /"))
            for workload, title in CEILINGS.items()}


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    return f"{model[1] if model else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, Linux {'.'.join(platform.release().split('.')[:2])}"


def versions(args, peers):
    """Returns {peer: the packages that it is measured with}."""
    return {NAMES[peer]: ", ".join(f"{package} {version(package)}" for package in PACKAGES[peer]) for peer in peers if peer in args.peers}


def measurements(args, workload):
    peers = chosen(args, WORKLOADS[workload][3])
    return sum(len(variants) for variants in peers.values() if len(variants) > 1) + args.rounds * (len(peers) + 1)


class Kept:
    """What is measured, each part in a file of OUT/rows, for a run that was interrupted and begins again."""

    def __init__(self, args):
        self.folder = os.path.join(args.out, "rows")
        with open(args.tool, "rb") as tool:
            digest = hashlib.file_digest(tool, "sha256").hexdigest()
        self.settings = [args.rounds, args.seconds, args.steps, args.trial, machine(), digest, versions(args, PACKAGES)]
        os.makedirs(self.folder, exist_ok=True)

    def of(self, what):
        """Returns this part, or None if it was not measured with these settings."""
        try:
            with open(os.path.join(self.folder, f"{what}.json")) as file:
                settings, part = json.load(file)
        except FileNotFoundError:
            return None
        return part if settings == self.settings else None

    def keep(self, what, part):
        path = os.path.join(self.folder, f"{what}.json")
        with open(path + ".part", "w") as file:
            json.dump([self.settings, part], file)
        os.rename(path + ".part", path)
        return part


def write_results(path, rows, paced, of_formats):
    """Replaces what was measured in the file of results."""
    with open(path) as file:
        result = json.load(file)
    new = {(row["work"], row["cpus"]): row for row in rows}
    result["rows"] = [new.pop((row["work"], row["cpus"]), row) for row in result["rows"]] + list(new.values())
    result["pace"] = paced or result["pace"]
    complete = {name: of for name, of in of_formats["sets"].items() if len(of) == len(FORMATS)}
    if complete:
        result["sizes"] = {**of_formats, "sets": {**result["sizes"].get("sets", {}), **complete}}
    with open(f"{path}.part", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.rename(f"{path}.part", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True, help="feedline's program")
    parser.add_argument("--data", required=True, help="where the data are, or are made")
    parser.add_argument("--out", required=True)
    parser.add_argument("--results", help="the file whose rows are replaced by those that are measured with all peers")
    parser.add_argument("--ceilings", help="feed_bench, the program, which measures them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--steps", type=int, default=2000, help="of 5 ms, for the distribution of next()")
    parser.add_argument("--only", action="append", default=[], choices=[*WORKLOADS, *(peer for peer in NAMES if peer != "feedline")])
    parser.add_argument("--trial", action="store_true", help="few records, one round")
    args = parser.parse_args()
    if args.trial:
        args.data, args.out = os.path.join(args.data, "trial"), os.path.join(args.out, "trial")
        args.rounds, args.seconds, args.steps = 1, min(args.seconds, 0.2), 50
    args.peers = frozenset(name for name in args.only if name in NAMES) or frozenset(PACKAGES)
    workloads = [name for name in args.only if name in WORKLOADS] or [
        name for name, (_, _, _, peers) in WORKLOADS.items() if args.peers.intersection(peers)]
    cpus = sorted(os.sched_getaffinity(0))
    fewer = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < len(cpus)]
    todo = [(workload, cpus) for workload in workloads]
    todo += [(workload, cpus[:n]) for n in fewer for workload in workloads if n == 1 or workload in GROWTH]
    kept = Kept(args)
    left = sum(measurements(args, workload) for workload, cores in todo if not kept.of(f"{workload}, {len(cores)}"))
    print(f"{len(todo)} rows, {left} measurements: about {left * (min(1, args.seconds) + args.seconds + START_S) / 60:.0f} minutes, and what "
          "making and converting data and comparing values takes", flush=True)
    names = sorted({WORKLOADS[workload][0] for workload in workloads})
    subprocess.run([sys.executable, os.path.join(HERE, "make_data.py"), "--data", args.data, *names], check=True)

    for (name, work), peers in compared(args, workloads).items():
        if not kept.of(f"{name}, {work}, compared"):
            compare_tensors(args, name, work, peers, cpus)
            kept.keep(f"{name}, {work}, compared", True)
        print(f"{name}, {work}: all deliver the same tensors", flush=True)
    rows = []
    for workload, cores in todo:
        what = f"{workload}, {len(cores)}"
        rows.append(kept.of(what) or kept.keep(what, measure(args, workload, cores)))
    paced = None
    if "chess" in workloads:
        paced = kept.of("pace") or kept.keep("pace", pace(args, rows[workloads.index("chess")], cpus))
    if args.ceilings and not args.trial and any(workload in CEILINGS for workload in workloads):
        for row in rows:
            if row["cpus"] == len(cpus) and row["work"] in CEILINGS:
                ours = row["loaders"]["feedline"]
                ours["ceiling"] = ours["rec_s"] / ceilings(args, len(cpus))[row["work"]]
    shutil.rmtree(kept.folder)
    result = {"rows": rows, "pace": paced, "sizes": sizes(args)}
    with open(os.path.join(args.out, "peers.json"), "w") as out:
        json.dump(result, out, indent=1)
    if args.results and not args.trial and args.peers == frozenset(PACKAGES):
        write_results(args.results, rows, paced, result["sizes"])
        subprocess.run([sys.executable, os.path.join(HERE, "plot.py"), args.results, os.path.join(HERE, "peers.png")], check=True)
    print(f"all deliver every record; figures: {args.out}/peers.json")


if __name__ == "__main__":
    main()
