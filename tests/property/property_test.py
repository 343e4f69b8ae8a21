"""Random pipelines, each fed in ways that must make no difference, and compared with the independent reference: see
tests/README.md.

Each pipeline is fed in a process of its own, so that a crash or a hang is a failure like any other. The program
simplifies a failing pipeline as long as it still fails, prints it as text that can be pasted, and exits with 1."""

import argparse
import collections
import contextlib
import copy
import dataclasses
import faulthandler
import functools
import itertools
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy begins threads of its own
sys.path[:0] = [
    os.path.dirname(os.path.abspath(__file__)),
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"),
]

import data
import draw
import records

# What the messages of refused pipelines have. Another one is a failure: what is always refused would show nothing.
REFUSALS = (
    "but with last_batch_policy DROP a step needs a whole global batch",
    "window: a window spans ",
    "lanes are too many",
    "its patterns exclude every file",
    "filter: the formula keeps none of ",
    "it has no samples, so the mixture cannot draw from it",
    "mixture: an epoch ends when the first source is exhausted, and source",
    "repeats the samples without end, but the data has no samples",
    "memory.limit: the feed needs ",
)
# Seconds, far more than any case takes, even under sanitizers on a busy machine. Launchers start four ranks, each of
# which imports its framework.
HANG, LAUNCHER_HANG = 180, 600
SAME, DIFFERS, REFUSED, EMPTY = 0, 1, 3, 4


def try_case(case, folder, hidden, seed, how, only):
    """Feeds a case in some ways, or in the one that is called `only`. Returns (SAME, DIFFERS, REFUSED or, if all ways
    deliver no row of a record, EMPTY; the last way, and what differs)."""
    # Imported here, because a process that has imported feedline has threads, and must not fork.
    import feeds
    import laws
    import views
    import ways
    from differences import Differs
    from reference import Reference

    import feedline

    rng, way = random.Random(seed), "plain"
    try:
        try:
            plain = feeds.feed(case, folder, {})
        except feedline.Error as error:
            reason = next((reason for reason in REFUSALS if reason in error.message), None)
            return (REFUSED, reason) if reason else (DIFFERS, f"plain: {error}")
        reference = Reference(str(feeds.message_for(case, {})), folder, hidden)
        held = laws.Laws(case, reference)
        held.check(plain)
        laws.check_values(plain, reference)
        shown = {}
        if how.gpus:
            chosen = dict(ways.gpu_ways(case, folder, plain, held, rng, how.gpus))
        elif how.launchers:
            import launchers

            chosen = dict(launchers.ways(case, folder, plain, held))
        else:
            chosen = dict(ways.ways(case, folder, plain, held, rng))
            shown = {name: functools.partial(views.show, name, case, folder, plain, reference) for name in views.VIEWS}
            if only is None and rng.randrange(3):
                del shown["stats of a sample"]  # which takes as long as all others
        every = {**chosen, **shown}
        fed = [*rng.sample(sorted(chosen), min(6, len(chosen))), *shown]
        for way in fed if only is None else every.keys() & {only}:
            every[way]()
    except Differs as difference:
        return DIFFERS, f"{way}: {difference}"
    except Exception:
        return DIFFERS, f"{way}: {traceback.format_exc()}"
    delivered = any(batch.valid_mask.any() for step in plain.steps for batch in step.batches)
    return SAME if delivered else EMPTY, way


class Trial:
    """A case in a process of its own."""

    def __init__(self, case, folder, hidden, seed, how, only=None):
        self.case, self.seed, self.only, self.told = case, seed, only, b""
        self.log = tempfile.TemporaryFile()
        self.end, inner = os.pipe()
        sys.stdout.flush()
        self.most = LAUNCHER_HANG if how.launchers else HANG
        self.until = time.monotonic() + self.most
        self.pid = os.fork()
        if self.pid == 0:
            code = DIFFERS
            try:
                os.close(self.end)
                os.setsid()
                os.dup2(self.log.fileno(), 2)
                faulthandler.enable()
                code, told = try_case(case, folder, hidden, seed, how, only)
                os.write(inner, told.encode(errors="replace")[:60000])
            finally:
                os._exit(code)
        os.close(inner)

    def read(self):
        """Reads what the process has to tell. Returns whether it has ended."""
        part = os.read(self.end, 1 << 16)
        self.told += part
        return not part

    def wait(self, hangs=False):
        """Returns the outcome, and what the process has told, of a process that has ended or hangs."""
        os.close(self.end)
        if hangs:
            os.kill(self.pid, signal.SIGABRT)  # tells where it is
        _, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what it has started
        told = self.told.decode(errors="replace")
        self.log.seek(0)
        log = self.log.read()[-3000:].decode(errors="replace")
        if hangs:
            return DIFFERS, f"{told}hangs: no end after {self.most} s\n{log}"
        if os.WIFSIGNALED(status):
            return DIFFERS, f"{told}crashes: {signal.strsignal(os.WTERMSIG(status))}\n{log}"
        return os.WEXITSTATUS(status), told


