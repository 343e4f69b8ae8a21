#!/usr/bin/env python3
"""curves.py TRAIN_CHESS PICTURE: trains in every mode and precision, and draws the losses beside one replica's."""
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt

trainer, picture = sys.argv[1:]
epochs = 20


def losses(replicas, mode="replicated", precision="float32"):
    pipeline = Path(__file__).parent / "train.textproto"
    out = subprocess.run([trainer, pipeline, "--epochs", str(epochs), "--replicas", str(replicas), "--mode", mode,
                          "--precision", precision], check=True, capture_output=True, text=True).stdout
    return [float(loss) for loss in re.findall(r"loss (\S+)", out)]


alone = losses(1)
figure, (curves, apart) = plt.subplots(1, 2, figsize=(11, 4))
steps = range(1, epochs + 1)
curves.plot(steps, alone, color="black", linewidth=3, alpha=0.3, label="one replica, float32")
for mode in ["replicated", "parameter_server", "distributed_replicated"]:
    for precision, style in [("float32", "-"), ("float16", "--"), ("bfloat16", ":")]:
        got = losses(4, mode, precision)
        if mode == "replicated":
            curves.plot(steps, got, style, label=f"4 replicas, {precision}")
        apart.semilogy(steps, [max(abs(a - b) / b, 1e-7) for a, b in zip(got, alone)], style,
                       label=f"{mode}, {precision}")
curves.set(xlabel="epoch", ylabel="mean squared error", yscale="log", title="loss")
apart.set(xlabel="epoch", title="4 replicas: relative difference from one replica")
for axes in (curves, apart):
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
figure.tight_layout()
figure.savefig(picture, dpi=80)
