"""plot.py PEERS.JSON PNG: draws the figures of a comparison."""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def short(rate):
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.1f} k" if rate >= 1e3 else f"{rate:.0f}"


def shares(line):
    """Returns a loader's rate as a part of feedline's, and its smallest and largest in a round."""
    median, least, most = line.get("ratio", (1, 1, 1))
    return 1 / median, 1 / most, 1 / least


def plot(result, path):
    most_cpus = max(row["cpus"] for row in result["rows"])
    rows = [row for row in result["rows"] if row["cpus"] == most_cpus]
    figure, axes = plt.subplot_mosaic([["bars", "bars"], ["cpus", "next"]], figsize=(14, 8.5))
    bars, cpus, times = axes["bars"], axes["cpus"], axes["next"]
    loaders = list(dict.fromkeys(name for row in rows for name in row["loaders"]))
    colours = dict(zip(loaders, plt.get_cmap("tab10").colors))
    width = 0.8 / len(loaders)
    labels = set()
    for place, row in enumerate(rows):
        ours = row["loaders"]["feedline"]
        for name, line in row["loaders"].items():
            at = place + (loaders.index(name) - (len(loaders) - 1) / 2) * width
            share, least, most = shares(line)
            bars.bar(at, share, width * 0.9, color=colours[name], label=None if name in labels else name,
                     yerr=[[share - least], [most - share]], error_kw={"lw": 0.8})
            labels.add(name)
        if "ceiling" in ours:
            bars.hlines(1 / ours["ceiling"], place - 0.4, place + 0.4, color="#222", lw=1.2, linestyle=":",
                        label=None if "ceiling" in labels else "ceiling")
            labels.add("ceiling")
        bars.text(place, 4.6, f"{short(ours['rec_s'])}/s", ha="center", fontsize=8)
    bars.set_yscale("log")
    bars.set_ylim(0.004, 8)
    bars.set_xticks(range(len(rows)), [row["work"].replace(", ", ",\n").replace(" to ", "\nto ").replace(" images", "\nimages")
                                       .replace(" records", "\nrecords").replace(" decoded", "\ndecoded") for row in rows], fontsize=8)
    bars.set_ylabel("records/s, as a part of feedline's")
    bars.set_title(f"The same tensors from the same files, {most_cpus} CPUs, page cache warm", fontsize=10)
    bars.legend(fontsize=8, ncols=len(loaders) + 1, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)
    for name in loaders:
        points = sorted((row["cpus"], row["loaders"][name]["rec_s"]) for row in result["rows"]
                        if row["work"] == "chess" and "rec_s" in row["loaders"].get(name, {}))
        if points:
            cpus.plot(*zip(*points), marker="o", color=colours[name], label=name)
    cpus.set_yscale("log")
    cpus.set_xticks(sorted({row["cpus"] for row in result["rows"]}))
    cpus.set_xlabel("CPUs")
    cpus.set_title("chess: records/s against CPUs", fontsize=10)
    for name, line in result["pace"]["loaders"].items():
        quantiles, us = zip(*line["next_us"])
        times.plot([max(1 - q, 5e-5) for q in quantiles], us, color=colours[name], label=name)
    times.set_xscale("log")
    times.set_yscale("log")
    times.invert_xaxis()
    times.set_xticks([1, 0.1, 0.01, 0.001, 0.0001], ["p0", "p90", "p99", "p99.9", "p99.99"])
    times.set_title("chess, a trainer's step of 5 ms: next() in microseconds", fontsize=10)
    measured = dict.fromkeys(f"{row['date']}, {row['machine']}" for row in rows)
    figure.text(0.01, 0.005, f"{'; '.join(measured)}; medians of rounds, lines from smallest to largest", fontsize=7, color="#555")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        plot(json.load(file), sys.argv[2])
