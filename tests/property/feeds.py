"""Feeds a case in every way that must make no difference, and says what differs."""

import contextlib
import copy
import dataclasses
import functools
import glob
import os
import re
import shutil
import socket
import threading

import gpus
import numpy as np
import records
from comparing import ragged_rows

import feedline
from feedline.numpy import Loader

BLOCK, NONE, BUFFER, GLOBAL = range(4)  # Shuffle.Mode
DROP, PARTIAL, PAD = range(3)  # Batch.LastBatchPolicy
EPOCHS = 5

BAD_ENDS = ("internal_error", "stalled", "device_error", "io_error")  # categories that no case may end with

# What ways() changes in a pipeline, beside what is drawn.
CHANGED = {"Index.mode=LAZY": "feed_lazily()"}


class Differs(Exception):
    """What was delivered is not what it must be."""


@dataclasses.dataclass(eq=False)
class Step:
    epoch: int
    step: int
    batches: list  # one for each replica, over all ranks

    def __str__(self):
        return f"step {self.step} of epoch {self.epoch}"


@dataclasses.dataclass
class Fed:
    steps: list = dataclasses.field(default_factory=list)
    error: feedline.Error | None = None  # that ended the feed
    report: dict = dataclasses.field(default_factory=dict)


def mode_of(p):
    return p.shuffle.mode if p.HasField("shuffle") else NONE


def replicas_of(how):
    return how.get("world", 1) * how.get("replicas", 1)


def message_for(case, how):
    """Returns the pipeline as it is fed in one way: the text, with what the way changes."""
    p = copy.deepcopy(case.pipeline)
    if not how.get("cached"):
        p.ClearField("cache")
    elif p.cache.where:
        p.cache.dir = how["cached"]
    p.parallelism.threads = how.get("threads", 1)
    p.distribute.ClearField("mode")
    if "distribute" in how:
        p.distribute.mode = how["distribute"]
    if "limit" in how:
        p.memory.limit = how["limit"]
    if "device_limit" in how:
        p.memory.device_limit = how["device_limit"]
    if p.batch.batch_size_per_replica and how.get("distribute") != "REPLICATE":
        p.batch.batch_size_per_replica //= replicas_of(how)
    for source in p.source:
        if "index" in how:
            source.index.mode = how["index"]
        if "index_dir" in how:
            source.index.dir = how["index_dir"]
        if "ending" in how:
            source.compression = 0
            source.files[0] += how["ending"]
    if how.get("where", True):  # which record each row is of
        if not p.output:
            for feature in p.feature or p.source[0].feature:
                p.output.add(name=feature.name, feature=feature.name)
            if not p.output:
                p.output.add(name="record", feature="record")
        p.output.add(name="@@source", feature="@source")
        p.output.add(name="@@record", feature="@record")
    return p


def loader(case, folder, how, **options):
    made, count = Loader, how.get("replicas", 1)
    if "gpus" in how:
        made = functools.partial(gpus.Loader, how["gpus"])
    return made(
        feedline.Pipeline(str(message_for(case, how)), folder=folder),
        devices="cuda:" + ",".join(map(str, range(count))) if "gpus" in how else f"host:{count}",
        rank=how.get("rank", 0),
        world_size=how.get("world", 1),
        backend=how.get("backend", "auto"),
        progress=False,
        **options,
    )


def kept(batch):
    """Returns a copy of a batch, so that the feed writes the next ones into the same memory."""

    def copy_of(part):
        return type(part)(*map(copy_of, part)) if isinstance(part, tuple) else part.copy()

    copied = type(batch)((name, copy_of(part)) for name, part in batch.items())
    copied.epoch, copied.step, copied.valid_mask = batch.epoch, batch.step, batch.valid_mask.copy()
    return copied


def take(feed, steps, fed):
    """Takes up to so many steps, over at most so many EPOCHS."""
    try:
        while len(fed.steps) < steps and feed.epoch < EPOCHS:
            for given in feed:
                batches = [kept(batch) for batch in (given if isinstance(given, list) else [given])]
                fed.steps.append(Step(batches[0].epoch, batches[0].step, batches))
                if len(fed.steps) >= steps:
                    break
    except feedline.Error as error:
        fed.error = error
        if error.category in BAD_ENDS:
            raise Differs(f"{error}") from None
    fed.report = feed.report()
    if fed.report["differing_epochs"]:
        raise Differs(f"{fed.report['differing_epochs']} epochs were not their data, once: {fed.report['epoch_audit']}")
    return fed


