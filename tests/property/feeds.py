"""Feeds a case: alone or as several ranks, whole or gone on with, and keeps what was delivered."""

import contextlib
import copy
import dataclasses
import functools
import socket
import threading

import gpus
from differences import Differs, category, compare

import feedline
from feedline.numpy import Loader

BLOCK, NONE, BUFFER, GLOBAL = range(4)  # Shuffle.Mode
DROP, PARTIAL, PAD = range(3)  # Batch.LastBatchPolicy
SKIP_RECORD = 1  # Errors.OnError
EPOCHS = 5

BAD_ENDS = ("internal_error", "stalled", "device_error", "io_error")  # categories that no case may end with


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
    state: dict | None = None  # after a part of the steps


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
    if "seed" in how:
        p.seed = how["seed"]
    if "order_seed" in how:
        p.shuffle.seed = how["order_seed"]
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
        if "record_limit" in how:
            source.record_limit = how["record_limit"]
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


def take(feed, steps, fed, state=None):
    """Takes up to so many steps, over at most so many EPOCHS, from a state on if one is given."""
    try:
        if state is not None:
            feed.load_state_dict(state)
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


def feed(case, folder, how, **options):
    """Feeds a case, or the part of it that `how` says: "from" a state, and so many "steps" to another one."""
    with opened(case, folder, how, **options) as one:
        if isinstance(one, Fed):
            return one
        fed = take(one, how.get("steps", case.steps), Fed(), how.get("from"))
        if "steps" in how and fed.error is None:
            fed.state = one.state_dict()
        return fed


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


def feed_in_two(case, folder, point, first, second, fed=feed):
    """Feeds `point` steps, and the rest with other loaders that go on from the state of the first ones."""
    begun = fed(case, folder, {**first, "steps": point})
    if begun.error is not None:
        return begun
    rest = fed(case, folder, {**second, "from": begun.state, "steps": case.steps - point})
    return dataclasses.replace(rest, steps=begun.steps + rest.steps)


def joined(parts):
    """Joins the parts of all ranks."""
    all_ranks = parts[0]
    for rank, part in enumerate(parts[1:], 1):
        if len(part.steps) != len(all_ranks.steps) or category(part) != category(all_ranks):
            raise Differs(
                f"rank 0 takes {len(all_ranks.steps)} steps and ends with {all_ranks.error}; rank {rank} "
                f"{len(part.steps)} with {part.error}"
            )
        if part.state != all_ranks.state:
            raise Differs(f"the state of rank 0 is {all_ranks.state}, that of rank {rank} {part.state}")
        for mine, other in zip(all_ranks.steps, part.steps, strict=True):
            if (mine.epoch, mine.step) != (other.epoch, other.step):
                raise Differs(f"rank 0 is at {mine}, rank {rank} at {other}")
            mine.batches += other.batches
    return all_ranks


def feed_ranks(case, folder, how):
    """Feeds the ranks one after another: they do not hear of each other."""
    world = how.get("world", case.world)
    return joined([feed(case, folder, {**how, "world": world, "rank": rank}) for rank in range(world)])


def feed_joined_ranks(case, folder, how):
    """Feeds ranks that are joined over TCP, side by side."""
    parts, failures = [None] * case.world, []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(rank):
        mine = {**how, "world": case.world, "rank": rank}
        try:
            parts[rank] = feed(case, folder, mine, communicator=feedline.Tcp("127.0.0.1", port, timeout=60))
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
