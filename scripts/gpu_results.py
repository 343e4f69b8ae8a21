#!/usr/bin/env python3
"""./dev gpu-results DIR: writes what came of the kit's steps on a GPU (results.json of its `run`) into the tables of
docs/limits.md, gpu/README.md and bench/results/gpus.md, between their marks, and says what was not run."""

import json
import pathlib
import re
import statistics
import sys

from marks import between_marks, table

NOT_YET = re.compile(r"[Nn]othing has run on|run on a (real )?GPU yet|[Oo]nly one and two( cores)?")

# What docs/limits.md wants: what is checked, the wanted result, and the steps that show it or the figure of gpu_bench.
WANTED = (
    ("the suite `gpu`: kernels bit for bit, feeds, NCCL, graphs captured beside feeds, data parallelism", "passes",
     ("unpack", "copy", "copy-after-host-function", "feed", "nccl", "nccl-feed", "nccl-processes", "data-parallel")),
    ("tensors of the Python package in PyTorch, CuPy and JAX: the host's bytes", "passes", ("python",)),
    ("compute-sanitizer: memcheck over it, less processes; racecheck, initcheck, synccheck over the kernels of unpacking", "clean",
     ("memcheck-unpack", "memcheck-copy", "memcheck-feed", "memcheck-data-parallel", "memcheck-nccl", "memcheck-nccl-feed",
      "racecheck-unpack", "initcheck-unpack", "synccheck-unpack")),
    ("1,000 feeders that begin and end", "memory and files as before", ("thousand-feeders",)),
    ("`train_chess --gpus`", "the losses of the CPU", ("train-chess",)),
    ("rows of tables on GPUs (`lookup.on_device`): the host's rows, bit for bit, in the suite `gpu`", "passes", ("tables",)),
    ("copy to the GPU (`gpu_bench`)", "0.90 of a bare pinned copy", "copy/link"),
    ("unpacking there", "0.80 of `cudaMemsetAsync` for what it writes", "unpack/memset"),
    ("chess boards on the GPU", "0.60 of what the host's CPUs could have ready", "boards/host"),
    ("exposed beside a trainer's kernel that uses multiprocessors and memory",
     "at most 1, which is 0.05 of (copy + unpack), or 3 us", "exposed"),
)  # fmt: skip


class Results:
    def __init__(self, entries: list[dict]):
        self.entries = {entry["name"]: entry for entry in entries}

    def ran(self, name: str) -> bool:
        """Returns whether the step was run on a GPU."""
        entry = self.entries.get(name, {"verdict": "not run"})
        return entry["verdict"] in ("passed", "failed", "hung") and entry["gpu"] != "no GPU"

    def figures(self, name: str):
        return self.ran(name) and self.entries[name].get("figures") or {}

    def where(self, names) -> str:
        """Returns on which GPUs these steps were run, and when."""
        ran = [self.entries[name] for name in names if self.ran(name)]
        return "; ".join(sorted({f"{entry['gpu']}, {entry['date']}" for entry in ran}))

    def says(self, names: tuple[str, ...]) -> str:
        """Returns what came of steps, in a cell of a table."""
        ran = [name for name in names if self.ran(name)]
        if not ran:
            return "not run"
        said = [f"**{self.entries[name]['verdict']}**: {name}" for name in ran if self.entries[name]["verdict"] != "passed"]
        said = said or ["passed"]
        if cut := [name for name in ran if several(self.entries[name])]:
            said.append(f"less the cases for several GPUs of {', '.join(cut)}")
        said += [f"not run: {name}" for name in names if name not in ran]
        return f"{', '.join(said)}; {self.where(names)}"

    def bench(self, step: str) -> dict[str, dict]:
        """Returns the figures of gpu_bench by their names."""
        return {figure["name"]: figure for figure in self.figures(step).get("figures", ())}


def several(entry: dict) -> bool:
    """Returns whether a step has passed without its cases for more GPUs than there are."""
    return entry["verdict"] == "passed" and "GPUs are wanted" in (entry.get("why") or "")


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def spread(figure: dict) -> str:
    return f"{number(figure['value'])} ({number(figure['min'])} to {number(figure['max'])})"


def limits(results: Results) -> list[str]:
    rows = []
    for what, wanted, shown in WANTED:
        if isinstance(shown, tuple):
            said = results.says(shown)
        elif figure := results.bench("gpu-bench").get(shown):
            said = f"{spread(figure)}; {results.where(['gpu-bench'])}"
        else:
            said = "not run"
        rows.append([what, wanted, said])
    return table(["", "wanted", "result, on which GPU, when"], rows)