def feed(case, folder, how):
    with opened(case, folder, how) as one:
        return one if isinstance(one, Fed) else take(one, case.steps, Fed())


@contextlib.contextmanager
def opened(case, folder, how, **options):
    """Gives a loader, or the Fed of one that a bad record ends before its first step."""
    try:
        one = loader(case, folder, how, **options)
    except feedline.Error as error:
        if error.category in ("bad_pipeline", *BAD_ENDS):
            raise
        yield Fed(error=error)
        return
    with one:
        yield one


def feed_in_two(case, folder, first, second):
    """Feeds a part, and the rest with another loader that goes on from the first one's state."""
    fed = Fed()
    with opened(case, folder, first) as one:
        if isinstance(one, Fed):
            return one
        take(one, case.resume, fed)
        if fed.error is not None:
            return fed
        state = one.state_dict()
    with loader(case, folder, second) as one:
        one.load_state_dict(state)
        return take(one, case.steps, fed)


def joined(parts):
    """Joins the parts of all ranks."""
    all_ranks = parts[0]
    for rank, part in enumerate(parts[1:], 1):
        if len(part.steps) != len(all_ranks.steps) or category(part) != category(all_ranks):
            raise Differs(
                f"rank 0 takes {len(all_ranks.steps)} steps and ends with {all_ranks.error}; rank {rank} "
                f"{len(part.steps)} with {part.error}"
            )
        for mine, other in zip(all_ranks.steps, part.steps, strict=True):
            if (mine.epoch, mine.step) != (other.epoch, other.step):
                raise Differs(f"rank 0 is at {mine}, rank {rank} at {other}")
            mine.batches += other.batches
    return all_ranks


def feed_ranks(case, folder, how):
    """Feeds the ranks one after another: they do not hear of each other."""
    return joined([feed(case, folder, {**how, "world": case.world, "rank": rank}) for rank in range(case.world)])


