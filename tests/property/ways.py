"""The ways to feed a case that must make no difference."""

import contextlib
import copy
import dataclasses
import functools
import glob
import os
import re
import shutil

import data
import gpus
import records
from differences import Differs, compare, rows_of, same_batches
from feeds import (
    BLOCK,
    NONE,
    SKIP_RECORD,
    Fed,
    feed,
    feed_in_two,
    feed_joined_ranks,
    feed_ranks,
    mode_of,
)

import feedline

# What ways() changes in a pipeline, beside what is drawn.
CHANGED = {"Index.mode=LAZY": "feed_lazily()"}


def ways(case, folder, plain, laws, rng):
    """Yields (name, function) for each other way to feed the case. The function raises Differs if it gives other
    batches than the plain one."""
    p = case.pipeline
    threads = {"threads": case.threads}
    point, other_world = point_of(plain, rng), rng.choice([world for world in (1, 2, 4) if world != case.world])
    mode = {1: "REPLICATE", 2: "SCATTER"}[p.distribute.mode or rng.choice([1, 2])]
    distribute = {"distribute": mode}
    # Ranks that are not joined each end at the first bad record of their own, unless the counting has found it.
    ranks = case.world > 1 and (plain.error is None or case.family == "damaged" and not plain.steps)

    def way(name, fed, exactly=True):
        return name, lambda: compare(name, plain, fed(), exactly, laws)

    def gone_on(name, first, second, exactly=True, fed=feed, whole=lambda: plain):
        told = f"{name} after {point} steps"
        return name, lambda: compare(told, whole(), feed_in_two(case, folder, point, first, second, fed), exactly, laws)

    yield way("as it is written", lambda: feed(case, folder, {"where": False}))
    yield way("more threads", lambda: feed(case, folder, threads))
    if case.replicas > 1:
        yield way("more replicas", lambda: feed(case, folder, {"replicas": case.replicas, **threads}), False)
    if ranks:
        yield way("ranks", lambda: feed_ranks(case, folder, threads), False)
        yield way(mode, lambda: feed_joined_ranks(case, folder, distribute), False)
    resumes = can_resume(case, plain)
    if resumes:
        yield gone_on("gone on with", {}, threads)
    if resumes and case.replicas > 1:
        yield gone_on("gone on with by more replicas", {}, {"replicas": case.replicas}, False)
    if resumes and ranks:
        apart, together = ("ranks", threads, feed_ranks), (mode, distribute, feed_joined_ranks)
        for name, how, fed in (apart, together):
            whole = functools.partial(fed, case, folder, how)
            yield gone_on(f"{name}, gone on with", how, how, fed=fed, whole=whole)
        yield gone_on("gone on with by other ranks", {}, {"world": other_world}, False, feed_ranks)
    if resumes and p.HasField("cache"):
        yield "a cache, gone on with", lambda: try_cache_in_two(case, folder, plain, point)
    if p.HasField("cache"):
        yield "a cache", lambda: try_caches(case, folder, plain, laws, rng, ranks)
        if p.cache.where and all(source.files[0].endswith(".tfrecord") for source in p.source):
            yield "a cache, replaced data", lambda: try_replaced(case, folder)
    if plain.error is None:
        yield "other seeds", lambda: try_other_seeds(case, folder, plain, laws)
    yield way("pread", lambda: feed(case, folder, {"backend": "pread", **threads}))
    yield way("the smallest memory.limit", lambda: feed_in_little(case, folder))
    yield way("index.mode REQUIRE", lambda: feed(case, folder, {"index": "REQUIRE"}))
    if "hidden-damage" not in str(p):  # there the index knows what was
        yield way("counted anew", lambda: feed_without_indexes(case, folder, {"index": "BUILD", **threads}))
        if "@record" not in str(p):
            yield "index.mode LAZY", lambda: feed_lazily(case, folder)
    if can_be_compressed(p, folder):
        squeezed = {"ending": rng.choice([".gz", ".zz"])}
        yield way("compressed", lambda: feed(case, folder, {**squeezed, **threads}))
        if ranks:
            yield way("compressed, ranks", lambda: feed_ranks(case, folder, squeezed), False)
        if resumes:
            yield gone_on("compressed, gone on with", squeezed, squeezed)


def point_of(plain, rng):
    """Draws after how many of the delivered steps others go on: none, all, those before an epoch, or any number."""
    is_any, share = rng.random() < 0.5, rng.random()
    points = [at for at, step in enumerate(plain.steps) if is_any or step.step == 0] + [len(plain.steps)]
    return points[int(share * len(points))]


def can_resume(case, plain):
    """Returns whether the case, fed in two parts, must give what it gives in one. A feature that no record of the first
    epoch has is looked for only where that is fed from its beginning, and bad records are counted anew."""
    return case.pipeline.errors.absent_feature != 1 and not ended_by_error_limit(plain)


