"""Shows a case to everything that a user may look at it with: the tool's commands, the C interface, and the monitor
of a feed. What they tell is compared with the batches that the Python package delivers."""

import base64
import contextlib
import copy
import dataclasses
import functools
import html
import io
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import urllib.request
import zlib

import numpy as np
from comparing import ragged_rows
from differences import Differs, equal, rows_of, told
from feeds import BAD_ENDS, PAD, Fed, kept, message_for, opened
from PIL import Image

import feedline

PAGES = ("", "report.json", "metrics", "history.json?from=0", "sample.json", "ranks.json", "system.json")
TIMEOUT = 120  # seconds
FIXED_SEQUENCE = 2  # Feature.Kind
HWC, CHW = 1, 2  # Output.Layout
RANDOM = 1  # Crop.Mode
ERROR = 1  # Errors.absent_feature
CYCLE_FOREVER = 3  # Mixture.stop
# What a command may refuse though the case can be fed: `stats` makes larger batches.
MAY_REFUSE = {"stats": "memory.limit: "}


@dataclasses.dataclass
class Shown:
    """A case, and what is known of it."""

    case: object
    folder: str
    plain: Fed
    reference: object

    @property
    def pipeline(self):
        """Returns the path of the pipeline's text, which lies where its paths are relative to."""
        return os.path.join(self.folder, f"view-{os.getpid()}.textproto")

    @property
    def written(self):
        """Returns a folder for what is written."""
        return os.path.join(self.folder, f"view-{os.getpid()}")

    @property
    def outputs(self):
        return [output for output in self.reference.outputs if not output.name.startswith("@@")]

    def first_steps(self, most):
        return [step for step in self.plain.steps if step.epoch == 0][:most]

    @property
    def is_endless(self):
        return self.case.pipeline.HasField("mixture") and self.case.pipeline.mixture.stop == CYCLE_FOREVER

    @functools.cached_property
    def fits(self):
        """Whether no command may refuse the case: all records fit it, or any number of them are skipped."""
        errors = self.case.pipeline.errors
        if self.plain.error is not None or errors.absent_feature == ERROR:
            return False
        if errors.on_error:
            return not (errors.max_failures or errors.max_failure_rate)
        frames = (frame for of_source in self.reference.sources for frame in of_source)
        return all(self.reference.failure(frame) is None for frame in frames)

    def tool(self, command, *arguments, good=False, refusal=""):
        """Runs a command of the tool. Returns its standard output, or None if it fails. Raises Differs if it fails
        though it must be `good`, fails without a line that says why, or does not say the `refusal`."""
        done = subprocess.run(
            [os.environ["FEEDLINE_TOOL"], command, self.pipeline, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            env={**environment(self.pipeline), "XDG_CACHE_HOME": self.folder},
        )
        why = done.stderr.strip()
        good = good and MAY_REFUSE.get(command, "\n") not in why
        ends = re.findall(r"\[(\w+)\]$", why, re.MULTILINE)
        if (
            done.returncode not in (0, 1)
            or (done.returncode and (good or not ends or any(end in BAD_ENDS for end in ends)))
            or refusal not in why
        ):
            raise Differs(f"feedline {command} {arguments}: exit code {done.returncode}: {why or done.stdout}")
        return None if done.returncode else done.stdout


def environment(pipeline):
    """Returns the environment of a program that feeds the pipeline. Its SIMD level is not always the best that there
    is, which this process has."""
    with open(pipeline, "rb") as text:
        return {**os.environ, "FEEDLINE_SIMD": ("portable", "avx2", "avx512")[zlib.crc32(text.read()) % 3]}


def show(name, case, folder, plain, reference):
    it = Shown(case, folder, plain, reference)
    os.mkdir(it.written)
    try:
        with open(it.pipeline, "w") as file:
            file.write(str(message_for(case, {"where": False})))
        VIEWS[name](it)
    finally:
        shutil.rmtree(it.written)
        with contextlib.suppress(FileNotFoundError):
            os.remove(it.pipeline)


def require(what, given, wanted):
    if given != wanted:
        raise Differs(f"{what} is {given!r}, not {wanted!r}")


def is_random(output):
    return output.message.HasField("flip") or output.message.crop.mode == RANDOM


def samples_in(batches):
    """Returns how many rows of the batches are samples; of windows, those with a frame."""
    return int(sum(batch.valid_mask.reshape(len(batch.valid_mask), -1).any(1).sum() for batch in batches))


def checked(it):
    none_fits = it.case.pipeline.errors.on_error and not samples_in(step.batches[0] for step in it.plain.steps)
    it.tool("check", good=it.fits and not none_fits)


def splits(rows):
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)


