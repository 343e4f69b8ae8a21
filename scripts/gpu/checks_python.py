#!/usr/bin/env python3
"""Checks of the Python package on a GPU: what torch, CuPy and JAX read there is what the feed has written.

    checks_python.py SOURCE --device cuda:0 [--only NAME...] [--json FILE]

SOURCE is the source tree, for the data of its tests and its examples. Each check has a time limit and a verdict of its
own. Its result is written to FILE when it ends, as a line of JSON: name, seconds, verdict (passed, failed or skipped),
figure (a dict or null) and why. With --device cpu the checks that need no GPU run on the host. Exits with 1 if a check
failed.
"""

import argparse
import functools
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from typing import NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch and the feed need GPU memory, too

from in_turn import Check, Skip, results, work

import feedline

CHECKS = {}  # name: function and limit


def check(limit=45):
    """A check, which is given a Bench. Its limit is in seconds."""

    def add(function):
        CHECKS[function.__name__] = function, limit
        return function

    return add


class Plain(NamedTuple):
    """A tensor of any framework."""

    dtype: str
    shape: tuple[int, ...]
    bytes: bytes


def leaves(batch):
    """Yields the name and the tensor of all that a batch of feedline's has."""
    parts = [("@valid", batch.valid_mask), *batch.items()]
    while parts:
        name, value = parts.pop()
        if isinstance(value, tuple):
            parts += [(f"{name}.{field}", part) for field, part in value._asdict().items()]
        else:
            yield name, value


def of_torch(tensor):
    import torch

    elements = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return Plain(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), elements.cpu().numpy().tobytes())


def of_array(array):
    return Plain(array.dtype.name, tuple(array.shape), array.tobytes())


def must_be(got, wanted):
    """Raises AssertionError unless these lists of steps are the same."""
    wrong = [step for step, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]]
    assert not wrong, f"{len(wrong)} of {len(wanted)} steps are wrong, the first of them {wrong[:6]}"
    assert len(got) == len(wanted), f"there are {len(got)} steps, and {len(wanted)} are wanted"


class Bench:
    """The data and the device of the checks."""

    def __init__(self, source, device):
        self.source, self.device, self.gpu = pathlib.Path(source).resolve(), device, device != "cpu"
        self.number = int(device.partition(":")[2] or 0)

    @functools.cached_property
    def chess(self):
        """Boards of 32 positions, and their scores: some kernels' worth of work, many steps, all of one shape."""
        return (
            feedline.tfrecords(self.source / "tests/golden/chess/main-*.tfrecord")
            .feature("d", bytes, length=194)
            .feature("s", int)
            .batch(32, last_batch_policy="DROP")
            .output("board", dtype="float32", feature="d", unpack_bits={"shape": [8, 8, 24]})
            .output("score", dtype="int32", feature="s")
        )

    @functools.cached_property
    def boards(self):
        """The boards of an epoch, as the host has them."""
        return [Plain("float32", batch["board"].shape, bytes(batch["board"])) for batch in feedline.Loader(self.chess)]

    def loader(self, pipeline=None, **arguments):
        return feedline.Loader(self.chess if pipeline is None else pipeline, devices=self.device, **arguments)

    def need_gpu(self):
        if not self.gpu:
            raise Skip("it needs a GPU")

    def torch(self):
        torch = imported("torch")
        if self.gpu:
            if not torch.cuda.is_available():
                raise Skip("torch has no CUDA here")
            torch.cuda.set_device(self.number)
        return torch

    def cupy(self):
        self.need_gpu()
        cupy = imported("cupy")
        cupy.cuda.Device(self.number).use()
        return cupy

    def jax(self):
        jax = imported("jax")
        try:
            device = jax.local_devices(backend="cuda" if self.gpu else "cpu")[self.number]
        except RuntimeError as error:
            raise Skip(f"jax: {error}") from None
        jax.config.update("jax_default_device", device)
        return jax