def gpu_ways(case, folder, plain, laws, rng, kind):
    """Yields (name, function) for each way to feed the case to GPUs, as ways() does for the host."""
    some = gpus.Real() if kind == "real" else gpus.Fake(case.replicas)
    one = {"gpus": some, "threads": case.threads}
    more = {**one, "replicas": case.replicas}
    point = point_of(plain, rng)

    def way(name, fed, how, exactly=True):
        return name, lambda: compare(name, plain, as_advised(fed, how), exactly, laws)

    yield way("a GPU", lambda how: feed(case, folder, how), one)
    yield way("a GPU, as it is written", lambda how: feed(case, folder, {**how, "where": False}), one)
    if 1 < case.replicas <= some.count:
        yield way("GPUs", lambda how: feed(case, folder, how), more, False)
    if case.replicas <= some.count:
        for mode in ("REPLICATE", "SCATTER"):
            fed = feed_same_rows if mode == "REPLICATE" else feed
            exactly = mode == "REPLICATE" or case.replicas == 1
            yield way(f"GPUs, {mode}", functools.partial(fed, case, folder), {**more, "distribute": mode}, exactly)
    if can_resume(case, plain):
        yield way("a GPU, gone on with", lambda how: feed_in_two(case, folder, point, {}, how), one)
        yield way("gone on with after a GPU", lambda how: feed_in_two(case, folder, point, how, {}), one)
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


def feed_cached(fed):
    """Returns None if the cache has nothing to keep, or no room."""
    try:
        return fed()
    except feedline.Error as error:
        if error.message.startswith("cache: "):
            return None
        raise


def try_cache(case, folder, plain, how):
    """Feeds with a cold cache and a warm one. Returns whether there can be one."""
    for state in ("cold", "warm"):
        fed = feed_cached(lambda: feed(case, folder, how))
        if fed is None:
            return False
        compare(f"a cache, {state}", plain, fed)
    return True


def try_cache_in_two(case, folder, plain, point):
    with a_folder(folder, "kept") as name:
        how = {"cached": name, "threads": case.threads}
        fed = feed_cached(lambda: feed_in_two(case, folder, point, how, how))
        if fed is not None:
            compare(f"a cache, gone on with after {point} steps", plain, fed)


def try_gpu_cache(case, folder, plain, how):
    with a_folder(folder, "kept") as name:
        try_cache(case, folder, plain, {**how, "cached": name})


def feed_without_indexes(case, folder, how):
    with a_folder(folder, "index") as name:
        return feed(case, folder, {**how, "index_dir": name})


def feed_lazily(case, folder):
    """Feeds what index.mode LAZY can: in file order and uncounted, with a limit that its memory is planned for."""
    p = copy.deepcopy(case.pipeline)
    for name in ("mixture", "shuffle", "interleave", "window", "filter"):
        p.ClearField(name)
    for of, names in (
        *((source, ("range", "num_shards", "shard_id", "weight")) for source in p.source),
        (p.epoch, ("steps", "repeat")),
        (p.errors, ("max_failure_rate",)),
    ):
        for name in names:
            of.ClearField(name)
    p.errors.on_error = min(p.errors.on_error, SKIP_RECORD)
    p.epoch.allow_empty = True
    case = dataclasses.replace(case, pipeline=p)
    plain = feed(case, folder, {})
    how = {"index": "LAZY", "where": False, "threads": case.threads, "record_limit": data.LIMITS[-1]}
    lazily = as_advised(lambda how: feed_without_indexes(case, folder, how), how)
    if not plain.steps and ended_by_error_limit(plain):
        # Counted data are refused at the start. A lazy feed meets the same records on its way.
        p.errors.ClearField("max_failures")
        plain = feed(case, folder, {})
        if ended_by_error_limit(lazily):
            plain = Fed(plain.steps[: len(lazily.steps)], lazily.error)
    compare("index.mode LAZY", plain, lazily)


def try_other_seeds(case, folder, plain, laws):
    """Feeds with another Pipeline.seed, and with another shuffle.seed. Each must change what it decides, and nothing else."""
    p = case.pipeline
    shuffles = mode_of(p) != NONE or p.HasField("mixture")  # which draws at random in any order
    seeds = [("Pipeline.seed", {"seed": p.seed ^ 1}, shuffles and not p.shuffle.HasField("seed"))]
    if p.HasField("shuffle"):
        seeds.append(("shuffle.seed", {"order_seed": p.shuffle.seed ^ 1}, shuffles))
    for name, how, decides in seeds:
        other = feed(case, folder, how)
        same = order_of(plain) == order_of(other)
        if same and decides and laws.has_many_orders(plain.steps) or not same and not decides:
            raise Differs(f"another {name} gives {'the same' if same else 'another'} order")
        if same and name == "Pipeline.seed":
            laws.check_other_choices(plain, other)


def order_of(fed):
    """Returns of which records the good rows are."""
    return [
        frame
        for step in fed.steps
        for frame in zip(*(rows_of(step.batches, name).tolist() for name in ("@@source", "@@record")))
    ]


def ended_by_error_limit(fed):
    return fed.error is not None and "errors.max_failure" in fed.error.message


def can_be_compressed(p, folder):
    # Under BLOCK the blocks of compressed files are others than those of plain ones, so the order is, too.
    return (
        mode_of(p) != BLOCK
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


def try_caches(case, folder, plain, laws, rng, ranks):
    with a_folder(folder, "kept") as name:
        how = {"cached": name, "threads": case.threads}
        if not try_cache(case, folder, plain, how) or not case.pipeline.cache.where:
            return
        if os.path.exists(os.path.join(folder, name)):
            spoil(os.path.join(folder, name), rng)
        compare("a cache, damaged", plain, feed(case, folder, how))
        if ranks:
            compare("a cache, ranks", plain, feed_ranks(case, folder, how), False, laws)
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
        if feed_cached(lambda: feed(case, moved, {**how, "cached": "kept"})) is None:
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