def wait_for_any(trials):
    """Waits until one of the processes has ended. Returns it and its outcome."""
    while True:
        left = min(trial.until for trial in trials) - time.monotonic()
        ready, _, _ = select.select([trial.end for trial in trials], [], [], max(0, left))
        for trial in trials:
            if trial.end in ready:
                if trial.read():
                    return trial, trial.wait()
            elif time.monotonic() > trial.until:
                return trial, trial.wait(hangs=True)


def simpler(message):
    """Yields copies of a message of which one thing is left out."""
    for field, value in message.ListFields():
        if field.name == "index":
            continue  # the indexes of files that were damaged later are from before
        if field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
            if hasattr(value, "keys"):
                continue  # a map
            for at in range(len(value)):
                less = copy.deepcopy(message)
                del getattr(less, field.name)[at]
                yield less
            for at, one in enumerate(value) if field.message_type else ():
                for simple in simpler(one):
                    less = copy.deepcopy(message)
                    getattr(less, field.name)[at].CopyFrom(simple)
                    yield less
            continue
        less = copy.deepcopy(message)
        less.ClearField(field.name)
        yield less
        for simple in simpler(value) if field.message_type else ():
            less = copy.deepcopy(message)
            getattr(less, field.name).CopyFrom(simple)
            yield less