def feed_joined_ranks(case, folder, how):
    """Feeds ranks that are joined over TCP, side by side."""
    parts, failures = [None] * case.world, []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(rank):
        mine = {**how, "world": case.world, "rank": rank}
        try:
            with opened(case, folder, mine, communicator=feedline.Tcp("127.0.0.1", port, timeout=60)) as one:
                parts[rank] = one if isinstance(one, Fed) else take(one, case.steps, Fed())
        except (Differs, feedline.Error) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(case.world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    if how["distribute"] == "SCATTER":
        return joined(parts)
    for part in parts[1:]:
        compare("the ranks of REPLICATE", parts[0], part)
    return parts[0]


# Comparing


def category(fed):
    return fed.error.category if fed.error else ""


def end_of(fed, exactly):
    """What two feeds must have in common that end with an error."""
    return (category(fed), fed.error.record, fed.error.feature) if fed.error and exactly else category(fed)


def equal(a, b):
    """Whether two tensors are the same, byte for byte."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def told(array):
    return repr(array)[:300]


def compare(what, wanted, got, exactly=True, pads=None):
    """Raises Differs unless the two are the same: byte for byte with all filler, or else as rows of samples."""
    for mine, other in zip(wanted.steps, got.steps):
        where = f"{what}: {other}"
        if (mine.epoch, mine.step) != (other.epoch, other.step):
            raise Differs(f"{where} in place of {mine}")
        if exactly:
            same_batches(where, mine.batches, other.batches)
        else:
            same_rows(where, mine.batches, other.batches, pads)
    if len(wanted.steps) != len(got.steps) or end_of(wanted, exactly) != end_of(got, exactly):
        raise Differs(
            f"{what}: {len(got.steps)} steps and then {got.error}; wanted {len(wanted.steps)} and {wanted.error}"
        )


def same_batches(where, wanted, got):
    for a, b in zip(wanted, got, strict=True):
        if not equal(a.valid_mask, b.valid_mask):
            raise Differs(f"{where}: the mask is {told(b.valid_mask)}, not {told(a.valid_mask)}")
        if {name for name in a if not name.startswith("@@")} != {name for name in b if not name.startswith("@@")}:
            raise Differs(f"{where}: there are {sorted(b)}, not {sorted(a)}")
        for name in b:
            if not equal(a[name], b[name]):
                raise Differs(
                    f"{where}: '{name}' is {told(b[name])}, not {told(a[name])}{first_difference(a[name], b[name])}"
                )


def first_difference(a, b):
    """Says where two arrays of one shape differ first."""
    if isinstance(a, tuple) or a.dtype != b.dtype or a.shape != b.shape or a.dtype == object:
        return ""
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(a.size, -1) for array in (a, b))
    differ = np.flatnonzero((x != y).any(1))
    at = np.unravel_index(differ[0], a.shape)
    return f"; {len(differ)} of {a.size} differ, the first at {tuple(map(int, at))}: {b[at]!r}, not {a[at]!r}"


def rows_of(batches, name):
    """Returns the rows of an output that are samples, over all replicas: an array of them, or a list if each is of its
    own size. Windows give their frames."""
    parts = [batch[name] for batch in batches]
    masks = [batch.valid_mask for batch in batches]
    if isinstance(parts[0], tuple):
        return [row for part, mask in zip(parts, masks) for row, valid in zip(ragged_rows(part), mask) if valid]
    if len({part.shape[mask.ndim :] for part, mask in zip(parts, masks)}) == 1:
        return np.concatenate([part[mask] for part, mask in zip(parts, masks)])
    return [row for part, mask in zip(parts, masks) for row in part[mask]]


def same_rows(where, wanted, got, pads):
    for name in got[0]:
        a, b = rows_of(wanted, name), rows_of(got, name)
        if len(a) != len(b):
            raise Differs(f"{where}: '{name}' has {len(b)} rows, not {len(a)}")
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
            if not equal(a, b):
                row = next(r for r in range(len(a)) if not equal(a[r : r + 1], b[r : r + 1]))
                raise Differs(f"{where}: row {row} of '{name}' is {told(b[row])}, not {told(a[row])}")
            continue
        for row, (x, y) in enumerate(zip(a, b)):
            if not equal_but_padding(x, y, pads.get(name)):
                raise Differs(f"{where}: row {row} of '{name}' is {told(y)}, not {told(x)}")


def equal_but_padding(x, y, pad):
    """Compares two rows: ragged or nested ones, or padded ones of which one is padded further."""
    if isinstance(x, list):
        return len(x) == len(y) and all(equal_but_padding(i, j, pad) for i, j in zip(x, y))
    shorter, longer = (x, y) if len(x) <= len(y) else (y, x)
    rest = longer[len(shorter) :]
    return equal(shorter, longer[: len(shorter)]) and (
        not len(rest)
        or pad is not None
        and all(
            pad == one if rest.dtype == object else equal(np.broadcast_to(pad, one.shape).astype(one.dtype), one)
            for one in rest
        )
    )


# The ways


def ways(case, folder, plain, pads, rng):
    """Yields (name, function) for each other way to feed the case. The function raises Differs if it gives other
    batches than the plain one."""
    p = case.pipeline
    threads = {"threads": case.threads}
    # Ranks that are not joined each end at the first bad record of their own, unless the counting has found it.
    ranks = case.world > 1 and (plain.error is None or case.family == "damaged" and not plain.steps)

    def way(name, fed, exactly=True):
        return name, lambda: compare(name, plain, fed(), exactly, pads)

    yield way("as it is written", lambda: feed(case, folder, {"where": False}))
    yield way("more threads", lambda: feed(case, folder, threads))
    if case.replicas > 1:
        yield way("more replicas", lambda: feed(case, folder, {"replicas": case.replicas, **threads}), False)
    if ranks:
        yield way("ranks", lambda: feed_ranks(case, folder, threads), False)
    if ranks and p.distribute.mode:
        mode = {1: "REPLICATE", 2: "SCATTER"}[p.distribute.mode]
        yield way(mode, lambda: feed_joined_ranks(case, folder, {"distribute": mode}), False)
    # A feature that no record of the first epoch has is looked for only where that is fed from its beginning.
    resumes = case.resume and p.errors.absent_feature != 1
    if resumes:
        yield way("gone on with", lambda: feed_in_two(case, folder, {}, threads))
    if resumes and case.replicas > 1:
        more = {"replicas": case.replicas}
        yield way("gone on with by more replicas", lambda: feed_in_two(case, folder, {}, more), False)
    if p.HasField("cache"):
        yield "a cache", lambda: try_caches(case, folder, plain, pads, rng, ranks)
        if p.cache.where and all(source.files[0].endswith(".tfrecord") for source in p.source):
            yield "a cache, replaced data", lambda: try_replaced(case, folder)
    yield way("pread", lambda: feed(case, folder, {"backend": "pread", **threads}))
    yield way("the smallest memory.limit", lambda: feed_in_little(case, folder))
    yield way("index.mode REQUIRE", lambda: feed(case, folder, {"index": "REQUIRE"}))
    if "hidden-damage" not in str(p):  # there the index knows what was
        yield way("counted anew", lambda: feed_without_indexes(case, folder, {"index": "BUILD", **threads}))
        if mode_of(p) == NONE and not p.HasField("mixture"):
            yield "index.mode LAZY", lambda: feed_lazily(case, folder, plain)
    if can_be_compressed(p, folder):
        squeezed = {"ending": rng.choice([".gz", ".zz"])}
        yield way("compressed", lambda: feed(case, folder, {**squeezed, **threads}))
        if ranks:
            yield way("compressed, ranks", lambda: feed_ranks(case, folder, squeezed), False)
        if resumes:
            yield way("compressed, gone on with", lambda: feed_in_two(case, folder, squeezed, squeezed))


def gpu_ways(case, folder, plain, pads, kind):
    """Yields (name, function) for each way to feed the case to GPUs, as ways() does for the host."""
    some = gpus.Real() if kind == "real" else gpus.Fake(case.replicas)
    one = {"gpus": some, "threads": case.threads}
    more = {**one, "replicas": case.replicas}

    def way(name, fed, how, exactly=True):
        return name, lambda: compare(name, plain, as_advised(fed, how), exactly, pads)

    yield way("a GPU", lambda how: feed(case, folder, how), one)
    yield way("a GPU, as it is written", lambda how: feed(case, folder, {**how, "where": False}), one)
    if 1 < case.replicas <= some.count:
        yield way("GPUs", lambda how: feed(case, folder, how), more, False)
    if case.replicas <= some.count:
        for mode in ("REPLICATE", "SCATTER"):
            fed = feed_same_rows if mode == "REPLICATE" else feed
            exactly = mode == "REPLICATE" or case.replicas == 1
            yield way(f"GPUs, {mode}", functools.partial(fed, case, folder), {**more, "distribute": mode}, exactly)
    if case.resume and case.pipeline.errors.absent_feature != 1:
        yield way("a GPU, gone on with", lambda how: feed_in_two(case, folder, {}, how), one)
        yield way("gone on with after a GPU", lambda how: feed_in_two(case, folder, how, {}), one)
    if case.pipeline.HasField("cache"):
        yield "a GPU, a cache", lambda: as_advised(lambda how: try_gpu_cache(case, folder, plain, how), one)


def feed_same_rows(case, folder, how):
    """Feeds GPUs that are all given the same rows. Returns those of one."""
    fed = feed(case, folder, how)
    for step in fed.steps:
        for other in step.batches[1:]:
            same_batches(f"{step}: a GPU of those with the same rows", step.batches[:1], [other])
        del step.batches[1:]
    return fed


def feed_cached(case, folder, how):
    """Returns None if the cache has nothing to keep, or no room."""
    try:
        return feed(case, folder, how)
    except feedline.Error as error:
        if error.message.startswith("cache: "):
            return None
        raise


def try_cache(case, folder, plain, how):
    """Feeds with a cold cache and a warm one. Returns whether there can be one."""
    for state in ("cold", "warm"):
        fed = feed_cached(case, folder, how)
        if fed is None:
            return False
        compare(f"a cache, {state}", plain, fed)
    return True


def try_gpu_cache(case, folder, plain, how):
    with a_folder(folder, "kept") as name:
        try_cache(case, folder, plain, {**how, "cached": name})


def feed_without_indexes(case, folder, how):
    with a_folder(folder, "index") as name:
        return feed(case, folder, {**how, "index_dir": name})


def feed_lazily(case, folder, plain):
    try:
        lazily = feed_without_indexes(case, folder, {"index": "LAZY", "where": False, "threads": case.threads})
    except feedline.Error as error:
        if "LAZY" not in error.message:  # it has limits
            raise
    else:
        compare("index.mode LAZY", plain, lazily)


def can_be_compressed(p, folder):
    return (
        mode_of(p) == NONE
        and not p.HasField("interleave")
        and not any(source.exclude or source.compression for source in p.source)
        and all(
            os.path.exists(os.path.join(folder, source.files[0].replace("*", "0000") + ".zz")) for source in p.source
        )
    )


@contextlib.contextmanager
def a_folder(folder, name):
    """The name of a folder that the feed may make, and that is removed afterwards."""
    name = f"{name}-{os.getpid()}"
    try:
        yield name
    finally:
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def try_caches(case, folder, plain, pads, rng, ranks):
    with a_folder(folder, "kept") as name:
        how = {"cached": name, "threads": case.threads}
        if not try_cache(case, folder, plain, how) or not case.pipeline.cache.where:
            return
        if os.path.exists(os.path.join(folder, name)):
            spoil(os.path.join(folder, name), rng)
        compare("a cache, damaged", plain, feed(case, folder, how))
        if ranks:
            compare("a cache, ranks", plain, feed_ranks(case, folder, how), False, pads)
        case = another_default(case)
        if case:
            changed = feed(case, folder, {"threads": case.threads})
            compare("a cache, another default_value", changed, feed(case, folder, how))


def try_replaced(case, folder):
    """Feeds with a cache, turns round the records of a file, and feeds with the same cache again."""
    with a_folder(folder, "moved") as name:
        moved = os.path.join(folder, name)
        os.mkdir(moved)
        for entry in os.scandir(folder):
            if not entry.name.startswith(("index-", "kept-", "moved-", "view-")):
                os.symlink(entry.path, os.path.join(moved, entry.name))
        file = sorted(glob.glob(os.path.join(moved, case.pipeline.source[0].files[0])))[0]
        payloads = [
            record.payload for record in records.read(os.path.join(folder, os.path.basename(file)), "AUTO", 256 << 20)
        ]
        how = {"threads": case.threads, "index": "BUILD", "index_dir": "index"}
        if feed_cached(case, moved, {**how, "cached": "kept"}) is None:
            return
        os.remove(file)
        records.write(file, [payload for payload in reversed(payloads) if payload is not None])
        try:
            fresh = feed(case, moved, how)
        except feedline.Error as error:
            if error.category == "bad_pipeline":  # without the damaged records there are too few
                return
            raise
        compare("a cache, replaced data", fresh, feed(case, moved, {**how, "cached": "kept"}))


def another_default(case):
    """Returns the case with another default_value, or None if it has none."""
    p = copy.deepcopy(case.pipeline)
    for of_source in [p, *p.source]:
        for feature in of_source.feature:
            for value in feature.default_value:
                if value.bytes_value:
                    value.bytes_value = b"!" * len(value.bytes_value)
                else:
                    setattr(value, value.WhichOneof("value"), 5)
    return None if p == case.pipeline else dataclasses.replace(case, pipeline=p)


def spoil(folder, rng):
    """Flips some bits of each file."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            for _ in range(20 if size else 0):
                file.seek(rng.randrange(size))
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))


def feed_in_little(case, folder):
    """Feeds with the smallest memory.limit that the plan advises."""
    return as_advised(lambda how: feed(case, folder, how), {"limit": "1MiB"})


def as_advised(fed, how):
    """Feeds with the limits that the plan advises, where those that there are are too small."""
    how = dict(how)
    for _ in range(8):  # a filter and a window's key are evaluated by feeds of their own
        try:
            return fed(how)
        except feedline.Error as error:
            advice = re.search(r'memory\.(limit|device_limit): .* at least "([^"]+)"', str(error), re.DOTALL)
            if not advice:
                raise
            how[advice[1]] = advice[2]
    raise Differs(f"the limits that are advised are refused: {how}")
