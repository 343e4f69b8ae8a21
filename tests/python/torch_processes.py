"""Runs code in processes that import torch, alone or as the ranks of a process group."""

import json

from conftest import QUIET, free_port, need, python, run_ranks

START = """
import json, os, pickle, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
import feedline
from feedline.torch import Batch, Loader
pipeline = feedline.Pipeline(sys.argv[1])
wanted = [list(range(10 * i, 10 * i + 10)) for i in range(5)]
"""


def run(code, *arguments, **environment):
    """Runs the code in a process, and returns the JSON that it has printed last."""
    need("torch")
    done = python(START + code, *arguments, **QUIET, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_group(count, code, *arguments):
    """Runs the code in processes that are the ranks of a process group, and returns what each has printed last."""
    need("torch")
    code = START + 'dist.init_process_group("gloo")\n' + code + "\ndist.barrier()\ndist.destroy_process_group()"
    port, done = str(free_port()), [None] * count

    def rank(number):
        place = {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        done[number] = python(code, *arguments, OMP_NUM_THREADS="1", **QUIET, **place)

    run_ranks(count, rank)
    assert [rank.returncode for rank in done] == [0] * count, [rank.stderr[-2000:] for rank in done]
    return [json.loads(rank.stdout.splitlines()[-1]) for rank in done]