def strings_of(rows):
    """Returns the strings of rows that are strings or arrays of them."""
    return [string for row in rows for string in ([row] if isinstance(row, bytes) else row.reshape(-1).tolist())]


def dumped_tensors(output, batches, pad):
    """Returns the tensors of the batches' samples, by what follows the output's name."""
    tensors, rows = {}, []
    for batch in batches:
        part, chosen = batch[output.name], batch.valid_mask.reshape(len(batch.valid_mask), -1).any(1)
        rows += itertools.compress(ragged_rows(part) if isinstance(part, tuple) else part, chosen)
    if output.kind == "padded" and rows:
        longest = max(map(len, rows))
        padded = [np.empty((longest, *output.shape), row.dtype) for row in rows]
        for whole, row in zip(padded, rows, strict=True):
            whole[...], whole[: len(row)] = np.reshape(pad, output.shape), row
        rows = padded
    if output.kind in ("ragged", "nested"):
        tensors[".row_splits"] = splits(rows)
    if output.kind == "nested":
        rows = [step for row in rows for step in row]
        tensors[".step_splits"] = splits(rows)
    if output.type == "BYTES":
        strings = strings_of(rows)
        tensors[".bytes"], tensors[".offsets"] = np.frombuffer(b"".join(strings), np.uint8), splits(strings)
    elif output.kind in ("ragged", "nested"):
        tensors[".values"] = np.concatenate(rows)
    else:
        tensors[""] = np.stack(rows)
    return tensors


def dumped(it):
    """What `dump` writes is what the plain feed has delivered of the first steps."""
    steps = it.first_steps(3)
    arguments = "--out", it.written + "/dump", "--steps", str(max(1, len(steps)))
    good = it.tool("dump", *arguments, good=bool(steps) or not it.plain.error)
    batches = [step.batches[0] for step in steps]
    if good is None or not samples_in(batches):
        return
    for output in it.outputs:
        pad = it.reference.pad_value(output.name) if output.kind == "padded" else None
        for part, wanted in dumped_tensors(output, batches, pad).items():
            is_bfloat16 = wanted.dtype.name == "bfloat16"
            given = np.load(f"{it.written}/dump/{output.name}{part}{'.bf16' if is_bfloat16 else ''}.npy")
            if not equal(given, wanted.view(np.uint16) if is_bfloat16 else wanted) and (len(given) or len(wanted)):
                raise Differs(f"feedline dump: '{output.name}{part}' is {told(given)}, not {told(wanted)}")


def whole_epoch(it):
    """Returns the batches that `stats` is about: one pass over the data, or an epoch of a mixture, in file order."""
    p = copy.deepcopy(it.case.pipeline)
    p.ClearField("shuffle")
    p.batch.last_batch_policy = PAD
    # Pictures of FIXED_SEQUENCE are counted as they are stored.
    encoded = {output.name: output.message for output in it.reference.outputs if output.kind == "padded"}
    for output in p.output:
        if output.name in encoded and output.HasField("decode_image"):
            output.CopyFrom(type(output)(name=output.name, feature=output.feature))
    if not it.is_endless:
        p.epoch.ClearField("repeat")
        p.epoch.ClearField("steps")
    with opened(dataclasses.replace(it.case, pipeline=p), it.folder, {"where": False}) as one:
        return [kept(batch) for batch in one]