def simpler_cases(case):
    for field, plain in (("world", 1), ("replicas", 1), ("threads", 2), ("steps", case.steps // 2)):
        if getattr(case, field) != plain and getattr(case, field) > 0:
            yield dataclasses.replace(case, **{field: plain})
    for message in simpler(case.pipeline):
        yield dataclasses.replace(case, pipeline=message)


def kind_of(told):
    """What two failures must have in common to be the same one: the way, and the last line or the first words."""
    way, _, text = told.partition(": ")
    return way, text.strip().splitlines()[-1].split(":")[0] if "Traceback" in text else re.sub(r"\d+", "", text)[:12]


def simplest(case, told, run):
    """Simplifies a case for a minute or two, as long as it fails in the same way."""
    until, goes_on = time.monotonic() + 90, True
    while goes_on:
        goes_on = False
        for one in simpler_cases(case):
            if time.monotonic() > until:
                break
            outcome, also = run(one, told.split(": ")[0])
            if outcome == DIFFERS and kind_of(also) == kind_of(told):
                case, told, goes_on = one, also, True
                break
    return case, told


def prepare(folder):
    """Writes all files, counts them, and damages some of them afterwards. Returns what Reference wants to know of
    these."""
    paths = data.write_all(folder)
    if os.fork() == 0:
        try:
            import feedline

            for stride, limit, ending in itertools.product(data.STRIDES, data.LIMITS, ("", ".gz", ".zz")):
                index = f"dir: '{data.index_folder(stride, limit)}'" + (f" stride: '{stride}'" if stride else "")
                names = sorted(
                    {name for sets in data.SETS.values() for name in sets}
                    - (set(data.NOT_COMPRESSED) if ending else set())
                )
                files = " ".join(f"files: '{data.path_of(name)}{ending}'" for name in names)
                limit = f"record_limit: '{limit}'" if limit else ""
                text = (
                    f"source {{ {files} record_type: RAW index {{ {index} }} {limit} }} batch {{ global_batch_size: 1 }} "
                    "errors { on_error: SKIP_RECORD }"
                )
                feedline.Loader(feedline.Pipeline(text, folder=folder), progress=False).close()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.wait()[1]:
        sys.exit("property_test: the files cannot be counted")
    hidden = data.hide_damage(folder)
    records.read = functools.cache(records.read)  # from here on the files stay as they are
    for path in paths:
        records.read(path, "AUTO", 256 << 20)  # which keeps them for all cases
    return hidden


def launchers_here():
    """Returns the launchers that can be tried here, each with when a loader is made, and tells of the others. Asks a
    process of its own: this one must not import feedline."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launchers.py")
    lacking = json.loads(subprocess.run([sys.executable, program], stdout=subprocess.PIPE, check=True).stdout)
    for name, why in lacking.items():
        if why:
            print(f"{name} is not tried: {why}")
    return [name for name, why in lacking.items() if not why]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipelines", type=int, default=300)
    parser.add_argument("--seconds", type=float, help="instead of a number of pipelines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first pipeline")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", help="a folder for the data that is kept")
    parser.add_argument("--gpus", choices=["real", "fake"], help="feed to GPUs instead of in the other ways")
    parser.add_argument(
        "--launchers",
        nargs="*",
        metavar="NAME",
        help='feed as ranks that these launchers start, such as "JAX, a loader made early"; without a NAME, all',
    )
    parser.add_argument("--refusals", action="store_true", help="print why pipelines were refused")
    arguments = parser.parse_args()
    if arguments.launchers == []:
        arguments.launchers = launchers_here()
    with tempfile.TemporaryDirectory(prefix="feedline-property-") as temporary:
        folder = arguments.keep or temporary
        os.makedirs(folder, exist_ok=True)
        hidden = prepare(folder)
        counts, refusals, trials, start = collections.Counter(), collections.Counter(), [], time.monotonic()
        number, launched = arguments.first, dict.fromkeys(arguments.launchers or [], 0)

        def goes_on():
            if counts[DIFFERS] >= 20:
                return False
            if arguments.seconds:
                return time.monotonic() - start < arguments.seconds
            return number < arguments.first + arguments.pipelines

        while trials or goes_on():
            while len(trials) < arguments.jobs and goes_on():
                seed = arguments.seed * 1_000_003 + number
                case, only = draw.draw(seed), None
                if launched:
                    case.world, only = max(case.world, 2), min(launched, key=launched.get)
                    launched[only] += 1
                trials.append(Trial(case, folder, hidden, seed, arguments, only))
                number += 1
            trial, (outcome, told) = wait_for_any(trials)
            trials.remove(trial)
            counts[outcome] += 1
            if launched and (outcome == REFUSED or outcome in (SAME, EMPTY) and told != trial.only):
                launched[trial.only] -= 1  # the next pipeline tries it
            if outcome == REFUSED:
                refusals[told] += 1
            elif outcome not in (SAME, EMPTY):

                def run(case, way, seed=trial.seed):
                    return wait_for_any([Trial(case, folder, hidden, seed, arguments, way)])[1]

                print(
                    f"pipeline {trial.seed % 1_000_003} fails, and is simplified: {told[:9000]}",
                    file=sys.stderr,
                    flush=True,
                )
                case, told = simplest(trial.case, told, run)
                print(
                    f"--- pipeline {trial.seed % 1_000_003} of seed {arguments.seed} fails; {case.world} ranks of "
                    f"{case.replicas} replicas, {case.threads} threads, "
                    f"{case.steps} steps; data: {folder}\n{case.pipeline}{told}\n",
                    flush=True,
                )
        took, done = time.monotonic() - start, sum(counts.values())
        if arguments.refusals:
            for text, count in refusals.most_common():
                print(f"{count:5} {text}")
        failed = done - counts[SAME] - counts[EMPTY] - counts[REFUSED]
        print(
            f"{done} pipelines of seed {arguments.seed}: {counts[SAME]} the same in every way, {counts[EMPTY]} so "
            f"without a row, {counts[REFUSED]} refused, {failed} fail; {took:.0f} s"
        )
        idle = [name for name, times in launched.items() if not times]
        if idle:
            print(f"too few pipelines, so these launchers started none: {'; '.join(idle)}")
        # Most pipelines must deliver rows, or the test shows nothing. Of a few, by chance more may not.
        for outcome, most in ((EMPTY, 0.08), (REFUSED, 0.10)):
            if counts[outcome] > most * done + 3:
                print(f"{counts[outcome]} of {done} is more than {most:.0%}: draw pipelines that fit their records")
                failed += 1
        return 1 if failed or idle else 0


if __name__ == "__main__":
    sys.exit(main())
