"""What must hold of a feed whatever its order is: which samples an epoch has, which of them a step has, and how far a
sample may move. It is computed only from the records of each source.

A sample is a tuple of frames, (source, record); without windows of one. A frame that a short window lacks is None."""

import collections
import functools
import math

import numpy as np
from comparing import agrees, fits, ragged_rows
from differences import Differs, equal, rows_of
from features import declared, read_features
from feeds import BUFFER, DROP, EPOCHS, NONE, PAD, PARTIAL, mode_of
from reference import Candidates, Failure
from schema import enum_name

ERROR = 1  # Errors.AbsentFeature
FIRST, ALL, CYCLE, FOREVER = range(4)  # Mixture.Stop
SKIP_FILE = 2  # Errors.OnError


def windows_of(frames, numbers, p, key_of):
    """Cuts the frames of a source, whose files have these numbers, into samples, in file order. Returns a list for each
    file, or one for all. `key_of` returns None for a bad record, which is no frame where keys are looked at."""
    files = {0: []} if p.window.across_files else {number: [] for number in numbers}
    for frame in frames:
        if p.window.key and key_of(frame) is None:
            continue
        files[0 if p.window.across_files else frame.file].append(frame)
    if not p.HasField("window"):
        return [[(frame,) for frame in of_file] for of_file in files.values()]
    size, stride = p.window.size, p.window.stride or 1
    shift, drops = p.window.shift or size, p.window.drop_remainder if p.window.HasField("drop_remainder") else True
    cut = []
    for of_file in files.values():
        runs = [[]]
        for frame in of_file:
            if runs[-1] and p.window.key and key_of(frame) != key_of(runs[-1][-1]):
                runs.append([])
            runs[-1].append(frame)
        cut.append([])
        for run in runs:
            for begin in range(0, len(run), shift):
                window = run[begin : begin + size * stride : stride]
                if len(window) == size or not drops:
                    cut[-1].append((*window, *[None] * (size - len(window))))
    return cut


def interleaved(files, cycle, block):
    """Takes samples of `cycle` files in turn, `block` of each, as tf.data's interleave does."""
    waiting, order = iter(files), []
    slots = [iter(one) for _, one in zip(range(cycle), waiting)]
    turn = 0
    while any(slot is not None for slot in slots):
        at = turn % len(slots)
        turn += 1
        if slots[at] is None:
            continue
        for _ in range(block):
            sample = next(slots[at], None)
            if sample is None:
                following = next(waiting, None)
                slots[at] = None if following is None else iter(following)
                break
            order.append(sample)
    return order


def of_no_record(error):
    return error.record is None or error.record < 0


def has(frame, field, p):
    """Whether a record has a feature. One that cannot be parsed has all."""
    try:
        strict = field._replace(default=[], required=True)
        read_features(frame.payload or b"", enum_name(p.source[0], "record_type"), [strict])
    except Failure as failure:
        return failure.category != "missing_feature"
    return True


def names(failure, category, feature):
    """Whether an error tells of a failure. Of a record that cannot be parsed it may name any feature."""
    return failure is not None and category == failure.category and failure.feature in (None, feature)


def source_of(row):
    return next((frame[0] for frame in row if frame is not None), None)