def counted(values):
    """Returns the statistics of numbers that are compared."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return {
        "count": values.size,
        "infinite": int(np.isinf(values).sum()) if values.dtype.kind == "f" else 0,
        "nan": int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0,
        "zeros": int((values == 0).sum()),
        "min": finite.min().item() if finite.size else None,
        "max": finite.max().item() if finite.size else None,
    }


def counted_output(output, batches):
    """Returns the statistics of an output that are compared. Those of padded ones are of values without padding, which
    the batches do not tell."""
    rows = rows_of(batches, output.name)
    if output.kind == "padded":
        return {"lengths": {"count": len(rows)}}
    of = {}
    if output.kind in ("ragged", "nested"):
        of["lengths"] = counted(np.array(list(map(len, rows)), np.int64))
    if output.kind == "nested":
        rows = [step for row in rows for step in row]
        of["step_lengths"] = counted(np.array(list(map(len, rows)), np.int64))
    if output.type == "BYTES":
        of["sizes"] = counted(np.array(list(map(len, strings_of(rows))), np.int64))
        return of
    values = np.concatenate([row.reshape(-1) for row in rows])
    of["numbers"] = counted(values.astype(np.float32) if output.type == "BFLOAT16" else values)
    return of


def summed_up(it):
    """What `stats` counts is what an epoch holds, and the data has not drifted from it."""
    page = it.written + "/stats.html"
    text = it.tool("stats", "--json", "--html", page, good=it.fits)
    if text is None:
        return
    require_no_drift(it, text)
    features = [*it.case.pipeline.feature, *it.case.pipeline.source[0].feature]
    if it.case.family.startswith("faulty") and any(feature.kind == FIXED_SEQUENCE for feature in features):
        return  # `stats` also counts records of which such a feature, not delivered, has no whole steps
    stats, batches = json.loads(text), whole_epoch(it)
    require("feedline stats: samples", stats["samples"], samples_in(batches))
    with open(page) as file:
        shown = html.unescape(file.read())
    for given, output in zip(stats["outputs"], it.outputs, strict=True):
        name = output.name
        require("feedline stats: an output", given["name"], name)
        if name not in shown:
            raise Differs(f"feedline stats --html: there is no '{name}'")
        if not stats["samples"] or (is_random(output) and it.case.pipeline.HasField("mixture")):
            continue  # which sample of a mixture is which depends on the size of the batch
        for what, wanted in counted_output(output, batches).items():
            require(f"feedline stats: '{name}': {what}", {key: given[what][key] for key in wanted}, wanted)


def require_no_drift(it, stats):
    if it.is_endless and it.case.pipeline.errors.on_error:
        return  # it also counts bad records that were read ahead, more or fewer by chance
    before = it.written + "/stats.json"
    with open(before, "w") as file:
        file.write(stats)
    drift = it.tool("check", "--against", before, "--json", good=True)
    require("feedline check --against: drifts", json.loads(drift)["drifts"], [])


def sampled(it):
    """`stats --records` takes a sample as large as asked for, which is the same one again."""
    most = 20
    refusal = "CYCLE_FOREVER" if it.is_endless and it.fits else ""
    text = it.tool("stats", "--json", "--records", str(most), good=it.fits and not refusal, refusal=refusal)
    if text is None:
        return
    stats = json.loads(text)
    wanted = min(most, stats["samples_of_data"])
    require("feedline stats --records: samples", stats["samples"] + stats["bad_records"], wanted)
    require_no_drift(it, text)


def layout_of_pictures(output):
    """Returns the layout of an output whose values are pictures, for people, or None."""
    said, n = output.message, output.message.normalize
    if output.kind != "dense" or len(output.shape) < 3 or not math.prod(output.shape):
        return None
    if output.type not in ("UINT8", "FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64"):
        return None
    way = said.WhichOneof("from")
    layout = said.layout or said.decode_raw.layout or (HWC if way in ("decode_image", "unpack_bits") else 0)
    first, _, last = output.shape[-3:]
    if not layout and first == last:
        return None
    channels = first if layout == CHW else last
    if channels not in (1, 3) or any(len(values) not in (0, 1, channels) for values in (n.mean, n.std)):
        return None
    return layout or HWC


def drawn(it):
    pictures = [output for output in it.outputs if layout_of_pictures(output)]
    sheet, most = it.written + "/sheet.png", 5
    refusal = "" if pictures else "none of the outputs is a picture"
    steps = it.first_steps(most)
    text = it.tool(
        "show", "--out", sheet, "--samples", str(most), good=bool(pictures and steps), refusal=refusal if steps else ""
    )
    if text is None:
        return
    cells = min(most, sum(len(step.batches[0].valid_mask) for step in steps))
    require("feedline show: samples", len(re.findall(r"^row \d+, column \d+", text, re.MULTILINE)), cells)
    with Image.open(sheet) as image:
        image.load()


def run(it):
    """What `run` reports is what the plain feed has delivered of the first steps; and it compares their rows."""
    comparable = any(
        output.kind == "dense" and output.type != "BYTES" and not is_random(output) for output in it.outputs
    )
    steps, trace = it.first_steps(4), it.written + "/trace.json"
    arguments = "--steps", "4", "--json", "--trace", trace, *(["--verify-rows"] if comparable else [])
    text = it.tool("run", *arguments, good=it.fits)
    if text is None:
        return
    report, batches = json.loads(text), [step.batches[0] for step in steps]
    require("feedline run: steps", report["steps"], len(steps))
    require("feedline run: records", report["records"], samples_in(batches))
    if comparable:
        rows = int(sum(batch.valid_mask.sum() for batch in batches))
        output = report["verified_rows"].pop("output")
        require(f"feedline run: rows of '{output}'", report["verified_rows"], {"rows": rows, "differing": 0})
    with open(trace) as file:
        require("feedline run: a trace", bool(json.load(file)["traceEvents"]), True)


def tensors_of(value):
    """Yields the tensors of an output of feedline.Loader, in the order of Element.tensors."""
    if isinstance(value, tuple):
        for part in value:
            yield from tensors_of(part)
    else:
        yield value


def fed_in_c(it):
    """What the C interface gives of the first steps is what the Python package gives, and it ends as that does."""
    steps = 3
    done = subprocess.run(
        [os.environ["FEEDLINE_C_FEED"], it.pipeline, str(steps)],
        cwd=it.folder,
        capture_output=True,
        timeout=TIMEOUT,
        env=environment(it.pipeline),
    )
    if done.returncode:
        raise Differs(f"c_feed: exit code {done.returncode}: {done.stderr!r}")
    wanted, error = [], None
    try:
        text = feedline.Pipeline(str(message_for(it.case, {"where": False})), folder=it.folder)
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


def shown_of(output, batch):
    """Returns what /sample.json has of an output: {} if nothing."""
    rows = batch[output.name]
    layout, n = layout_of_pictures(output), output.message.normalize
    if layout:
        pictures = rows[: samples_in([batch])].reshape(-1, *output.shape[-3:])[:8]
        pictures = (pictures.transpose(0, 2, 3, 1) if layout == CHW else pictures).astype(np.float32)
        scale = [n.scale] if n.HasField("scale") else []
        for undo, values in ((np.multiply, n.std), (np.add, n.mean), (np.divide, scale)):
            pictures = undo(pictures, np.array(values, np.float32)) if values else pictures
        pictures = np.nan_to_num(np.rint(pictures)).clip(0, 255).astype(np.uint8)
        return {"pictures": [np.broadcast_to(picture, (*picture.shape[:2], 3)) for picture in pictures]}
    if output.kind == "dense" and output.type != "BYTES" and math.prod(rows.shape[1:]) == 1:
        numbers = rows[: samples_in([batch])].reshape(-1)[:1024].tolist()
        return {"numbers": [number if math.isfinite(number) else None for number in map(float, numbers)]}
    return {}


def check_sample(it, sample, batch):
    require("the monitor's sample", (sample["epoch"], sample["step"]), (batch.epoch, batch.step))
    shown = {output.name: shown_of(output, batch) for output in it.outputs}
    given = [one for one in sample["outputs"] if one["name"] != it.case.pipeline.batch.valid_mask]
    require("the monitor's outputs", [one["name"] for one in given], [name for name in shown if shown[name]])
    for one in given:
        what, wanted = f"the monitor's '{one['name']}'", shown[one["name"]]
        require(what, one.get("numbers"), wanted.get("numbers"))
        pictures = wanted.get("pictures", [])
        require(what, [(p["height"], p["width"]) for p in one.get("pictures", [])], [p.shape[:2] for p in pictures])
        for given, picture in zip(one.get("pictures", []), pictures, strict=True):
            given = np.frombuffer(base64.b64decode(given["rgb"]), np.uint8).reshape(picture.shape)
            if abs(given.astype(int) - picture).max() > 1:  # where it is rounded
                raise Differs(f"{what} has a picture {given!r}, not {picture!r}")


def monitored(it):
    """The monitor counts what was delivered, and shows a part of the batch that came after it was asked."""
    with opened(it.case, it.folder, {"where": False}, monitor="127.0.0.1:0") as one:
        if isinstance(one, Fed):
            return
        batches = []
        with contextlib.suppress(feedline.Error):
            for batch in itertools.islice(itertools.chain(one, one, one), 2):
                batches.append(kept(batch))
                pages = {}
                for page in PAGES:
                    with urllib.request.urlopen(one.monitor_address + page, timeout=TIMEOUT) as answer:
                        pages[page] = answer.read().decode()
                    if ".json" in page:
                        pages[page] = json.loads(pages[page])
                report, samples = pages["report.json"], samples_in(batches)
                filler = sum(len(batch.valid_mask) for batch in batches) - samples
                require("the monitor's steps", report["steps"], len(batches))
                require("the monitor's records", report["records"], samples)
                require("the monitor's filler", report["filler_rows"], filler)
                if f"\nfeedline_records_total {samples}\n" not in pages["metrics"]:
                    raise Differs(f"the monitor's metrics do not count {samples} records: {pages['metrics']}")
                if len(batches) == 1:
                    require("the monitor's sample", pages["sample.json"], None)
                else:
                    check_sample(it, pages["sample.json"], batches[-1])


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
