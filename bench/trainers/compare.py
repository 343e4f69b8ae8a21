"""Runs each work with each loader in turn, several times, and prints the medians as a table.

    ./dev bench trainers --plot trainers.png
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FIGURES = {"step_ms": "ms a step", "wait_ms": "of which waiting", "ready": "steps there at once", "loader_cpu_ms": "CPU ms of the loader"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=["chess", "cifar"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--json", help="a file for all results")
    parser.add_argument("--plot", help="a PNG file for a picture of the medians")
    flags = parser.parse_args()

    results = []
    for number in range(flags.rounds):
        for work in flags.works:
            for loader in ("feedline", "torch"):
                print(f"round {number + 1} of {flags.rounds}: {work}, {loader}", file=sys.stderr)
                command = [sys.executable, os.path.join(HERE, "works.py"), work, loader, "--steps", str(flags.steps)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                results.append(json.loads(done.stdout.splitlines()[-1]))
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)

    medians = {}
    for result in results:
        medians.setdefault((result["work"], result["loader"]), []).append(result)
    for place, runs in medians.items():
        medians[place] = {figure: statistics.median(run[figure] for run in runs) for figure in FIGURES}
    print("| work | loader | " + " | ".join(FIGURES.values()) + " |\n|---|---|" + "---|" * len(FIGURES))
    for (work, loader), median in medians.items():
        shown = [f"{median[f]:.0%}" if f == "ready" else f"{median[f]:.2f}" for f in FIGURES]
        print(f"| {work} | {loader} | " + " | ".join(shown) + " |")
    if flags.plot:
        plot(medians, flags.plot)


def plot(medians, path):
    """Draws for each work and loader how long a step takes, and how much of it the loop waits."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = [f"{work}\n{loader}" for work, loader in medians]
    waits = [median["wait_ms"] for median in medians.values()]
    trains = [median["step_ms"] - median["wait_ms"] for median in medians.values()]
    figure, axes = pyplot.subplots(figsize=(1.6 * len(names) + 1, 3.2))
    axes.bar(names, trains, color="#4878a8", label="training")
    axes.bar(names, waits, bottom=trains, color="#d06048", label="waiting for the loader")
    axes.plot(names, [median["loader_cpu_ms"] for median in medians.values()], "k_", markersize=24, label="CPU time of the loader")
    axes.set_ylabel("ms a step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
