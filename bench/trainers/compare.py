"""Runs each work with each loader in turn, several times, and prints the medians as a table.

    ./dev bench trainers --plot trainers.png
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = [sys.executable]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *PYTHON]
TORCHRUN = [*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
FIGURES = {
    "step_ms": "ms a step",
    "wait_ms": "of which waiting",
    "ready": "steps there at once",
    "loader_cpu_ms": "CPU ms of the loader",
    "gpu_idle": "of the time the GPU is idle",
}

# By work: its title, and by name of the loader what starts it and its arguments. "memory" is a batch that lies in
# memory: where the CPU time of the loader cannot be told from that of the training, it is what is more than there.
BOTH = {"feedline": (PYTHON, ["feedline"]), "DataLoader": (PYTHON, ["own"])}
WITH_MEMORY = {"feedline": (PYTHON, ["feedline"]), "tf.data": (PYTHON, ["own"]), "memory": (PYTHON, ["memory"])}
WORKS = {
    "chess": ("PyTorch, chess", BOTH),
    "cifar": ("PyTorch, CIFAR", BOTH),
    "lightning": ("Lightning, chess", BOTH),
    "mpi": ("MPI, chess, 2 ranks", {name: (MPIRUN, arguments) for name, (_, arguments) in BOTH.items()}),
    "jax": ("JAX, chess", WITH_MEMORY),
    "keras": ("Keras, chess", WITH_MEMORY),
    "deblur": (
        "PyTorch, deblurring",
        {
            "DataLoader": (PYTHON, ["own"]),
            "feedline": (PYTHON, ["feedline"]),
            "+ bfloat16": (PYTHON, ["feedline", "--precision", "bfloat16"]),
            "+ 2 replicas": (TORCHRUN, ["feedline", "--precision", "bfloat16"]),
        },
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="of the chess network; that of CIFAR makes half as many, and deblurring a tenth, as theirs are longer")
    parser.add_argument("--json", help="a file for all results")
    parser.add_argument("--plot", help="a PNG file for a picture of the medians")
    parser.add_argument("--device", default="cpu", help="of chess and cifar; on a GPU also with a batch that lies there, and with DALI, if it is installed")
    flags = parser.parse_args()

    if flags.device != "cpu":
        on_gpu = ["--device", flags.device]
        for name in ("chess", "cifar"):
            loaders = {**{loader: (start, arguments + on_gpu) for loader, (start, arguments) in BOTH.items()},
                       "memory": (PYTHON, ["memory", *on_gpu])}
            if name == "cifar" and importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali"):
                loaders["DALI"] = PYTHON, ["dali", *on_gpu]
            WORKS[name] = WORKS[name][0], loaders
    for work in flags.works.copy():
        if why := missing(work):
            print(f"left out: {work}: {why}", file=sys.stderr)
            flags.works.remove(work)
    rounds = {work: {loader: [] for loader in WORKS[work][1]} for work in flags.works}
    for number in range(flags.rounds):
        for work, results in rounds.items():
            for loader, (start, arguments) in WORKS[work][1].items():
                print(f"round {number + 1} of {flags.rounds}: {work}, {loader}", file=sys.stderr)
                steps = flags.steps // {"cifar": 2, "deblur": 10}.get(work, 1)
                command = [*start, os.path.join(HERE, "works.py"), work, *arguments, "--steps", str(steps)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                results[loader].append(json.loads(done.stdout.splitlines()[-1]))
            if "memory" in results:
                for result in results.values():
                    result[-1]["loader_cpu_ms"] = result[-1]["cpu_ms"] - results["memory"][-1]["cpu_ms"]
            if flags.json:  # as far as it has come, in case that it does not come to its end
                with open(flags.json, "w", encoding="utf-8") as file:
                    json.dump(rounds, file, indent=1)

    medians = {
        work: {
            loader: {figure: statistics.median(run[figure] for run in runs) for figure in FIGURES if figure in runs[0]}
            for loader, runs in results.items()
        }
        for work, results in rounds.items()
    }
    columns = [f for f in FIGURES if f != "gpu_idle" or flags.device != "cpu"]
    print("| work | loader | " + " | ".join(FIGURES[f] for f in columns) + " |\n|---|---|" + "---|" * len(columns))
    for work, loaders in medians.items():
        for loader, median in loaders.items():
            shares = ("ready", "gpu_idle")
            shown = ["" if f not in median else f"{median[f]:.0%}" if f in shares else f"{median[f]:.2f}" for f in columns]
            print(f"| {WORKS[work][0]} | {loader} | " + " | ".join(shown) + " |")
    if flags.plot:
        plot(medians, flags.plot)


def missing(work):
    """Returns what this machine lacks for the work; an empty text if that is nothing."""
    modules = {"jax": ["jax", "tensorflow"], "keras": ["keras", "tensorflow"], "lightning": ["lightning"], "mpi": ["mpi4py"]}
    for module in modules.get(work, []):
        if importlib.util.find_spec(module) is None:
            return f"there is no {module}"
    return "there is no mpirun" if work == "mpi" and not shutil.which("mpirun") else ""


def plot(medians, path):
    """Draws how long a step takes with each loader, how much of it the loop waits, and the CPU time of the loader; and the
    bars of deblurring, each of which has one thing more than the one before it."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    others = [work for work in medians if work != "deblur"]
    figure, panels = pyplot.subplots(1, 2, figsize=(13, 4.2), width_ratios=[3, 1])
    for panel, works in zip(panels, (others, medians.keys() & {"deblur"})):
        places, names, bars = [], [], []
        for group, work in enumerate(works):
            for loader, median in medians[work].items():
                places.append(len(places) + 0.6 * group)
                names.append(loader if work == "deblur" else f"{WORKS[work][0]}\n{loader}")
                bars.append(median)
        waits = [bar.get("wait_ms", 0) for bar in bars]
        trains = [bar["step_ms"] - wait for bar, wait in zip(bars, waits)]
        colours = ["#4878a8" if "wait_ms" in bar else "#a8a8a8" for bar in bars]
        panel.bar(places, trains, color=colours, label="training (grey: with the waiting)")
        panel.bar(places, waits, bottom=trains, color="#d06048", label="waiting for the loader")
        panel.plot(places, [bar.get("loader_cpu_ms") for bar in bars], "k_", markersize=20, label="CPU time of the loader")
        panel.set_xticks(places, names, rotation=40, ha="right", fontsize=8)
        panel.set_ylabel("ms a step")
    panels[0].legend()
    panels[1].set_title("deblurring: each bar adds a thing", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