def imported(framework):
    try:
        return importlib.import_module(framework)
    except ImportError as error:
        raise Skip(f"{framework}: {error}") from None


@check()
def torch_on_its_default_stream(bench):
    torch = bench.torch()
    must_be([of_torch(torch.from_dlpack(batch["board"])) for batch in bench.loader()], bench.boards)


def keep_busy(torch):
    torch.cuda._sleep(4_000_000)  # cycles: some 2 ms


@check()
def torch_on_a_busy_side_stream(bench):
    """Each tensor is dropped before the stream has come to reading it."""
    bench.need_gpu()
    torch = bench.torch()
    side, copies = torch.cuda.Stream(), []
    with torch.cuda.stream(side):
        for batch in bench.loader():
            board = torch.from_dlpack(batch["board"])
            keep_busy(torch)
            copies.append(board.clone())
            del batch, board
    side.synchronize()
    must_be([of_torch(copy) for copy in copies], bench.boards)


@check()
def torch_on_a_second_stream(bench):
    """A tensor that was taken on one stream is taken on a second stream, too, which reads it late."""
    bench.need_gpu()
    torch = bench.torch()
    second, copies = torch.cuda.Stream(), []
    for batch in bench.loader():
        board = torch.from_dlpack(batch["board"])
        with torch.cuda.stream(second):
            torch.from_dlpack(batch["board"])
            keep_busy(torch)
            copies.append(board.clone())
        del batch, board
    second.synchronize()
    must_be([of_torch(copy) for copy in copies], bench.boards)


@check()
def torch_keeps_all_and_a_thread_frees_them(bench):
    torch = bench.torch()
    warnings.simplefilter("ignore")  # the warning that batches are copied
    with bench.loader() as loader:
        kept = [torch.from_dlpack(batch["board"]) for batch in loader]
        copied = loader.report()["batches_copied"]
    must_be([of_torch(board) for board in kept], bench.boards)
    freeing = threading.Thread(target=kept.clear)
    freeing.start()
    freeing.join()
    assert 0 < copied < len(bench.boards), f"{copied} batches were copied"
    return {"batches copied": copied}


@check()
def torch_captures_while_feeding(bench):
    """A graph is captured while the feed writes, and replayed with each step that next_into() copies."""
    bench.need_gpu()
    torch = bench.torch()
    from feedline.torch import Loader

    loader, other = Loader(bench.chess, device=bench.device), bench.loader()
    static = {name: tensor.clone() for name, tensor in next(iter(loader)).items()}
    seen, given = torch.empty_like(static["board"]), []
    feeding = threading.Thread(target=lambda: given.append(sum(1 for _ in other)))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=stream):
        seen.copy_(static["board"])
        feeding.start()
        feeding.join()
    assert given == [len(bench.boards)]
    loader.set_epoch(0)
    boards = []
    while loader.next_into(static):
        graph.replay()
        boards.append(of_torch(seen))
    must_be(boards, bench.boards)


@check()
def torch_drops_inside_a_capture(bench):
    """A tensor that is dropped during a capture must end the feed with an Error."""
    bench.need_gpu()
    torch = bench.torch()
    steps, stream = iter(bench.loader()), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        board = torch.from_dlpack(next(steps)["board"])
    next(steps)  # makes the iterator release the batch
    stream.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        torch.zeros(4, device=bench.device)
        del board
    try:
        for _ in steps:
            pass
    except feedline.Error as error:
        print("as wanted:", error)
        return
    raise AssertionError("the feed went on without an Error")


@check(limit=90)
def torch_compiles_a_step(bench):
    torch = bench.torch()
    from shutil import which

    # inductor needs a C compiler to make kernels, and a machine that only trains may have none.
    backends = ["aot_eager", *(["cudagraphs"] if bench.gpu else []), *(["inductor"] if bench.gpu and which("cc") else [])]
    for backend in backends:
        step = torch.compile(lambda board: 2 * board + 1, backend=backend)
        got = [of_torch((step(torch.from_dlpack(batch["board"])) - 1) / 2) for batch in bench.loader()]
        must_be(got, bench.boards)
    return {"backends": backends}


