"""report.py PEERS.JSON: writes the table and the plots of a comparison again."""
import json
import os
import sys


def short(rate):
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.1f} k" if rate >= 1e3 else f"{rate:.0f}"


def of_all_cores(result):
    """Returns {workload: its lines on all cores, feedline first}."""
    cores = max(line["cores"] for line in result["lines"])
    workloads = {}
    for line in result["lines"]:
        if line["cores"] == cores:
            workloads.setdefault(line["workload"], []).append(line)
    return workloads


def markdown(result):
    peers = list(dict.fromkeys(line["peer"] for line in result["lines"] if line["peer"] != "feedline"))
    text = [f"{result['machine']}; {result['date']}; {result['versions']}. Records/s, medians of {result['rounds']} rounds of "
            f"{result['seconds']:g} s; in brackets how many times as much feedline delivers, and the smallest and largest ratio of a round.",
            "", "| work | feedline | " + " | ".join(peers) + " |", "|---" * (len(peers) + 2) + "|"]
    for workload, lines in of_all_cores(result).items():
        by_peer = {line["peer"]: line for line in lines}
        ours = by_peer["feedline"]["rec_s"]
        cells = [f"{short(ours)}, {by_peer['feedline']['bytes_s'] / 1e9:.2f} GB/s"]
        if workload in result["ceilings"]:
            cells[0] += f", {ours / result['ceilings'][workload]:.2f} of its ceiling"
        for peer in peers:
            line = by_peer.get(peer)
            cells.append(f"{short(line['rec_s'])} `{line['variant']}` (**{line['ratio']:.1f}x**, {min(line['ratios']):.1f} to "
                         f"{max(line['ratios']):.1f})" if line else "")
        text.append(f"| {workload} | " + " | ".join(cells) + " |")
    if result["next"]:
        text += ["", "| `next()` beside a step of 5 ms, microseconds | p50 | p99 | p99.9 | max | CPU per record at that pace |", "|---|---|---|---|---|---|"]
    for line in result["next"]:
        at = dict(map(tuple, line["quantiles"]))
        ready = f", ready in {100 * line['readiness']:.2f} % of {line['steps']} calls" if line["readiness"] is not None else ""
        text.append(f"| {line['peer']} `{line['variant']}`{ready} | {at[0.5]:.1f} | {at[0.99]:.1f} | {at[0.999]:.1f} | {at[1]:.0f} | {line['cpu_s_per_mrec'] * 1000:.0f} ns |")
    return "\n".join(text) + "\n"


def plot(result, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    workloads = of_all_cores(result)
    scaling = [line for line in result["lines"] if line["workload"] == "chess"]
    figure, axes = plt.subplot_mosaic([["bars", "bars"], ["cores", "next"]], figsize=(14, 8.5))
    bars, cores, times = axes["bars"], axes["cores"], axes["next"]
    peers = list(dict.fromkeys(line["peer"] for line in result["lines"]))
    colours = dict(zip(peers, ["#1a7f5a", "#e08a1e", "#4c78a8", "#9d755d", "#b279a2", "#e45756"]))
    width = 0.8 / len(peers)
    for place, (workload, lines) in enumerate(workloads.items()):
        ours = lines[0]["rec_s"]
        for line in lines:
            at = place + (peers.index(line["peer"]) - (len(peers) - 1) / 2) * width
            rates = [answer["rec_s"] / ours for answer in line["rounds"]]
            share = line["rec_s"] / ours
            bars.bar(at, share, width * 0.9, color=colours[line["peer"]],
                     label=None if line["peer"] in bars.get_legend_handles_labels()[1] else line["peer"],
                     yerr=[[share - min(rates)], [max(rates) - share]], error_kw={"lw": 0.8})
        if workload in result["ceilings"]:
            bars.hlines(result["ceilings"][workload] / ours, place - 0.4, place + 0.4, color="#222", lw=1.2, linestyle=":",
                        label=None if "ceiling" in bars.get_legend_handles_labels()[1] else "ceiling")
        bars.text(place, 4.6, f"{short(ours)}/s", ha="center", fontsize=8)
    bars.set_yscale("log")
    bars.set_ylim(0.004, 8)
    bars.set_xticks(range(len(workloads)), [name.replace(", ", ",\n").replace(" to ", "\nto ").replace(" images", "\nimages")
                                            .replace(" records", "\nrecords").replace(" decoded", "\ndecoded") for name in workloads], fontsize=8)
    bars.set_ylabel("records/s, as a part of feedline's")
    bars.set_title(f"The same tensors from the same files, {max(line['cores'] for line in result['lines'])} cores, page cache warm", fontsize=10)
    bars.legend(fontsize=8, ncols=len(peers) + 1, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)
    for peer in peers:
        points = sorted((line["cores"], line["rec_s"]) for line in scaling if line["peer"] == peer)
        if points:
            cores.plot(*zip(*points), marker="o", color=colours[peer], label=peer)
    cores.set_yscale("log")
    cores.set_xticks(sorted({line["cores"] for line in scaling}))
    cores.set_xlabel("cores")
    cores.set_title("chess: records/s against cores", fontsize=10)
    for line in result["next"]:
        quantiles, us = zip(*line["quantiles"])
        times.plot([max(1 - q, 5e-5) for q in quantiles], us, color=colours[line["peer"]], label=line["peer"])
    times.set_xscale("log")
    times.set_yscale("log")
    times.invert_xaxis()
    times.set_xticks([1, 0.1, 0.01, 0.001, 0.0001], ["p0", "p90", "p99", "p99.9", "p99.99"])
    times.set_title("chess, a trainer's step of 5 ms: next() in microseconds", fontsize=10)
    figure.text(0.01, 0.005, f"{result['machine']}, {result['date']}; medians of {result['rounds']} rounds, lines from smallest to largest",
                fontsize=7, color="#555")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(path, dpi=110)


def write(result, folder):
    with open(os.path.join(folder, "peers.md"), "w") as out:
        out.write(markdown(result))
    plot(result, os.path.join(folder, "peers.png"))


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        write(json.load(file), os.path.dirname(os.path.abspath(sys.argv[1])))