def steps(results: Results) -> list[str]:
    """What gpu/README.md says of each step, and of kernels."""
    ran = [name for name in results.entries if results.ran(name)]
    rows = []
    for name in ran:
        entry = results.entries[name]
        passed = entry["verdict"] == "passed"
        figures_of_part = ", ".join(f"{what} {value}" for what, value in (entry.get("figure") or {}).items())
        verdict = "passed, less cases for several GPUs" if several(entry) else "passed" if passed else f"**{entry['verdict']}**"
        said = [verdict, figures_of_part if passed else entry.get("why")]
        rows.append((name, ": ".join(filter(None, said)), results.where([name])))
    kernels = {name: results.figures(name) for name in ran if name.startswith("ncu-") and results.figures(name)}
    columns = sorted({column for figures in kernels.values() for column in figures})
    looked_at = [[name.removeprefix("ncu-"), *(figures.get(column, "") for column in columns)] for name, figures in kernels.items()]
    lines = ["[scripts/gpu/steps.py](../scripts/gpu/steps.py) says what each step runs.", ""]
    alike: dict[tuple[str, str], list[str]] = {}  # (result, where) -> the steps with this result
    for name, said, where in rows:
        alike.setdefault((said, where), []).append(name)
    lines += table(["steps", "what came of them", "on which GPU, when"], [[", ".join(n), *of] for of, n in alike.items()])
    for name in ("copy-after-host-function", "unpack-rates"):
        lines += table([name, "figure"], [list(figure) for figure in results.figures(name).items()])
    return lines + table(["kernel, by ncu", *columns], looked_at)


def figures(results: Results) -> list[str]:
    """What bench/results/gpus.md says of gpu_bench, of trainers, and of many cores."""
    usual, alone = results.bench("gpu-bench"), results.bench("gpu-bench-1-connection")
    trainers, cores = results.figures("trainers"), results.figures("cores")
    if not (usual or alone or trainers or cores):
        return ["It has not run on a GPU yet.", ""]
    lines = []
    if usual or alone:
        header = ["figure", "what it is", "with 32 connections", "with 1"]
        names = list(usual or alone)
        shown = [[spread(by[name]) if name in by else "" for by in (usual, alone)] for name in names]
        rows = [[name, (usual or alone)[name]["what"], *pair] for name, pair in zip(names, shown)]
        lines += [f"`gpu_bench`: {results.where(['gpu-bench', 'gpu-bench-1-connection'])}.", "", *table(header, rows)]
    if trainers:
        rows = []
        for work, loaders in trainers.items():
            for loader, runs in loaders.items():
                median = {name: statistics.median([run[name] for run in runs if name in run]) for name in runs[0]}
                idle = f"{median['gpu_idle']:.0%}" if "gpu_idle" in median else ""
                waiting = number(median["wait_ms"]) if "wait_ms" in median else ""
                rows.append([work, loader, number(1000 / median["step_ms"]), waiting, idle, number(median["cpu_ms"])])
        header = ["trainer on a GPU", "loader", "steps/s", "ms of a step waiting", "GPU idle, by NVML", "CPU ms a step"]
        lines += [f"`bench/trainers/compare.py --device cuda`: {results.where(['trainers'])}.", "", *table(header, rows)]
    if cores:
        counts = sorted((title for title in cores if re.fullmatch(r"\d+ cores?", title)), key=lambda title: int(title.split()[0]))
        paths = [row["name"] for row in next((cores[title] for title in cores if "against" in title), [])]
        by = {(title, row["name"]): row for title in counts for row in cores[title]}
        rows = [[path, *(f"{number(by[title, path]['value'] / 1e3)} k, {by[title, path]['ratio']:.2f}" for title in counts)] for path in paths]
        lines += [f"`feed_bench`, records/s and their share of the bare loops: the machine of {results.where(['cores'])}.", ""]
        lines += table(["path", *counts], rows)
    return lines


DOCUMENTS = {"docs/limits.md": limits, "gpu/README.md": steps, "bench/results/gpus.md": figures}


def texts_of(results: Results) -> dict[str, str]:
    """Returns what the documents say with these results."""
    if not any(map(results.ran, results.entries)):
        raise ValueError("no step of it was run on a GPU")
    return {path: between_marks(path, "gpu-results", write(results)) for path, write in DOCUMENTS.items()}


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("./dev gpu-results takes the folder with the results of the kit's `run`")
    file = pathlib.Path(sys.argv[1]) / "results.json"
    try:
        results = Results(json.loads(file.read_text(encoding="utf-8"))["steps"])
        texts = texts_of(results)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"{file} is no result of the kit's `run`, or is cut: {error!r}; nothing is written")
    for path, text in texts.items():
        pathlib.Path(path).write_text(text, encoding="utf-8")
    for name, entry in results.entries.items():
        if not results.ran(name):
            print(f"not run on a GPU: {name}: {entry['verdict']}: {entry.get('why') or ''}")
    for path in sorted(pathlib.Path().glob("**/*.md")):
        if path.parts[0].startswith(("build", "subprojects")):
            continue
        for count, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if NOT_YET.search(line):
                print(f"{path}:{count}: still says: {line.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