@check()
def cupy_on_a_busy_stream(bench):
    """Each array is dropped before the stream has come to reading it."""
    cupy = bench.cupy()
    spin = cupy.RawKernel(
        'extern "C" __global__ void spin(long long cycles) { for (long long begin = clock64(); clock64() - begin < cycles;); }',
        "spin",
    )
    stream, copies = cupy.cuda.Stream(non_blocking=True), []
    with stream:
        for batch in bench.loader():
            board = cupy.from_dlpack(batch["board"])
            spin((1,), (1,), (4_000_000,))
            copies.append(board.copy())
            del batch, board
    stream.synchronize()
    must_be([of_array(cupy.asnumpy(copy)) for copy in copies], bench.boards)


def slow_step(bench, jax):
    """Returns a jitted function that returns its argument, after work of some milliseconds on a GPU."""
    size, rounds = (4096, 4) if bench.gpu else (64, 4)
    weights = jax.numpy.ones((size, size))

    @jax.jit
    def step(board, weights):
        y = jax.lax.fori_loop(0, rounds, lambda i, y: jax.numpy.tanh(y @ weights), weights)
        return jax.numpy.where(jax.numpy.isnan(y).any(), jax.numpy.nan, board)

    return lambda board: step(board, weights)


@check()
def jax_that_is_waited_for(bench):
    """What the README wants of a program that takes tensors by itself."""
    jax = bench.jax()
    step, results = slow_step(bench, jax), []
    for batch in bench.loader():
        results.append(jax.block_until_ready(step(jax.dlpack.from_dlpack(batch["board"]))))
    must_be([of_array(jax.device_get(result)) for result in results], bench.boards)


@check()
def jax_loader_with_early_drops(bench):
    """Each array is dropped before the GPU has come to reading it."""
    jax = bench.jax()
    from feedline.jax import Loader

    step, results = slow_step(bench, jax), []
    loader = Loader(bench.chess, devices=bench.device)
    for batch in loader:
        results.append(step(batch["board"]))
        del batch
    must_be([of_array(jax.device_get(result)) for result in results], bench.boards)
    return {"batches copied": loader.report()["batches_copied"]}


@check()
def moves_while_tensors_are_held(bench):
    torch = bench.torch()
    loader = bench.loader()
    steps = iter(loader)
    held = [torch.from_dlpack(next(steps)["board"]) for _ in range(2)]
    state = loader.state_dict()
    for epoch in range(2, 5):
        loader.set_epoch(epoch)
        held.append(torch.from_dlpack(next(iter(loader))["board"]))
        loader.load_state_dict(state)
        rest = [of_torch(torch.from_dlpack(batch["board"])) for batch in loader]
        must_be(rest, bench.boards[2:])
    must_be([of_torch(board) for board in held], [*bench.boards[:2], *bench.boards[:1] * 3])


@check()
def steps_per_second(bench):
    torch = bench.torch()
    loader, steps, start = bench.loader(batch={"global_batch_size": 256}), 0, time.monotonic()
    while (seconds := time.monotonic() - start) < 3:
        for batch in loader:
            for tensor in batch.values():
                torch.from_dlpack(tensor)
            steps += 1
    return {"steps/s": round(steps / seconds), "verdict": loader.report()["verdict"]}


