"""Runs checks one after another, each with a time limit and a verdict of its own.

A check is a function. It returns a dict of figures or None, raises Skip if something lacks, and fails by any other
exception. Checks run in a process of their own, many in one, because frameworks take seconds to start. After a check
that does not pass, the next one runs in a new process: a GPU's error stays until its process ends.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

_START = 60  # how many seconds a new process may take until its first check begins


class Check(NamedTuple):
    name: str
    run: Callable[[], dict | None]
    limit: float  # in seconds


class Skip(Exception):
    """The check cannot be made here. The text says why."""


def work(checks: list[Check], pipe: int) -> None:
    """Runs the checks until one fails, and tells the pipe, in lines of JSON, what begins and what came of it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a process that hangs is aborted, and must write no core file
    with os.fdopen(pipe, "w", encoding="utf-8") as out:
        for check in checks:
            print(json.dumps({"begins": check.name}), file=out, flush=True)
            print(f"==== {check.name}\n", end="", flush=True)  # in one write, because another process writes there, too
            verdict, figure, why = "passed", None, ""
            try:
                figure = check.run()
            except Skip as reason:
                verdict, why = "skipped", str(reason)
            except BaseException as error:
                traceback.print_exc()
                verdict, why = "failed", f"{type(error).__name__}: {error}"[:400]
            print(json.dumps({"verdict": verdict, "figure": figure, "why": why}), file=out, flush=True)
            if verdict == "failed":
                return


def results(checks: list[Check], command: list[str]) -> Iterator[dict]:
    """Yields what came of each check when it ends. `command`, the number of a pipe and the names of checks are a program
    that calls work(). One result more tells if a process of checks that have all passed ends badly."""
    left = list(checks)
    while left:
        read, write = os.pipe()
        names = [check.name for check in left]
        process = subprocess.Popen([*command, str(write), *names], pass_fds=[write])
        os.close(write)
        lines, verdict, start = _Lines(read), "", time.monotonic()
        while left and verdict != "failed":
            result = _result(left[0], lines, process)
            verdict = result["verdict"]
            yield {"name": left.pop(0).name, **result}
        os.close(read)
        code = _end(process, patience=0 if lines.late else 15)
        if code and verdict != "failed":
            seconds = round(time.monotonic() - start, 2)
            yield {"name": "exit", "seconds": seconds, **_failure(f"the process of {len(names)} checks {_ended(code)}")}


def _result(check, lines, process):
    """Returns what comes of the check that the process runs next."""
    start = time.monotonic()
    result = lines.next(start + _START)
    if result is not None:  # the check begins now
        start = time.monotonic()
        result = lines.next(start + check.limit)
    if result is None and lines.ended:
        result = _failure(f"its process {_ended(process.wait())}")
    elif result is None:
        late = round(time.monotonic() - start)
        result = _failure(f"it has not ended in {late} s; the log has the stacks of its threads")
    return {"seconds": round(time.monotonic() - start, 2), **result}


def _failure(why):
    return {"verdict": "failed", "figure": None, "why": why}


def _ended(code):
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"


class _Lines:
    """The lines of JSON that come from a pipe."""

    def __init__(self, pipe):
        self._pipe, self._text = pipe, b""
        self.ended = self.late = False

    def next(self, end):
        """Returns the next line; None if the other side has ended, or if there is none by the time `end`."""
        while b"\n" not in self._text:
            if not select.select([self._pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                self.late = True
                return None
            more = os.read(self._pipe, 65536)
            self.ended = not more
            if self.ended:
                return None
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        return json.loads(line)


def _end(process, patience):
    """Returns how a process has ended. If it has not in so many seconds, it writes the stacks of its threads, and ends."""
    for seconds, number in (patience, signal.SIGABRT), (10, signal.SIGKILL), (10, None):
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            if number is None:
                sys.exit(f"process {process.pid} cannot be killed")
            process.send_signal(number)