class Laws:
    def __init__(self, case, reference):
        p = self.p = case.pipeline

        def key_of(frame):
            try:
                value = reference.feature(frame, p.window.key)
            except Failure:
                return None
            return value if isinstance(value, bytes) else int(value)

        self.case, self.reference = case, reference
        self.failure, self.given = functools.cache(reference.failure), functools.cache(self.samples_of)
        every = [frame for frames in reference.sources for frame in frames]
        self.known = {(frame.source, frame.record): frame for frame in every}
        # With RAISE there are damaged ones, too, which have the number of the next good one.
        self.at = {(frame.path, frame.offset): frame for frame in every}
        per_source = [
            windows_of(frames, numbers, p, key_of)
            for frames, numbers in zip(reference.sources, reference.files, strict=True)
        ]
        self.sources = [[sample for of_file in files for sample in of_file] for files in per_source]
        self.mode = mode_of(p)
        cycle, block = p.interleave.cycle_length, p.interleave.block_length or 1
        if cycle > 1:
            per_source = [[interleaved([one for files in per_source for one in files], cycle, block)]]
        self.pass_order = [sample for files in per_source for of_file in files for sample in of_file]
        self.rows = p.batch.global_batch_size or p.batch.batch_size_per_replica
        self.frames = p.window.size if p.HasField("window") else 1
        self.passes = max(1, p.epoch.repeat)
        weights = [source.weight if source.HasField("weight") else 1.0 for source in p.source]
        self.shares = [weight / sum(weights) for weight in weights]
        self.made = {output.name: output for output in reference.outputs}
        messages = [output.message for output in reference.outputs]
        self.random = [message for message in messages if message.crop.mode or message.HasField("flip")]
        self.passed = {m.name for m in messages if not (m.WhichOneof("from") or m.HasField("normalize"))}
        self.chances = {}  # of what is chosen at random, how likely each choice is
        self.pads = {
            output.name: reference.pad_value(output.name) for output in reference.outputs if output.kind == "padded"
        }

    def samples_of_epoch(self):
        """Returns how many samples an epoch has, or None if it has no end, or ends by the shares of a mixture."""
        if self.p.epoch.steps:
            return self.p.epoch.steps * self.rows
        if self.p.epoch.repeat < 0 or self.p.HasField("mixture") and self.p.mixture.stop != ALL:
            return None
        return len(self.pass_order) * self.passes

    def steps_of_epoch(self):
        samples = self.samples_of_epoch()
        if samples is None:
            return None
        return samples // self.rows if self.p.batch.last_batch_policy == DROP else math.ceil(samples / self.rows)

    def samples_of(self, step):
        """Returns the samples of a step as they were delivered: tuples of frames; None where a row is filler."""
        frames = []
        for batch in step.batches:
            source, record, mask = batch["@@source"], batch["@@record"], batch.valid_mask
            for s, r, v in zip(source.reshape(-1).tolist(), record.reshape(-1).tolist(), mask.reshape(-1).tolist()):
                frames.append((s, r) if v else None)
        return [tuple(frames[at : at + self.frames]) for at in range(0, len(frames), self.frames)]

    def check(self, fed):
        raises = not self.p.errors.on_error  # so that no bad record is passed over

        def wanted(sample):
            frames = (f if f is not None and (raises or self.failure(f) is None) else None for f in sample)
            return tuple((f.source, f.record) if f else None for f in frames)

        epochs = collections.defaultdict(list)
        for step in fed.steps:
            epochs[step.epoch].append(step)
            for frame in (frame for row in self.given(step) for frame in row):
                if frame is not None and frame not in self.known:
                    raise Differs(f"{step}: record {frame[1]} of source {frame[0]} is no sample")
        self.check_end(fed, epochs)
        self.check_steps(fed, epochs)
        if self.p.HasField("mixture"):
            self.check_shares(epochs)
            self.check_sources(epochs, wanted)
            if self.p.mixture.stop == ALL:
                self.check_once(epochs, wanted)
            else:
                self.check_exhausted(fed, epochs, wanted)
        elif self.mode == NONE:
            self.check_order(epochs, wanted)
        else:
            self.check_once(epochs, wanted)
            self.check_distance(epochs)
            self.check_shuffling(epochs)
        self.check_reported(fed)
        self.check_filler(fed)
        self.check_choices(fed)

    def whole_epochs(self, fed):
        """Returns the epochs that were taken to their end."""
        if fed.error is None and len(fed.steps) < self.case.steps:
            return range(EPOCHS)
        return range(fed.steps[-1].epoch if fed.steps else 0)

    def check_steps(self, fed, epochs):
        """Epochs have all of their steps, in order, and steps all of their rows. The last one may go on after what was
        taken."""
        steps = math.inf if self.p.epoch.repeat < 0 else self.steps_of_epoch()
        samples, whole = self.samples_of_epoch(), self.whole_epochs(fed)
        for epoch, of_epoch in epochs.items():
            if (
                [s.step for s in of_epoch] != list(range(len(of_epoch)))
                or steps is not None
                and (len(of_epoch) > steps or epoch in whole and len(of_epoch) < steps)
            ):
                raise Differs(f"epoch {epoch} has the steps {[s.step for s in of_epoch]}, not {steps}")
            for step in of_epoch:
                rows, wanted = len(self.given(step)), self.rows
                if self.p.batch.last_batch_policy == PARTIAL:
                    if samples is not None:
                        wanted = min(wanted, samples - step.step * self.rows)
                    elif steps is None and step is of_epoch[-1]:
                        wanted = min(wanted, max(1, rows))
                if rows != wanted:
                    raise Differs(f"{step} has {rows} rows, not {wanted}")
        if fed.error is None and steps is not None and len(fed.steps) != min(self.case.steps, EPOCHS * steps):
            raise Differs(f"{len(fed.steps)} steps of {EPOCHS} epochs of {steps}; {self.case.steps} were asked for")

    def check_end(self, fed, epochs):
        """A feed ends with an error where a feature is absent, a limit of failures is exceeded or, with RAISE, a record is
        bad, and nowhere else."""
        error = fed.error
        if self.p.errors.absent_feature == ERROR:
            self.check_absent(fed, epochs)
        if error is not None and of_no_record(error) and self.p.errors.absent_feature == ERROR:
            return
        if self.p.errors.on_error:
            self.check_limits(fed, epochs)
        else:
            self.check_raised(fed)

    def check_absent(self, fed, epochs):
        """With ERROR epoch 0 ends with an error if a feature that a record may lack is in none of its records."""
        absent, error = fed.error is not None and of_no_record(fed.error) and fed.error.feature, fed.error
        fields = [declared(message) for message in self.p.feature or self.p.source[0].feature]
        may_lack = {field.name: field for field in fields if field.default or field.kind != "FIXED"}
        if absent:
            given = [self.known[frame] for step in fed.steps for row in self.given(step) for frame in row if frame]
            if (
                absent not in may_lack
                or error.category != "missing_feature"
                or any(has(frame, may_lack[absent], self.p) for frame in given)
            ):
                raise Differs(f"it ends with {error}, but records may not lack that feature, or have it")
            if set(epochs) - {0} or self.steps_of_epoch() not in (None, len(fed.steps)):
                raise Differs(f"it ends with {error} after {len(fed.steps)} steps, not at the end of epoch 0")
        elif 0 in self.whole_epochs(fed) and fed.steps:
            for name, field in may_lack.items():
                if not field.required and not any(has(frame, field, self.p) for frame in self.known.values()):
                    raise Differs(f"it ends with {error}, but no record has '{name}'")

    def check_limits(self, fed, epochs):
        """Failures are what was left out when the data was counted, and each bad record that the feed has met, once."""
        p, error, by_file, counted = self.p, fed.error, self.p.errors.on_error == SKIP_FILE, self.reference.counted
        left_out = sum(damaged > 0 if by_file else damaged for _, damaged in counted)
        lost, failures = 0 if by_file else left_out, self.failures()
        every = not (p.filter or p.HasField("window") or any(s.range or s.num_shards for s in p.source))

        def exceeded(failures, bad, of):
            count, rate = p.errors.max_failures, p.errors.max_failure_rate
            limits = {"max_failures": 0 < count < failures, "max_failure_rate": 0 < rate < bad / max(1, of)}
            return {limit for limit, is_exceeded in limits.items() if is_exceeded}

        def while_feeding(bad, uncertain):
            """Returns the limits that so many bad records exceed. Shares of the samples are known if these are all records."""
            limits = exceeded(left_out + bad, lost + bad, lost + len(self.known))
            return limits if every else limits - {"max_failure_rate"} | uncertain

        at_start = exceeded(left_out, left_out, len(counted) if by_file else sum(records for records, _ in counted))
        must, may = while_feeding(self.met(epochs), set()), while_feeding(len(failures), {"max_failure_rate"})
        if p.filter:  # whose evaluation leaves out bad records, too
            may |= {"max_failures"}
        if error is None:
            right = not at_start and not must
        elif at_start:
            right = not fed.steps and any(f"errors.{limit} " in error.message for limit in at_start)
        else:
            place = error.file, error.offset
            right = not must and any(f"errors.{limit} " in error.message for limit in may)
            right = right and (p.filter or names(failures.get(place), error.category, error.feature))
        if not right:
            raise Differs(
                f"it ends with {error} after {len(fed.steps)} steps; {left_out} were left out, and bad are {failures}"
            )

    def failures(self):
        """Returns the failure of each bad record by its place."""
        failures = {place: self.failure(frame) for place, frame in self.at.items()}
        return {place: failure for place, failure in failures.items() if failure is not None}

    def met(self, epochs):
        """Returns how many different bad records epoch 0 has surely had: rows of filler, but not of its last step."""
        if self.p.epoch.repeat or self.p.epoch.steps or self.p.HasField("mixture") and self.p.mixture.stop == CYCLE:
            return 0
        return sum(not any(row) for step in epochs[0][:-1] for row in self.given(step))

    def check_raised(self, fed):
        """It ends with the error of the first bad record, after the whole steps of good samples before it."""
        p, error = self.p, fed.error
        failures = self.failures()
        if error is not None and not names(failures.get((error.file, error.offset)), error.category, error.feature):
            raise Differs(f"it ends with {error}, but the failures are {failures}")
        for step in fed.steps if self.frames == 1 and p.batch.last_batch_policy != PAD else ():
            if not all(map(any, self.given(step))):
                raise Differs(f"{step} has filler, but bad records end the feed")
        if self.mode != NONE or p.HasField("mixture") or p.filter or p.HasField("window"):
            return  # a filter and a window's key end the feed before its first step, and a record between windows may
        first = next((n for n, (f,) in enumerate(self.pass_order) if (f.path, f.offset) in failures), None)
        steps = self.steps_of_epoch()
        if first is None or steps is not None and not p.epoch.steps and first // self.rows >= steps:
            return
        if first // self.rows >= self.case.steps:
            if error is not None or len(fed.steps) < self.case.steps:
                raise Differs(f"it ends with {error} after {len(fed.steps)} steps; sample {first} is the first bad one")
            return
        # Of several bad records of a step, one that cannot be parsed is told before one whose row cannot be made.
        begin = first // self.rows * self.rows
        of_step = [(f.path, f.offset) for (f,) in self.pass_order[begin : begin + self.rows]]
        if error is None or len(fed.steps) != first // self.rows or (error.file, error.offset) not in of_step:
            raise Differs(
                f"it ends with {error} after {len(fed.steps)} steps; sample {first}, "
                f"{self.pass_order[first][0][:5]}, is the first bad one"
            )

    def check_reported(self, fed):
        """What is reported of a record is how it fails; and each bad record that was passed over is reported."""
        if "errors" not in fed.report:
            return
        reported = set()
        for error in fed.report["errors"]:
            place = error["file"], error["offset"]
            reported.add(place)
            failure = self.failure(self.at[place]) if place in self.at else None
            if place in self.at and not names(failure, error["category"], error["feature"]):
                raise Differs(f"it reports {error}; the record's failure is {failure!r}")
        if len(fed.report["errors"]) < fed.report["bad_records"] or self.mode != NONE or self.frames > 1:
            return
        if self.p.HasField("mixture"):
            return
        for step in fed.steps:
            for row, sample in zip(self.given(step), self.expected(step)):
                if row == (None,) and sample and sample[0] and (sample[0].path, sample[0].offset) not in reported:
                    raise Differs(f"{step}: {sample[0][:5]} is bad, but not reported")

    def sample_at(self, epoch, number):
        """Returns a sample of the endless sequence of passes in file order."""
        if self.p.epoch.steps:
            number += epoch * self.p.epoch.steps * self.rows
        return self.pass_order[number % len(self.pass_order)]

    def expected(self, step):
        """Returns the samples of a step in file order."""
        total, begin = self.samples_of_epoch(), step.step * self.rows
        end = begin + self.rows if total is None else min(begin + self.rows, total)
        return [self.sample_at(step.epoch, n) for n in range(begin, end)]

    def check_order(self, epochs, wanted):
        for of_epoch in epochs.values():
            for step in of_epoch:
                rows, given = [wanted(sample) for sample in self.expected(step)], self.given(step)
                if self.p.batch.last_batch_policy == PAD:
                    rows += [(None,) * self.frames] * (self.rows - len(rows))
                if given != rows:
                    at = next((i for i, (a, b) in enumerate(zip(given, rows)) if a != b), min(len(given), len(rows)))
                    raise Differs(
                        f"{step}: row {at} is of {given[at : at + 4]}, not "
                        f"{rows[at : at + 4]} ({len(given)} rows, not {len(rows)})"
                    )

    def check_shuffling(self, epochs):
        """Orders are random, and those of two epochs differ if they are to."""
        p = self.p
        if p.epoch.steps or p.epoch.repeat or len(epochs) < 2 or not all(self.has_many_orders(epochs[e]) for e in (0, 1)):
            return
        orders = [[row for step in epochs[epoch] for row in self.given(step)] for epoch in (0, 1)]
        orders = [order[: min(map(len, orders))] for order in orders]
        again = p.shuffle.HasField("reshuffle_each_epoch") and not p.shuffle.reshuffle_each_epoch
        if (orders[0] == orders[1]) != again:
            raise Differs(f"epochs 0 and 1 have {'other orders' if again else 'the same order'}")

    def has_many_orders(self, steps):
        """Whether steps are of so many samples that two random orders differ."""
        good = {row for step in steps for row in self.given(step) if any(row)}
        return len(good) >= 20 and not self.p.shuffle.buffer_bytes  # which may hold one sample

    def check_once(self, epochs, wanted):
        """Each sample comes as often as an epoch has passes, and at most that often before its end."""
        counts = collections.Counter(map(wanted, self.pass_order))
        total, steps = self.samples_of_epoch(), self.steps_of_epoch()
        for epoch, of_epoch in epochs.items():
            given = collections.Counter(row for step in of_epoch for row in self.given(step))
            if total is None or self.p.epoch.steps:
                taken = len(of_epoch) * self.rows
                most = taken // len(self.pass_order) + 2
                least = 0
            else:
                most = self.passes
                least = self.passes if len(of_epoch) == steps else 0
            lacking = 0
            for row, count in counts.items():
                if all(frame is None for frame in row):
                    continue
                if given[row] > most * count:
                    raise Differs(f"epoch {epoch}: {row} comes {given[row]} times, not {most * count}")
                lacking += max(0, least * count - given[row])
            dropped = total - min(total, len(of_epoch) * self.rows) if least else 0
            if least and lacking > dropped:
                raise Differs(f"epoch {epoch}: {lacking} samples are missing, where {dropped} are dropped")

    def check_distance(self, epochs):
        """A shuffle buffer cannot deliver a sample before it has read it."""
        shuffle = self.p.shuffle
        if self.mode != BUFFER or shuffle.shuffle_files or not shuffle.buffer_size or self.frames > 1:
            return
        place = {(f.source, f.record): at for at, (f,) in enumerate(self.pass_order)}
        for epoch, of_epoch in epochs.items():
            if self.p.epoch.steps and epoch:
                continue
            for step in of_epoch:
                for at, (frame,) in enumerate(self.given(step)):
                    position = step.step * self.rows + at
                    if frame and position < len(place) and place[frame] >= position + shuffle.buffer_size:
                        raise Differs(
                            f"step {step.step} of epoch {epoch}: sample {place[frame]} of the pass comes as "
                            f"number {position}, ahead of a buffer of {shuffle.buffer_size}"
                        )

    def check_shares(self, epochs):
        """Every step has each source's share of the epoch within two samples, where no source is exhausted or begins
        again."""
        stop = self.p.mixture.stop
        for epoch, of_epoch in epochs.items():
            taken = collections.Counter()
            for step in of_epoch:
                rows = self.given(step)
                of_step = collections.Counter(map(source_of, rows))
                whole = not of_step.pop(None, 0) and len(rows) == self.rows
                for s, share in enumerate(self.shares) if whole and stop in (FIRST, FOREVER) else ():
                    share *= len(rows)
                    if not share - 2 <= of_step[s] <= share + 2:
                        raise Differs(f"{step} has {of_step[s]} samples of source {s}, whose share is {share:.1f}")
                taken.update(of_step)
                for s, samples in enumerate(self.sources) if stop in (FIRST, ALL) else ():
                    if taken[s] > self.passes * len(samples):
                        raise Differs(f"epoch {epoch}: {taken[s]} samples of source {s}, which has {len(samples)}")

    def check_sources(self, epochs, wanted):
        """A mixture draws the samples of each source in its own order: none again before all others have come."""
        for s, samples in enumerate(self.sources):
            good = [row for row in map(wanted, samples) if any(row)]
            if not good:
                continue
            begins = 0
            for epoch, of_epoch in epochs.items():
                given = [row for step in of_epoch for row in self.given(step) if source_of(row) == s]
                if self.mode == NONE:
                    in_turn = [good[(begins + n) % len(good)] for n in range(len(given))]
                    if given != in_turn:
                        at = next(n for n, pair in enumerate(zip(given, in_turn)) if pair[0] != pair[1])
                        raise Differs(f"epoch {epoch}: sample {at} of source {s} is {given[at]}, not {in_turn[at]}")
                    begins += len(given) if self.p.mixture.stop == FOREVER else 0
                elif given:
                    row, count = collections.Counter(given).most_common(1)[0]
                    if count > -(-len(given) // len(good)) + 1:
                        raise Differs(
                            f"epoch {epoch}: {row} comes {count} times among {len(given)} of {len(good)} samples"
                        )

    def check_exhausted(self, fed, epochs, wanted):
        """A mixture's epoch has had all good samples of one source at its end, or of all and one of them was not begun again."""
        stop = self.p.mixture.stop
        for epoch in self.whole_epochs(fed) if stop in (FIRST, CYCLE) else ():
            given = collections.Counter(row for step in epochs[epoch] for row in self.given(step))
            exhausted, again = [], []
            for s, samples in enumerate(self.sources):
                good = collections.Counter(row for row in map(wanted, samples) if any(row))
                lacking = sum(max(0, self.passes * count - given[row]) for row, count in good.items())
                dropped = self.shares[s] * (self.rows - 1) + 2 if self.p.batch.last_batch_policy == DROP else 0
                exhausted.append(lacking <= dropped)
                again.append(sum(given[row] for row in good) > self.passes * good.total())
            if not (any if stop == FIRST else all)(exhausted) or stop == CYCLE and all(again):
                raise Differs(
                    f"epoch {epoch} ends after {len(epochs[epoch])} steps; which sources have given all of their samples: "
                    f"{exhausted}, and more: {again}"
                )

    def check_filler(self, fed):
        """A row of filler is a copy of a good row of its batch: of the nearest one, and padding of the one before. A
        picture may be cut and mirrored anew. Lists and bytes have no values there, and padded lists only padding."""
        for step in fed.steps:
            for batch in step.batches:
                mask = batch.valid_mask.reshape(-1)
                good, filler = np.flatnonzero(mask), np.flatnonzero(~mask)
                for name, part in batch.items() if len(filler) else ():
                    where = f"{step}: '{name}'"
                    if name == self.p.batch.valid_mask:
                        continue
                    if isinstance(part, tuple):
                        rows = ragged_rows(part)
                        if any(len(rows[row]) for row in filler):
                            raise Differs(f"{where}: filler has values")
                        continue
                    rows = part.reshape(len(mask), -1)
                    if part.dtype == object or name in self.pads:
                        given, nothing = part[~batch.valid_mask], np.array(self.pads.get(name, b""), part.dtype)
                        if not equal(given, np.broadcast_to(nothing, given.shape)):
                            raise Differs(f"{where}: filler is {given!r}, not {nothing!r}")
                    elif len(good):
                        self.check_copies(where, self.made[name], batch, rows, good, filler)
                    elif name in self.passed:
                        self.check_without_good(where, step, name, rows)

    def check_copies(self, where, output, batch, rows, good, filler):
        after = np.searchsorted(good, filler)
        before, after = good[np.maximum(after - 1, 0)], good[np.minimum(after, len(good) - 1)]
        nearest = np.where(abs(filler - before) <= abs(after - filler), before, after)
        raw = np.ascontiguousarray(rows).view(np.uint8)
        same = (raw[filler] == raw[nearest]).all(1)
        if self.frames > 1 or self.p.batch.last_batch_policy == PAD:  # padding
            same |= (raw[filler] == raw[before]).all(1)
        for at in np.flatnonzero(~same):
            if output.message not in self.random or not any(
                agrees(self.reference, output, rows[filler[at]].reshape(output.shape), self.value(batch, row, output))
                for row in (nearest[at], before[at])
            ):
                raise Differs(f"{where}: row {filler[at]} is filler, but no copy of row {nearest[at]}")

    def value(self, batch, row, output):
        """Returns what the reference has of a good row."""
        frame = self.known[int(batch["@@source"].flat[row]), int(batch["@@record"].flat[row])]
        return self.reference.value(frame, output.name)

    def check_without_good(self, where, step, name, rows):
        """Filler of a batch without a good row is a copy of one of the step, or nothing but zeros."""
        copied = {row.tobytes() for row in rows_of(step.batches, name)}
        if any(row.any() and row.tobytes() not in copied for row in rows):
            raise Differs(f"{where}: filler is {rows!r}, neither zeros nor of the step")

    def check_choices(self, fed):
        """Outputs of a group share each random choice, and so do the frames of a window. Samples differ in their choices."""
        explained = collections.defaultdict(list)
        for where, common in self.choices(fed):
            for (what, _), choices in common.items():
                if not choices:
                    raise Differs(f"{where}: no random choice explains all of {what[:2]}")
                explained[what].append(choices)
        for what, choices in explained.items():
            always = set.intersection(*choices)
            if always and self.is_unlikely(what, choices):
                raise Differs(f"all of {len(choices)} random choices of {what[:2]} may be {always}")

    def choices(self, fed):
        """Yields of each sample where it is and which random choices explain it: of each thing that is chosen, and picture."""
        shared = [output for output in self.random if output.name not in self.pads]
        for step in fed.steps if shared else ():
            for batch in step.batches:
                mask = batch.valid_mask.reshape(-1)
                sources, records = batch["@@source"].reshape(-1), batch["@@record"].reshape(-1)
                for begin in range(0, len(mask), self.frames):
                    common = {}
                    for row in range(begin, begin + self.frames):
                        if mask[row]:
                            self.note_choices(
                                shared, batch, row, self.known[int(sources[row]), int(records[row])], common
                            )
                    yield f"{step}: row {begin}", common

    def check_other_choices(self, fed, other):
        """Feeds of the same order differ in their random choices if their seeds do."""
        explained = collections.defaultdict(list)
        for (_, mine), (_, its) in zip(self.choices(fed), self.choices(other), strict=True):
            for what, picture in mine:
                explained[what].append((mine[what, picture], its[what, picture]))
        for what, pairs in explained.items():
            if all(mine & its for mine, its in pairs) and self.is_unlikely(what, [mine for mine, _ in pairs]):
                raise Differs(f"another seed makes the same random choices of {what[:2]}")

    def is_unlikely(self, what, explained):
        """Whether choices that are made again would hardly ever all be among those that explain some samples."""
        chances = self.chances[what]
        return math.prod(sum(chances[choice] for choice in choices) for choices in explained) < 1e-12

    def note_choices(self, shared, batch, row, frame, common):
        """Leaves in `common` the choices that explain this row, too."""
        for output in shared:
            wanted = self.reference.value(frame, output.name)
            if not isinstance(wanted, Candidates) or isinstance(wanted.choices[0][0], tuple):
                continue
            made = self.made[output.name]
            given = batch[output.name].reshape(-1, *made.shape)[row]
            explain = [wanted.choices[number] for number in fits(self.reference, made, given, wanted)]
            kinds = []
            if output.HasField("flip"):
                often = output.flip.probability if output.flip.HasField("probability") else 0.5
                mirrored = "mirrored", output.flip.group or output.name
                self.chances[mirrored] = {True: often, False: 1 - often}
                kinds.append(((mirrored, None), {choice[4] for choice in explain}))
            if output.crop.mode:
                picture = self.reference.feature(frame, output.feature)[:60]
                turned = output.decode_image.apply_exif  # then its size may be another
                every = frozenset(choice[:4] for choice in wanted.choices)
                crops = "crops", output.crop.group or output.name, str(output.crop), str(output.resize), turned, every
                # Windows of random area are not equally likely, and a few of them may be likely.
                self.chances[crops] = dict.fromkeys(every, 0.25 if output.crop.HasField("random_area") else 1 / len(every))
                kinds.append(((crops, picture), {choice[:4] for choice in explain}))
            for what, choices in kinds:
                common[what] = common.get(what, choices) & choices


def check_values(fed, reference):
    """Compares each row of a sample with what its record must give."""
    frames = {(f.source, f.record): f for of_source in reference.sources for f in of_source}
    for step in fed.steps:
        sources, records = rows_of(step.batches, "@@source"), rows_of(step.batches, "@@record")
        for output in reference.outputs:
            rows = rows_of(step.batches, output.name)
            for s, r, row in zip(sources.tolist(), records.tolist(), rows, strict=True):
                where = f"{step}: '{output.name}' of record {r} of source {s}"
                try:
                    wanted = reference.value(frames[s, r], output.name)
                except Failure as failure:
                    raise Differs(f"{where} is {row!r}, but the record fails: {failure}") from None
                if not agrees(reference, output, row, wanted):
                    if isinstance(wanted, Candidates):
                        wanted = f"one of {len(wanted.choices)}, such as {wanted.values[0]!r}"
                    raise Differs(f"{where} is {row!r}, not {wanted!r}")
