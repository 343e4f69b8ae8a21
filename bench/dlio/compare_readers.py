"""Measures feedline beside DLIO's own readers for TensorFlow and PyTorch, each inside DLIO's benchmark, in turn.

  compare_readers.py --out DIR [--gpu h100|a100] [--rounds N] [--most N] [--only WORKLOAD]

Prints a table, and writes its figures to DIR/dlio.json. The data, 1.5 GB, is in DIR while this runs. bench/results/peers.md
says what is measured.
"""
import argparse
import datetime
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "peers"))

import dlio_benchmark
import yaml
from compare import machine

WANTED = 0.9  # the utilisation that an accelerator has to keep
CPUS = len(os.sched_getaffinity(0))
# DLIO's workloads, with fewer files. Each file is read under several names, so that it is in the page cache and an
# accelerator still has more data ahead than it takes. CPU time counts after the warm-up, when the readers have filled
# their queues. A step of CosmoFlow takes eight steps' samples and their time, because a sleep as short as one of them
# ends late by a large part of it on a busy machine.
WORKLOADS = {
    "resnet50": {"files": 4, "samples": 1200, "names": 20, "grouped": 1, "steps": 36, "warm_up": 12},
    "cosmoflow": {"files": 256, "samples": 1, "names": 2048, "grouped": 8, "steps": 200, "warm_up": 20},
}
CUSTOM = ["reader.data_loader_sampler=iterative"]
READERS = {
    "feedline": CUSTOM + ["reader.data_loader_classname=loaders.FeedlineLoader"],
    "TensorFlow": [],
    "PyTorch": ["framework=pytorch", "reader.data_loader=pytorch"],
    "no reader": CUSTOM + ["reader.data_loader_classname=loaders.NoLoader"],
}


def workload_of(name, gpu):
    """Returns the workload's line of WORKLOADS with DLIO's own batch, time of a step, and threads."""
    with open(os.path.join(os.path.dirname(dlio_benchmark.__file__), "configs/workload", f"{name}_{gpu}.yaml")) as file:
        options = yaml.safe_load(file)
    workload = {"name": f"{name}_{gpu}", **WORKLOADS[name]}
    workload["batch"] = workload["grouped"] * options["reader"]["batch_size"]
    workload["compute_s"] = workload["grouped"] * options["train"]["computation_time"]
    workload["threads"] = min(CPUS, options["reader"]["read_threads"])
    return workload


def form_of(reader, workload):
    """Returns format, number of samples in a file, and number of file names. PyTorch's reader takes no TFRecords. It
    reads a whole file of arrays for each sample, so it is given a file for each."""
    if reader == "PyTorch":
        return "npz", 1, workload["names"] * workload["samples"]
    return "tfrecord", workload["samples"], workload["names"]


def overrides(folder, files, samples, form, **others):
    options = {"dataset.data_folder": folder, "dataset.num_files_train": files, "dataset.num_samples_per_file": samples,
               "dataset.format": form, "output.folder": os.path.join(folder, "out"), **others}
    return [f"++workload.{key}={value}" for key, value in options.items()]


def make_data(folder, workload):
    """Has DLIO write the files of each format, and gives each its other names. Returns the bytes of a record."""
    for reader in ("TensorFlow", "PyTorch"):
        form, samples, names = form_of(reader, workload)
        made = workload["files"] * workload["samples"] // samples
        there = os.path.join(folder, form)
        command = [sys.executable, os.path.join(HERE, "accelerator.py"), "generate", f"workload={workload['name']}"]
        # One framework writes all formats.
        command += overrides(there, made, samples, form, **{"workflow.generate_data": True, "workflow.train": False})
        done = subprocess.run(command, capture_output=True, text=True)
        files = sorted(glob.glob(os.path.join(there, "train", f"*.{form}")))
        if done.returncode or len(files) != made:
            raise SystemExit(f"DLIO has written {len(files)} of {made} files: {done.stderr[-2000:]}")
        for number in range(made, names):
            os.link(files[number % made], os.path.join(there, "train", f"again_{number}.{form}"))
        if reader == "TensorFlow":
            record = sum(map(os.path.getsize, files)) / made / samples
    return record


def train(folder, workload, reader, count):
    """Lets so many accelerators train side by side with one reader, and returns the figures of each."""
    form, samples, names = form_of(reader, workload)
    others = {"train.epochs": 1, "train.total_training_steps": workload["steps"],
              "train.computation_time": workload["compute_s"], "reader.batch_size": workload["batch"],
              "reader.read_threads": workload["threads"], "reader.computation_threads": workload["threads"]}
    command = [sys.executable, os.path.join(HERE, "accelerator.py"), "measure", str(workload["warm_up"]),
               f"workload={workload['name']}", *overrides(os.path.join(folder, form), names, samples, form, **others),
               *(f"++workload.{option}" for option in READERS[reader])]
    with tempfile.TemporaryFile("w+") as log:

        def answer_of(process):
            for line in process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
            log.seek(0)
            raise SystemExit(f"{workload['name']}, {reader}: an accelerator ended: {log.read()[-2000:]}")

        processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
                     for _ in range(count)]
        for process in processes:
            answer_of(process)  # is ready
        for process in processes:
            process.stdin.write("begin\n")
            process.stdin.flush()
        results = [answer_of(process) for process in processes]
        for process in processes:
            process.communicate()
    return results


