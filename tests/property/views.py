"""Shows a case to everything that a user may look at it with: the tool's commands, the C interface, and the monitor
of a feed."""

import io
import itertools
import json
import math
import os
import shutil
import subprocess
import urllib.request
import zlib

import numpy as np
from differences import Differs
from feeds import BAD_ENDS, Fed, message_for, opened, take

import feedline

PAGES = ("", "report.json", "metrics", "history.json?from=0", "sample.json", "ranks.json", "system.json")
TIMEOUT = 120  # seconds


def environment(pipeline):
    """Returns the environment of a program that feeds the pipeline. Its SIMD level is not always the best that there is,
    which this process has."""
    with open(pipeline, "rb") as text:
        return {**os.environ, "FEEDLINE_SIMD": ("portable", "avx2", "avx512")[zlib.crc32(text.read()) % 3]}


def tool(folder, command, pipeline, *arguments):
    """Runs a command of the tool. Returns (whether it succeeded, what it wrote to standard output). Raises Differs
    unless it succeeds, or fails with a line that says why."""
    done = subprocess.run(
        [os.environ["FEEDLINE_TOOL"], command, pipeline, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
        env={**environment(os.path.join(folder, pipeline)), "XDG_CACHE_HOME": folder},
    )
    why = done.stderr.strip()
    if (
        done.returncode not in (0, 1, 2)
        or (done.returncode and not (why or done.stdout))
        or any(bad in why for bad in BAD_ENDS)
    ):
        raise Differs(f"feedline {command}: exit code {done.returncode}: {why or done.stdout}")
    return done.returncode == 0, done.stdout


def show(name, case, folder, plain):
    written = f"view-{os.getpid()}"
    os.mkdir(os.path.join(folder, written))
    try:
        VIEWS[name](case, folder, written, plain)
    finally:
        shutil.rmtree(os.path.join(folder, written))


def must_succeed(case, plain):
    return plain.error is None and plain.steps and case.family in ("plain", "rich", "sequence", "raw")


def view(look):
    def looked(case, folder, written, plain):
        pipeline = os.path.join(folder, f"{written}.textproto")  # where its paths are relative to
        try:
            with open(pipeline, "w") as file:
                file.write(str(message_for(case, {"where": False})))
            look(case, folder, os.path.join(folder, written), plain, pipeline)
        finally:
            os.remove(pipeline)

    return looked


def plain_name(part):
    return "" if isinstance(part, tuple) else part.dtype.name


@view
def checked(case, folder, written, plain, pipeline):
    good, told = tool(folder, "check", pipeline)
    if not good and must_succeed(case, plain):
        raise Differs(f"feedline check: refused, but it can be fed: {told}")


@view
def dumped(case, folder, written, plain, pipeline):
    """What `dump` writes is what the plain feed has delivered of the first steps."""
    steps = [step for step in plain.steps if step.epoch == 0][:3]
    good, _ = tool(folder, "dump", pipeline, "--out", written + "/dump", "--steps", str(max(1, len(steps))))
    if not good and must_succeed(case, plain) and steps:
        raise Differs("feedline dump: fails, but it can be fed")
    if not good or plain.error is not None or not steps:
        return
    for name in steps[0].batches[0]:
        path = f"{written}/dump/{name}{'.bf16' if plain_name(steps[0].batches[0][name]) == 'bfloat16' else ''}.npy"
        parts = [step.batches[0][name] for step in steps]
        if (
            name.startswith("@@")
            or isinstance(parts[0], tuple)
            or len({part.shape[1:] for part in parts}) > 1
            or parts[0].dtype == object
        ):
            continue
        given, masks = np.load(path), np.concatenate([step.batches[0].valid_mask for step in steps])
        wanted = np.concatenate(parts)
        if given.dtype.itemsize == wanted.dtype.itemsize:
            given = given.view(wanted.dtype)
        if len(given) != len(wanted):  # filler is left out
            wanted = wanted[masks if masks.ndim == 1 else masks.any(1)]
        if given.shape != wanted.shape or given.tobytes() != wanted.tobytes():
            raise Differs(f"feedline dump: '{name}' is {given!r}, not {wanted!r}")


@view
def summed_up(case, folder, written, plain, pipeline):
    good, told = tool(folder, "stats", pipeline, "--json", "--html", written + "/stats.html")
    if good:
        with open(written + "/stats.json", "w") as file:
            file.write(told)
        json.loads(told)
        tool(folder, "check", pipeline, "--against", written + "/stats.json", "--json")


@view
def sampled(case, folder, written, plain, pipeline):
    good, told = tool(folder, "stats", pipeline, "--json", "--records", "20")
    if good:
        json.loads(told)


@view
def drawn(case, folder, written, plain, pipeline):
    tool(folder, "show", pipeline, "--out", written + "/sheet.png", "--samples", "5")


@view
def run(case, folder, written, plain, pipeline):
    good, told = tool(folder, "run", pipeline, "--steps", "4", "--json", "--trace", written + "/trace.json")
    if not good and must_succeed(case, plain):
        raise Differs(f"feedline run: fails, but it can be fed: {told}")
    if good:
        json.loads(told)
        with open(written + "/trace.json") as file:
            json.load(file)


def tensors_of(value):
    """Yields the tensors of an output of feedline.Loader, in the order of Element.tensors."""
    if isinstance(value, tuple):
        for part in value:
            yield from tensors_of(part)
    else:
        yield value


@view
def fed_in_c(case, folder, written, plain, pipeline):
    """What the C interface gives of the first steps is what the Python package gives, and it ends as that does."""
    steps = 3
    done = subprocess.run(
        [os.environ["FEEDLINE_C_FEED"], pipeline, str(steps)],
        cwd=folder,
        capture_output=True,
        timeout=TIMEOUT,
        env=environment(pipeline),
    )
    if done.returncode:
        raise Differs(f"c_feed: exit code {done.returncode}: {done.stderr!r}")
    wanted, error = [], None
    try:
        text = feedline.Pipeline(str(message_for(case, {"where": False})), folder=folder)
        with feedline.Loader(text, progress=False) as one:
            elements = one.elements()
            for batch in itertools.islice(one, steps):
                named = [("@valid", batch.valid_mask)]
                for element in elements:
                    named += zip(element.tensors, tensors_of(batch[element.name]), strict=True)
                wanted.append({name: (tensor.shape, bytes(tensor)) for name, tensor in named})
    except feedline.Error as failure:
        error = failure
    given = io.BytesIO(done.stdout)
    for step, tensors in enumerate(wanted):
        for _ in tensors:
            line = given.readline().decode().rstrip("\n")
            code, bits, *rest = line.split(" ")
            name = next((name for name in tensors if line.endswith(f" {name}")), None)
            shape = tuple(map(int, rest[: len(tensors[name][0])])) if name else None
            data = given.read(int(bits) // 8 * math.prod(shape)) if name else b""
            if name is None or (shape, data) != tensors[name]:
                raise Differs(f"c_feed: tensor {line!r} of step {step} is not that of Python")
    last = given.readline().decode().split()
    good = last[:1] == ["end"] and last[1] == ("1" if len(wanted) < steps else "0")
    if error is not None:
        good = last[:1] == ["end"] and last[1] not in "01" and error.message in done.stderr.decode(errors="replace")
    if not good or given.read():
        raise Differs(f"c_feed: {last} after {len(wanted)} steps: {done.stderr!r}; in Python: {error}")


def monitored(case, folder, written, plain):
    with opened(case, folder, {"where": False}, monitor="127.0.0.1:0") as one:
        if isinstance(one, Fed):
            return
        for steps in (1, 3):
            take(one, steps, Fed())
            for page in PAGES:
                with urllib.request.urlopen(one.monitor_address + page, timeout=TIMEOUT) as answer:
                    text = answer.read().decode()
                if ".json" in page:
                    json.loads(text)


VIEWS = {
    "check": checked,
    "dump": dumped,
    "stats": summed_up,
    "stats of a sample": sampled,
    "show": drawn,
    "run": run,
    "the C interface": fed_in_c,
    "the monitor": monitored,
}
