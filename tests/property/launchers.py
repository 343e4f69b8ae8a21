"""Feeds a case as ranks that a launcher starts: the loaders are not told which rank they are."""

import functools
import glob
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), os.path.join(HERE, "..", "reference")]

from conftest import CUDA, QUIET, free_port, why_not
from differences import Differs, compare
from feeds import joined, message_for

PROGRAM = os.path.join(HERE, "launched.py")


def cluster(rank, ranks):
    """Returns what TensorFlow calls a worker of a cluster."""
    workers = {"worker": [f"127.0.0.1:{2000 + worker}" for worker in range(ranks)]}
    return json.dumps({"cluster": workers, "task": {"type": "worker", "index": rank}})


# The environment of a rank, for each launcher that starts nothing here, or whose ranks find each other by themselves.
VARIABLES = {
    "torchrun's variables": lambda rank, ranks: {"RANK": str(rank), "WORLD_SIZE": str(ranks)},
    "horovodrun's variables": lambda rank, ranks: {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(ranks)},
    "MPICH's variables": lambda rank, ranks: {"PMI_RANK": str(rank), "PMI_SIZE": str(ranks)},
    "srun's variables": lambda rank, ranks: {
        "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_NTASKS": str(ranks)},
    "TF_CONFIG": lambda rank, ranks: {"TF_CONFIG": cluster(rank, ranks)},
    "JAX": lambda rank, ranks: {},
}  # fmt: skip

# What comes before the program in a command that starts all ranks. Where it is empty, the program starts them itself.
COMMANDS = {
    "mpirun": lambda ranks: ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, sys.executable],
    "torchrun": lambda ranks: [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks],
    "Accelerate": lambda ranks: [
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", ranks, "--num_machines", "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())],
    "mp.spawn": lambda ranks: [sys.executable],
    "Lightning, ddp": lambda ranks: [sys.executable],
    "Lightning, ddp_spawn": lambda ranks: [sys.executable],
    "Fabric": lambda ranks: [sys.executable],
}  # fmt: skip

NEEDS = {"JAX": "jax", "torchrun": "torch", "mp.spawn": "torch", "Accelerate": "accelerate", "Fabric": "lightning"}


def lacking(launcher):
    """Returns why a launcher cannot be tried here; an empty text if it can."""
    if launcher == "mpirun":
        return "" if shutil.which("mpirun") else "mpirun is not installed"
    framework = NEEDS.get(launcher, "lightning" if launcher.startswith("Lightning") else "")
    return why_not(framework) if framework else ""


def combinations():
    """Yields (name, launcher, when the loader is made)."""
    for launcher in (*VARIABLES, *COMMANDS):
        for when in ("late",) if launcher.endswith(("variables", "TF_CONFIG", "mpirun")) else ("early", "late"):
            yield f"{launcher}, a loader made {when}", launcher, when


def ways(case, folder, plain, laws):
    """Yields (name, function) for each combination, as ways.ways() does for the other ways."""
    # Ranks that do not hear of each other each end at the first bad record of their own.
    if plain.error and (case.family != "damaged" or plain.steps):
        return
    for name, *combination in combinations():
        fed = functools.partial(feed, case, folder, *combination)
        yield name, lambda name=name, fed=fed: compare(name, plain, fed(), False, laws)


def feed(case, folder, launcher, when):
    """Feeds the ranks of a case, and returns what they were given, together."""
    ranks = case.world
    # The folder lies in that of the data, whose names the pipeline has.
    with tempfile.TemporaryDirectory(prefix="launched-", dir=folder) as own:
        with open(os.path.join(own, "pipeline"), "w") as file:
            file.write(str(message_for(case, {"world": ranks, "threads": case.threads})))
        program = [PROGRAM, launcher, when, own, str(case.steps), str(ranks), f"127.0.0.1:{free_port()}"]
        if launcher in VARIABLES:
            started = [
                ([sys.executable, *program], {**VARIABLES[launcher](rank, ranks), "PROCESS": str(rank)})
                for rank in range(ranks)
            ]
        else:
            started = [([*COMMANDS[launcher](str(ranks)), *program], {})]
        environment = {**os.environ, "LD_LIBRARY_PATH": CUDA, "OMP_NUM_THREADS": "1", **QUIET}
        processes = [
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**environment, **more}
            )
            for command, more in started
        ]
        told = [process.communicate()[1] for process in processes]
        for process, text in zip(processes, told, strict=True):
            if process.returncode:
                raise Differs(f"{launcher} ends with {process.returncode}: {text[-8000:]}")
        parts = {}
        for name in glob.glob(os.path.join(own, "*.pickle")):
            with open(name, "rb") as file:
                rank, fed = pickle.load(file)
            if fed.report.get("rank", rank) != rank:
                raise Differs(f"rank {rank} of {launcher} has fed as rank {fed.report['rank']}")
            parts[rank] = fed
        if sorted(parts) != list(range(ranks)):
            raise Differs(f"{launcher} has started the ranks {sorted(parts)}, not {ranks}")
        return joined([parts[rank] for rank in range(ranks)])


if __name__ == "__main__":
    print(json.dumps({name: lacking(launcher) for name, launcher, _ in combinations()}))