def measure(folder, workload, reader, record, count):
    """Returns CPU seconds per GB and utilisation of each accelerator, after checking what came."""
    name, steps, samples = workload["name"], workload["steps"], workload["steps"] * workload["batch"]
    results = train(folder, workload, reader, count)
    for result in results:
        if result["steps"] != steps or result["rows"] not in (None, samples):
            raise SystemExit(f"{name}, {reader}: {result['steps']} steps with {result['rows']} samples came; {steps} "
                             f"steps with {samples} samples were wanted")
        if result["bytes"] is not None and not 0.98 < result["bytes"] / (samples * record) < 1.01:
            raise SystemExit(f"{name}, {reader}: {result['bytes']} bytes came of {samples} records of {record:.0f}")
        counted = (steps - workload["warm_up"]) * workload["batch"] * record
        result["cpu_s_per_gb"] = result["cpu_s"] / (counted / 1e9)
    return results


def search(most):
    """Yields numbers of accelerators to try, is sent whether so many held, and returns the largest that did."""
    low, high = 0, most + 1
    while high - low > 1:
        count = min(2 * low or 1, most) if high == most + 1 else (low + high) // 2
        if (yield count):
            low = count
        else:
            high = count
    return low


def largest_counts(most, holds):
    """Returns {reader: accelerators} by a search for each reader, which take turns."""
    searches, tries, found = {}, {}, {}
    for reader in READERS:
        if reader != "no reader":
            searches[reader] = search(most)
            tries[reader] = next(searches[reader])
    while searches:
        for reader in list(searches):
            try:
                tries[reader] = searches[reader].send(holds(reader, tries[reader]))
            except StopIteration as end:
                found[reader] = end.value
                del searches[reader]
    return found


def compare(folder, args, workload):
    """Returns the figures of a workload."""
    record = make_data(folder, workload)
    alone = {reader: [] for reader in READERS}
    for number in range(args.rounds + 1):
        for reader in READERS:
            result = measure(folder, workload, reader, record, 1)[0]
            if number > 0:  # the first round fills the page cache
                alone[reader].append(result)
                print(f"{workload['name']:14} {reader:10} {result['cpu_s_per_gb']:6.2f} CPU s/GB, utilisation "
                      f"{100 * result['utilisation']:.1f} %", flush=True)
    tried = []

    def holds(reader, count):
        for _ in range(2):  # once more, in case something else used the machine
            used = [result["utilisation"] for result in measure(folder, workload, reader, record, count)]
            tried.append({"reader": reader, "accelerators": count, "utilisation": used})
            print(f"{workload['name']:14} {reader:10} {count:3} accelerators, the least used {100 * min(used):.1f} %",
                  flush=True)
            if min(used) >= WANTED:
                return True
        return False

    found = largest_counts(args.most, holds)
    lines = []
    for reader, results in alone.items():
        costs = [result["cpu_s_per_gb"] for result in results]
        lines.append({"reader": reader, "cpu_s_per_gb": statistics.median(costs), "least": min(costs),
                      "greatest": max(costs), "accelerators": found.get(reader),
                      "utilisation_of_one": statistics.median(result["utilisation"] for result in results)})
    return {**workload, "record_bytes": record, "most": args.most, "lines": lines, "rounds": alone, "tried": tried}


def table(result):
    text = [f"{result['machine']}; {result['date']}; {result['versions']}", ""]
    for workload in result["workloads"]:
        text += [f"| {workload['name']}: {workload['batch']} x {workload['record_bytes'] / 1e6:.3g} MB, steps of "
                 f"{1000 * workload['compute_s']:g} ms | CPU s/GB (smallest to largest) | utilisation of one | "
                 f"accelerators at {100 * WANTED:g} % |", "|---|---|---|---|"]
        for line in workload["lines"]:
            count = line["accelerators"]
            count = "" if count is None else f"{count} or more" if count == workload["most"] else count
            text.append(f"| {line['reader']} | {line['cpu_s_per_gb']:.2f} ({line['least']:.2f} to "
                        f"{line['greatest']:.2f}) | {100 * line['utilisation_of_one']:.1f} % | {count} |")
        text.append("")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--gpu", choices=["h100", "a100"], default="h100", help="whose time a step takes")
    parser.add_argument("--rounds", type=int, default=5, help="how often each reader's CPU time is measured")
    parser.add_argument("--most", type=int, default=16, help="the most accelerators that are tried")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    args = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    os.makedirs(args.out, exist_ok=True)
    workloads = []
    for name in args.only or WORKLOADS:
        with tempfile.TemporaryDirectory(dir=args.out) as folder:
            workloads.append(compare(os.path.abspath(folder), args, workload_of(name, args.gpu)))
    versions = ", ".join(f"{package} {version(package)}" for package in ("dlio-benchmark", "tensorflow-cpu", "torch"))
    result = {"machine": machine(), "date": datetime.date.today().isoformat(), "versions": versions,
              "workloads": workloads}
    with open(os.path.join(args.out, "dlio.json"), "w") as out:
        json.dump(result, out, indent=1)
    print(table(result))


if __name__ == "__main__":
    main()
