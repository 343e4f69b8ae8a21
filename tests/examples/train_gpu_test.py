#!/usr/bin/env python3
"""train_gpu_test.py TRAIN_CHESS ON_GPUS SOURCE GPUS: training on 1 to GPUS GPUs must give the losses of the host."""
import re
import subprocess
import sys

on_host, on_gpus, source, gpus = sys.argv[1:]


def losses(trainer, *flags):
    run = subprocess.run([trainer, f"{source}/examples/train.textproto", "--epochs", "2", *flags],
                         capture_output=True, text=True)
    assert run.returncode == 0, f"{flags}: {run.stderr}"
    return [float(loss) for loss in re.findall(r"loss (\S+)", run.stdout)]


alone = losses(on_host)
for replicas, mode, owners, precision, tolerance in [
        (1, "replicated", "gpu", "float32", 1e-4),
        (2, "replicated", "gpu", "float32", 1e-4),
        (2, "parameter_server", "gpu", "float32", 1e-4),
        (2, "parameter_server", "host", "float32", 1e-4),
        (4, "replicated", "gpu", "float32", 1e-4),
        (4, "parameter_server", "gpu", "float32", 1e-4),
        (4, "parameter_server", "host", "float32", 1e-4),
        (4, "distributed_replicated", "gpu", "float32", 1e-4),
        (4, "distributed_replicated", "host", "float32", 1e-4),
        (2, "distributed_replicated", "host", "float32", 1e-4),
        (1, "parameter_server", "host", "float32", 1e-4),
        (1, "replicated", "gpu", "float16", 0.05),
        (1, "replicated", "gpu", "bfloat16", 0.05),
        (2, "replicated", "gpu", "float16", 0.05),
        (2, "parameter_server", "host", "bfloat16", 0.05),
        (4, "parameter_server", "gpu", "bfloat16", 0.05),
        (4, "distributed_replicated", "gpu", "float16", 0.05),
        (4, "distributed_replicated", "host", "bfloat16", 0.05),
        (1, "asynchronous", "host", "float32", 1e-4),
]:
    # With NCCL, also inside machines, each replica needs a GPU of its own.
    wanted = replicas if owners == "gpu" or mode == "distributed_replicated" else 1
    if wanted > int(gpus):
        print(f"skipped, {wanted} GPUs are wanted: {mode}, {replicas} replicas, owners on the {owners}, {precision}")
        continue
    what = f"{mode}, {replicas} replicas, owners on the {owners}, {precision}"
    got = losses(on_gpus, "--gpus", "--replicas", str(replicas), "--mode", mode, "--owners", owners, "--precision",
                 precision)
    assert len(got) == len(alone), f"{what}: {got}"
    apart = max(abs(a - b) / b for a, b in zip(got, alone))
    print(f"{what}: {got[0]:.4f} to {got[-1]:.4f}, {apart:.1e} apart")
    assert apart <= tolerance, f"{what}: {got}, on the host: {alone}"
