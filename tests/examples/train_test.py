#!/usr/bin/env python3
"""train_test.py TRAIN_CHESS SOURCE: the loss must go down; all modes but one must match one replica."""
import re
import subprocess
import sys

trainer, source = sys.argv[1:]


def losses(replicas, mode="replicated", precision="float32"):
    out = subprocess.run(
        [trainer, f"{source}/examples/train.textproto", "--epochs", "6", "--replicas", str(replicas), "--mode", mode,
         "--precision", precision], check=True, capture_output=True, text=True).stdout
    return [float(loss) for loss in re.findall(r"loss (\S+)", out)]


def check(what, got, wanted, tolerance):
    assert len(got) == len(wanted), f"{what}: {got}"
    apart = max(abs(a - b) / b for a, b in zip(got, wanted))
    print(f"{what}: {got[0]:.4f} to {got[-1]:.4f}, {apart:.1e} apart")
    assert apart <= tolerance, f"{what}: {got}, one replica in float32: {wanted}"


alone = losses(1)
assert alone[-1] < alone[0] / 4, alone
for mode in ["replicated", "parameter_server", "distributed_replicated"]:
    for replicas in [1, 2, 4]:
        if replicas == 1 and mode == "distributed_replicated":
            continue  # two machines need at least two replicas
        for precision, tolerance in [("float32", 1e-6), ("float16", 0.05), ("bfloat16", 0.05)]:
            check(f"{mode}, {replicas} replicas, {precision}", losses(replicas, mode, precision), alone, tolerance)

# The order in which gradients arrive changes from run to run, and so does the loss.
for replicas in [1, 4]:
    got = losses(replicas, "asynchronous")
    print(f"asynchronous, {replicas} replicas: {got[0]:.4f} to {got[-1]:.4f}")
    assert got[-1] < got[0] / 2, got