@check(limit=100)
def alive_at_exit(bench):
    """Programs that end while a loader, its batches, and what a framework has made of them are there."""
    programs = {
        "torch": "loader = feedline.Loader(pipeline, devices=device)\n"
        "kept = [(batch, torch.from_dlpack(batch['board'])) for batch, _ in zip(loader, range(2))]",
        "jax": "from feedline.jax import Loader\n"
        "loader = Loader(pipeline, devices=device)\n"
        "kept = [batch for batch, _ in zip(loader, range(2))]",
    }
    done = []
    for framework, program in programs.items():
        try:
            getattr(bench, framework)()
        except Skip:
            continue
        code = (
            "import faulthandler; faulthandler.dump_traceback_later(35, exit=True)\n"
            f"import feedline, {framework}\npipeline, device = {str(bench.chess)!r}, {bench.device!r}\n{program}"
        )
        ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], timeout=45, stderr=subprocess.PIPE, text=True)
        print(ended.stderr, end="", file=sys.stderr)
        assert ended.returncode == 0, f"the program with {framework} ended with exit status {ended.returncode}"
        assert "Exception ignored" not in ended.stderr
        done.append(framework)
    if not done:
        raise Skip("there is neither torch nor JAX")
    return {"programs": done}


def same_as_on_the_host(bench, pipeline):
    """Compares all tensors of two epochs."""
    torch = bench.torch()
    wanted, got = (feedline.Loader(pipeline, devices=devices) for devices in ("cpu", bench.device))
    for _ in range(2):
        steps = [{name: Plain(t.dtype, t.shape, bytes(t)) for name, t in leaves(batch)} for batch in wanted]
        must_be([{name: of_torch(torch.from_dlpack(t)) for name, t in leaves(batch)} for batch in got], steps)


@check()
def click_log(bench):
    """Records with many numbers, of which the tree has no example: 13 counts, 26 ids and a label."""
    import random

    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        feedline.write(
            f"{folder}/clicks.tfrecord",
            (
                {
                    "dense": [draw.random() for _ in range(13)],
                    "ids": [draw.randrange(10**6) for _ in range(26)],
                    "label": draw.randrange(2),
                }
                for _ in range(5000)
            ),
        )
        pipeline = (
            feedline.tfrecords(f"{folder}/clicks.tfrecord")
            .feature("dense", float, shape=[13])
            .feature("ids", int, shape=[26])
            .feature("label", int)
            .shuffle(1000, seed=1)
            .batch(256)
            .output("dense", feature="dense")
            .output("ids", dtype="int32", feature="ids")
            .output("label", dtype="bfloat16", feature="label")
        )
        same_as_on_the_host(bench, pipeline)


def checks_of(bench):
    """Returns all checks. Each pipeline of examples/ is one."""
    found = [Check(name, functools.partial(run, bench), limit) for name, (run, limit) in CHECKS.items()]
    for path in sorted(bench.source.glob("examples/*.textproto")):
        found.append(Check("example_" + path.stem, functools.partial(same_as_on_the_host, bench, path), 45))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="SOURCE", help="the source tree")
    parser.add_argument("--device", required=True, help="cuda:N or cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these checks")
    parser.add_argument("--json", metavar="FILE", help="where results go")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)  # for child processes: pipe, checks
    flags = parser.parse_args()
    if flags.device != "cpu" and not flags.device.removeprefix("cuda:").isdecimal():
        parser.error(f"--device {flags.device}: it must be cpu, or a GPU such as cuda:0")
    checks = checks_of(Bench(flags.source, flags.device))
    names = flags.work[1:] if flags.work else flags.only or [check.name for check in checks]
    if unknown := set(names) - {check.name for check in checks}:
        parser.error(f"there is no check {', '.join(sorted(unknown))}; there are {', '.join(check.name for check in checks)}")
    checks = [check for check in checks if check.name in names]
    if flags.work:
        return work(checks, int(flags.work[0]))
    command = [sys.executable, "-X", "faulthandler", __file__, flags.source, "--device", flags.device, "--work"]
    failed = 0
    with open(flags.json or os.devnull, "w", encoding="utf-8") as out:
        for result in results(checks, command):
            print(json.dumps(result), file=out, flush=True)
            told = result["why"] or result["figure"] or ""
            line = f"{result['verdict']:<8} {result['name']} ({result['seconds']} s) {told}".rstrip()
            print(f"{line}\n", end="", flush=True)
            failed += result["verdict"] == "failed"
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
