"""Draws a random pipeline over the files of data.py, and how it is fed.

Every field of pipeline.proto and every value of its enums is drawn; NEVER says which are not, and why. test_fields.py
reads pipeline.proto, feeds pipelines, and holds this file to that."""

import dataclasses
import math
import os
import random

import data
from schema import pipeline_class

# Fields (Message.field) and values (Message.field=VALUE) that are not drawn, with the reason.
NUMBERS = "BOOL UINT8 INT8 UINT16 INT16 UINT32 INT32 INT64 FLOAT16 BFLOAT16 FLOAT32 FLOAT64".split()
NEVER = {
    "Output.custom": "not yet supported: setting it is an error",
    "Custom.op": "not yet supported: setting it is an error",
    "Custom.args": "not yet supported: setting it is an error",
    "Distribute.timeout": "not yet supported: setting it is an error",
    "DecodeRaw.stored=BYTES": "an error: numbers are stored",
} | {
    f"Feature.dtype={dtype}": "an error: records hold BYTES, FLOAT32 and INT64"
    for dtype in {"DTYPE_UNSET", *NUMBERS} - {"FLOAT32", "INT64"}
}


PICTURES = ("pic", "two", "frames", "pair")
ABSENT = ("opt", "optb", "optf")  # the features that intact records may lack


@dataclasses.dataclass
class Case:
    """A pipeline and the ways in which it is fed besides the plain one."""

    pipeline: object
    family: str
    world: int = 1  # ranks
    replicas: int = 1  # of a rank
    threads: int = 2  # besides one thread
    steps: int = 40  # that are compared, over all epochs


def base_of(name):
    """Returns the name that data.py gives a feature."""
    return name.removesuffix(" of steps").rstrip("'")


def draw(seed):
    return _Draw(random.Random(seed)).case()


class _Draw:
    def __init__(self, rng):
        self.rng = rng
        self.any = rng.choice
        self.p = pipeline_class()()

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def some(self, values, least=1):
        return self.rng.sample(list(values), self.rng.randint(least, len(values)))

    def case(self):
        families = (
            ["plain"] * 8
            + ["damaged"] * 3
            + ["rich"] * 8
            + ["faulty"] * 5
            + ["sequence"] * 3
            + ["faulty-sequence"] * 3
            + ["raw"]
        )
        self.family = self.any(families)
        self.windows = self.chance(25)
        self.kept = None  # the output whose pictures a cache may keep
        self.errors()
        self.sources()
        self.features()
        self.order()
        self.batch()
        self.outputs()
        self.around()
        return Case(
            self.p,
            self.family,
            world=self.any([1, 2, 4]),
            replicas=self.any([1, 1, 2]),
            threads=self.any([2, 8]),
        )

    # Sources

    def errors(self):
        self.faulty = self.family in ("damaged", "faulty", "faulty-sequence")
        self.skips = self.faulty and self.chance(90)
        if self.skips:
            self.p.errors.on_error = self.any(["SKIP_RECORD", "SKIP_RECORD", "SKIP_FILE"])
            if self.chance(10):
                self.p.errors.max_failures = self.any([1, 20, 100000])
            if self.chance(10):
                self.p.errors.max_failure_rate = self.any([0.01, 0.5, 1.0])
        if self.chance(15):
            self.p.errors.absent_feature = self.any(["WARN", "ERROR", "IGNORE"])

    def sources(self):
        p = self.p
        sets = data.SETS[self.family]
        if self.chance(80):  # thousands of files take long
            sets = [one for one in sets if one != "thousands"]
        self.mixture = self.chance(25)
        count = self.rng.randint(2, 3) if self.mixture else 1 + self.chance(20)
        chosen = [self.any(sets) for _ in range(count)]
        if self.family == "damaged" and not self.skips:
            chosen = ["known-damage"] * count
        if self.family == "raw" and self.chance(30):
            chosen = ["fixed-raw"] * count
        self.sets = chosen
        self.shuffles = self.chance(55)
        squeezed = not set(chosen) & data.NOT_COMPRESSED and self.chance(15)
        ending = self.any([".gz", ".zz"]) if squeezed else ""
        weights = self.mixture and self.chance(80)
        stride, limit = self.any([data.STRIDES[0], *data.STRIDES]), self.any([data.LIMITS[0]] * 9 + data.LIMITS)
        for number, name in enumerate(chosen):
            source = p.source.add()
            source.files.append(data.path_of(name) + ending)
            if self.chance(10):
                source.name = f"source {number}"
            if self.chance(10):
                source.exclude.append(
                    self.any(["*-0000.*" if name != "tiny" and "small" not in name else "*-0009.*", "no-such-file"])
                )
            if self.chance(20):
                source.compression = {".gz": "GZIP", ".zz": "ZLIB"}.get(ending, "NONE") if self.chance(70) else "AUTO"
            if self.family.endswith("sequence"):
                source.record_type = "SEQUENCE_EXAMPLE"
            elif self.family == "raw":
                source.record_type = "RAW"
            elif self.chance(10):
                source.record_type = "EXAMPLE"
            if weights:
                source.weight = self.any([0.5, 1.0, 2.0, 5.0])
            if self.chance(10):
                source.index.mode = "REQUIRE" if self.chance(50) else "BUILD"
            source.index.dir = data.index_folder(stride, limit)
            if stride:
                source.index.stride = stride
            if limit:
                source.record_limit = limit
            if self.chance(20):
                source.range = self.any(["10%:80%", "5:333", ":70%", "3:"])
            if self.chance(15):
                source.num_shards = 3
                source.shard_id = self.rng.randrange(3)
        self.squeezed = squeezed

    # Features

    def features(self):
        if self.family == "raw":
            record = pipeline_class()().feature.add(name="record", dtype="BYTES")
            if set(self.sets) == {"fixed-raw"} and self.chance(70):
                record.length = 16
                self.p.feature.append(record)
            self.names, self.known = ["record"], {"record": record}
            return
        known = {"plain": data.PLAIN, "damaged": data.PLAIN}.get(self.family, data.RICH)
        if self.family.endswith("sequence"):
            known = data.CONTEXT
        least = 0 if self.family.endswith("sequence") else 1
        names = ["id", *self.some([name for name in known if name != "id"], least)][: self.rng.randint(2, 9)]
        if self.windows and self.chance(60) and "clip" not in names:
            names.append("clip")
        pictures = [name for name in PICTURES if name in known and name not in names]
        if pictures and self.chance(60):
            names.append(self.any(pictures))
        features = [self.feature(name, *known[name], "CONTEXT") for name in names]
        if self.family.endswith("sequence"):
            features += [self.feature(name, *data.LISTS[name], "FEATURE_LIST") for name in self.some(data.LISTS)[:4]]
        seen = {}
        for feature in features:  # "frames" and the like may be both in the context and in the lists
            if feature.name in seen:
                feature.key = feature.name.encode()
                feature.name += " of steps"
            seen[feature.name] = feature
        if self.chance(8):  # a feature that no record has
            absent = pipeline_class()().feature.add(name="absent", dtype="INT64")
            self.default(absent, "INT64", 1, 0)
            features.append(absent)
        self.known = seen
        self.names = list(seen)
        if self.chance(10):  # each source lists them itself
            for source in self.p.source:
                source.feature.extend(features)
        else:
            self.p.feature.extend(features)

    def feature(self, name, dtype, shape, length, where):
        feature = pipeline_class()().feature.add(name=name, dtype=dtype)
        in_list = where == "FEATURE_LIST"
        if in_list:
            feature.where = where
        elif self.chance(5):
            feature.where = "CONTEXT"
        if self.chance(10):
            feature.key = name.encode()
            feature.name = name + "'"
        ragged = shape is None or (in_list and name in ("rag", "ragb"))
        sequence = in_list and name in ("seq", "seqf", "seqb", "frames")
        if ragged or sequence or (not in_list and name in ("opt", "x", "cls", "optf") and self.chance(10)):
            if sequence or name == "frames" or (name in ("pairs", "steps", "v", "vx", "words") and self.chance(50)):
                feature.kind = "FIXED_SEQUENCE"
                feature.shape.extend(shape or ([2] if name == "pairs" else []))
                if name != "frames" and self.chance(30):
                    self.default(feature, dtype, 1, 3)
            else:
                feature.kind = self.any(["VARIABLE", "RAGGED"])
            if name == "frames":
                feature.max_values = 3
            elif self.chance(40):
                feature.max_values = self.any([2, 4, 12, 60] if self.faulty else [12, 60])
            # Of an intact record these may be missing, or have no kind if they are empty.
            if (self.faulty or name not in (*ABSENT, "vx", "frames")) and self.chance(15):
                feature.required = True
            return feature
        feature.shape.extend(shape)
        if length and self.chance(70):
            feature.length = length
        absent = not in_list and name in ABSENT and (not self.faulty or self.chance(80))
        if absent or not in_list and self.chance(3):
            self.default(feature, dtype, math.prod(shape) if self.chance(50) else 1, feature.length or length or 3)
        return feature

    def default(self, feature, dtype, count, length):
        for _ in range(count):
            value = feature.default_value.add()
            if dtype == "INT64":
                value.int64_value = self.any([0, -1, 77, 2**63 - 1])
            elif dtype == "FLOAT32":
                value.float32_value = self.any([0.0, -1.5, 0.25, 1e30])
            else:
                value.bytes_value = self.any([b"A", b"zz", b"\0"])[:1] * length

    # Order

    def scalars(self, floats=True):
        """Returns the names of the features that a formula can read."""
        return [
            f.name
            for f in self.known.values()
            if f.dtype != 1 and not f.kind and not f.shape and not f.where and (floats or f.dtype == 9)
        ]

    def order(self):
        p = self.p
        integers = [name for name in self.scalars(floats=False) if name.isidentifier()]
        if self.chance(20) and "id" in integers:
            p.filter = self.any(["mod(id, 3) != 1", "mod(id, 97) == 5", "mod(id, 40) > 3", "id >= 0"])
        elif self.chance(5) and integers:
            p.filter = f"mod({self.any(integers)}, 4) < 3"
        if self.windows:
            window = p.window
            window.size = self.any([1, 2, 5, 30])
            if self.chance(70):
                window.shift = self.any([1, 2, 7, 10])
            if self.chance(30):
                window.stride = self.any([1, 3])
            if self.chance(50):
                window.drop_remainder = self.chance(50)
            window.across_files = self.chance(30)
            keys = [
                name
                for name, f in self.known.items()
                if name.rstrip("'") in ("clip", "cls", "h") and not (f.where or f.kind or f.default_value)
            ]
            if keys and self.chance(30):
                window.key = self.any(keys)
        if self.mixture:
            p.mixture.stop = self.any([0, 1, 2, 3])
        mode = self.any(["BLOCK", "BUFFER", "GLOBAL"]) if self.shuffles else "NONE"
        if self.shuffles or self.chance(15):
            shuffle = p.shuffle
            shuffle.mode = mode
            if mode in ("BLOCK", "BUFFER") and (mode == "BUFFER" or self.chance(70)):
                if self.chance(80):
                    shuffle.buffer_size = self.any([10, 50, 200, 3000])
                else:
                    shuffle.buffer_bytes = self.any(["1KB", "20KiB", "0.5MiB"])
            if mode == "BLOCK" and self.chance(50):
                shuffle.block_size = self.any(["16KiB", "64KiB"])
            if mode == "BUFFER":
                shuffle.shuffle_files = not p.window.across_files and self.chance(30)
            if self.chance(20):
                shuffle.seed = self.rng.getrandbits(64)
            if self.chance(20):
                shuffle.reshuffle_each_epoch = self.chance(50)
        if mode in ("NONE", "BUFFER") and not self.mixture and self.chance(25):
            p.interleave.cycle_length = self.any([1, 2, 3, 6, 16])
            if self.chance(70):
                p.interleave.block_length = self.any([1, 2, 16])
            p.window.across_files = False
            if not self.windows:
                p.ClearField("window")
            if mode == "BUFFER":
                p.shuffle.shuffle_files = False
        if self.mixture and p.mixture.stop == 3 or not self.mixture and self.chance(15):
            p.epoch.steps = self.any([1, 7, 25])
        elif self.chance(25):
            p.epoch.repeat = self.any([1, 3, 3] + (not self.mixture) * [-1])
        if self.chance(15):
            p.epoch.allow_empty = True
        self.mode = mode

    def batch(self):
        batch = self.p.batch
        few = self.windows or self.p.filter or "small-rich" in self.sets or "tiny" in self.sets
        few = few or any(source.num_shards for source in self.p.source)
        if self.chance(85):
            many = self.family in ("plain", "damaged")
            batch.global_batch_size = self.any([8, 24, 48, 96, 200, 480] if many and not few else [8, 16, 24, 48])
        else:
            batch.batch_size_per_replica = self.any([8, 16, 40])
        if self.chance(95 if few else 70):
            batch.last_batch_policy = self.any(["DROP", "PARTIAL", "PAD"])
        if self.chance(20):
            batch.valid_mask = "mask"
        changes = not self.p.shuffle.HasField("reshuffle_each_epoch") or self.p.shuffle.reshuffle_each_epoch
        if self.mode == "BLOCK" and changes and self.chance(30):
            self.p.shuffle.lanes = self.any([1, 2, 4, 8])

    # Outputs

    def outputs(self):
        p = self.p
        if self.windows or self.chance(80):
            for turn in range(self.rng.randint(1, 5)):
                self.output(f"out{turn}")
            if not any(not output.internal for output in p.output):
                for name in self.names[:1]:
                    if not self.windows or self.is_fixed(name):
                        p.output.add(name="it", feature=name)
            if not p.output:
                p.output.add(name="where", feature="@record")

    def is_fixed(self, name):
        f = self.known[name]
        return not f.kind and (f.dtype != 1 or bool(f.length))

    def add(self, name, feature=""):
        return self.p.output.add(name=name, feature=feature)

    def output(self, name):
        base = {n: base_of(n) for n in self.names}
        can = ["reserved"] + ["pass"] * 4
        f = self.known
        plain = [n for n in self.names if not f[n].kind and not f[n].shape and not f[n].where]
        numbers = self.scalars()
        kinds = {
            "bits": [n for n in plain if base[n] in ("bits", "h", "record") and f[n].length],
            "raw": [n for n in plain if base[n] in ("bits", "raw", "h") or f[n].length == 16],
            "image": [
                n
                for n in self.names
                if base[n] in PICTURES and not (self.windows and f[n].kind)
            ],
            "one_hot": [
                n
                for n in self.names
                if (base[n] in ("cls", "y", "row", "ids") and not f[n].kind)
                or (base[n] in ("v", "pairs") and f[n].kind in (1, 3))  # multi-hot
            ],
            "lookup": [n for n in self.names if base[n] in ("row", "name", "y", "ids", "tags") and not f[n].kind],
            "vocabulary": [
                n for n in self.names if base[n] in ("name", "tags", "fixedb", "row", "ids", "fixed") and not f[n].kind
            ],
            "hash": [n for n in self.names if f[n].dtype in (1, 9) and not f[n].kind],
            "stack": numbers,
            "expression": [n for n in numbers if n.isidentifier()],
        }
        weights = {"image": 8, "raw": 4, "bits": 4, "hash": 1, "stack": 1, "expression": 2}
        can += [kind for kind, names in kinds.items() if names for _ in range(weights.get(kind, 3))]
        what = self.any(can)
        if what == "reserved":
            output = self.add(name, self.any(["@record", "@file", "@offset", "@source"]))
            if self.chance(30):
                output.dtype = self.any(["FLOAT64", "FLOAT32", "INT32", "UINT8"])
        elif what == "pass":
            fits = [n for n in self.names if not self.windows or self.is_fixed(n)]
            if not fits:
                return
            feature = self.any(fits)
            output = self.add(name, feature)
            if f[feature].dtype != 1:
                self.number(output, channels=f[feature].shape[-1] if f[feature].shape and not f[feature].kind else 1)
            elif self.is_fixed(feature) and self.chance(50) and not self.windows:
                output.dtype = "BYTES"
        else:
            getattr(self, "_" + what)(name, kinds[what])

    def number(self, output, channels=1):
        """Normalises and casts."""
        if self.chance(25):
            n = output.normalize
            n.SetInParent()
            if self.chance(60):
                n.scale = self.any([0.5, 1 / 255, 3.0])
            for field in (n.mean, n.std):
                if self.chance(60):
                    field.extend(self.any([0.25, 2.0, 100.0]) for _ in range(channels if self.chance(60) else 1))
        if self.chance(50):
            output.dtype = self.any(NUMBERS)

    def _bits(self, name, names):
        feature = self.any(names)
        bits = self.known[feature].length * 8
        output = self.add(name, feature)
        u = output.unpack_bits
        u.SetInParent()
        shape, width = self.any(
            [([], 1), ([10], 1), ([2, 4, 3], 1), ([3, 2, 2], 2), ([5], 7), ([2, 2], 13), ([3], 32), ([4], 8)]
        )
        u.shape.extend(shape)
        if width > 1:
            u.width = width
        fields = math.prod(shape)
        if self.chance(50):
            u.bit_offset = self.rng.randint(0, max(0, bits - fields * width))
        u.sign_extend = width > 1 and self.chance(40)
        if self.chance(50):
            u.bit_order = self.any(["BIG", "LITTLE"])
        channels = shape[-1] if shape else 1
        if shape and self.chance(30):
            order = list(range(channels))
            self.rng.shuffle(order)
            u.channel_order.extend(order)
        for field in (u.scale, u.bias):
            if self.chance(20):
                field.extend(self.any([0.5, -2.0, 0.1]) for _ in range(channels if self.chance(50) else 1))
        self.number(output, channels)
        if len(shape) == 3 and self.chance(40):
            output.layout = self.any(["HWC", "CHW", "AS_IS"])

    def _raw(self, name, names):
        feature = self.any(names)
        length = data.RICH.get(feature.rstrip("'"), (0, 0, 16))[2]
        output = self.add(name, feature)
        raw = output.decode_raw
        raw.SetInParent()
        if length == 48 and self.chance(50):  # a picture
            raw.layout = self.any(["HWC", "CHW"])
            raw.shape.extend([4, 4, 3] if raw.layout == 1 else [3, 4, 4])
            self.one_picture = True
            self.shape_picture(output, smallest=4, channels=3)
            return
        size, stored = self.any(
            [
                (1, "UINT8"),
                (1, "INT8"),
                (1, "BOOL"),
                (2, "UINT16"),
                (2, "INT16"),
                (2, "FLOAT16"),
                (2, "BFLOAT16"),
                (4, "UINT32"),
                (4, "INT32"),
                (4, "FLOAT32"),
                (8, "INT64"),
                (8, "FLOAT64"),
            ]
        )
        if stored != "UINT8" or self.chance(50):
            raw.stored = stored
        count = length // size
        raw.shape.extend(
            self.any(
                [
                    [count],
                    [count // 2, 2] if count % 2 == 0 else [count],
                    [2, count // 4, 2] if count % 4 == 0 else [count],
                ]
            )
        )
        raw.big_endian = size > 1 and self.chance(40)
        if len(raw.shape) == 3 and self.chance(60):
            raw.layout = self.any(["HWC", "CHW"])
            if self.chance(60):
                output.layout = self.any(["HWC", "CHW"])
        self.number(output, 1 if raw.layout else raw.shape[-1] if len(raw.shape) < 3 else 1)

    def _image(self, name, names):
        feature = self.any(names)
        output = self.add(name, feature)
        image = output.decode_image
        image.SetInParent()
        if self.chance(50):
            image.channels = self.any([1, 3])
        channels = image.channels or 3
        if self.chance(50):
            image.max_pixels = self.any([100, 150, 400] if self.faulty else [150, 400])
        if self.chance(15):
            image.dct = self.any(["ACCURATE", "FAST"])
        image.apply_exif = self.chance(20)
        if self.chance(15):
            image.bit_depth = self.any([8, 16])
        # The reference tries every combination of windows of several pictures, so these are few.
        self.one_picture = not self.known[feature].kind and not self.known[feature].shape
        self.shape_picture(output, smallest=9, channels=channels)
        if not output.HasField("crop") and self.chance(30):
            image.scale = self.any(["FULL", "AUTO"])
        if self.known[feature].kind == 0 and not self.known[feature].shape and not self.windows:
            self.kept = output

    def shape_picture(self, output, smallest, channels):
        """A crop, a resize and a flip, of which the first two give the tensor its size."""
        alike = [o for o in self.p.output if o is not output and o.feature == output.feature and o.crop.mode]
        if alike and self.chance(70):  # a pair of pictures, whose windows lie at one place
            pair = self.any(alike)
            pair.crop.group = pair.crop.group or "pair"
            output.crop.CopyFrom(pair.crop)
            if pair.HasField("resize"):
                output.resize.CopyFrom(pair.resize)
            if pair.HasField("flip"):
                pair.flip.group = pair.flip.group or "pair"
                output.flip.CopyFrom(pair.flip)
            self.number(output, channels)
            return
        crop = self.chance(60)
        random_area = crop and self.one_picture and self.chance(30)
        resize = random_area or not crop or self.chance(50)
        if resize:
            r = output.resize
            r.SetInParent()
            if crop and not random_area and self.chance(30):
                r.shorter = self.any([smallest, smallest + 2])
                output.crop.after_resize = True
            else:
                r.size.extend([self.any([4, 7, 11]), self.any([5, 7, 12])])
                output.crop.after_resize = crop and not random_area and self.chance(30)
            if self.chance(60):
                r.filter = self.any(["BILINEAR", "AREA", "NEAREST"])
            r.antialias = not r.filter and self.chance(50)
        if crop:
            c = output.crop
            if random_area:
                c.mode = "RANDOM"
                c.random_area.SetInParent()
                if self.chance(70):
                    c.random_area.scale.extend([0.4, 0.9])
                if self.chance(50):
                    c.random_area.ratio.extend([0.8, 1.25])
            else:
                c.mode = self.any(["CENTER", "RANDOM"] if self.one_picture else ["CENTER"])
                room = min(output.resize.size) if output.crop.after_resize and output.resize.size else smallest
                c.size.extend([self.rng.randint(1, min(room, 8)), self.rng.randint(1, min(room, 8))])
                if not c.after_resize and self.chance(40):
                    c.padding = self.any([1, 2])
                    c.fill = self.any([0, 0, 255, 7])
            if c.mode and self.chance(30):
                c.group = self.any(["a", "b"])
        if not output.crop.ListFields():
            output.ClearField("crop")
        if self.chance(30):
            output.flip.SetInParent()
            if self.chance(50):
                output.flip.probability = self.any([0.0, 0.3, 1.0])
            if self.chance(30):
                output.flip.group = self.any(["a", "b"])
        self.number(output, channels)
        if self.chance(30):
            output.layout = self.any(["HWC", "CHW"])

    def _one_hot(self, name, names):
        output = self.add(name, self.any(names))
        one_hot = output.one_hot
        one_hot.classes = self.any([10, 12, 23])
        fits = {"cls": 10, "row": 20, "ids": 20}.get(base_of(output.feature), math.inf)  # others have larger numbers
        if self.known[output.feature].kind:
            one_hot.classes = self.any([23, 1000])
        one_hot.ignore_outside = self.chance(40) or not self.faulty and one_hot.classes < fits
        if self.chance(25):
            one_hot.on_value = self.any([0.9, 0.0, -3.0, 1e3])
        if self.chance(25):
            one_hot.off_value = self.any([0.05, 1.0, -2.5])
        self.number(output)
        if output.dtype <= 9 and output.dtype and not output.HasField("normalize"):  # integers hold no fractions
            one_hot.off_value = int(one_hot.off_value > 0)
            one_hot.ClearField("on_value")

    def _lookup(self, name, names):
        feature = self.any(names)
        output = self.add(name, feature)
        output.lookup.table = self.any(["floats.npy", "shorts.npy", "wide.npy"])
        if self.known[feature].dtype == 1:
            output.lookup.keys_file = "names.txt"
        elif self.chance(30):
            output.lookup.keys_file = "numbers.txt"
        if self.chance(30) or base_of(feature) == "y":  # "y" is often no number of a row
            output.lookup.unknown = self.any([0, 7, 19])
        where = self.any(["", "", "resident", "on_device"])
        if where:
            setattr(output.lookup, where, True)
        self.number(output)

    def _vocabulary(self, name, names):
        output = self.add(name, self.any(names))
        names_file = output.vocabulary
        if self.chance(50) or output.feature.startswith("fixed"):  # these lists hold no words, and other numbers
            if self.chance(50):
                names_file.unknown = self.any([-1, 0, 20, -(2**31)])
            else:
                names_file.unknown_buckets = self.any([1, 7, 100_000])
        # With only some of the words, records are bad.
        names = "names.txt" if self.known[output.feature].dtype == 1 else "numbers.txt"
        names_file.keys_file = self.any(
            [names, "some-" + names] if self.skips or len(names_file.ListFields()) > 0 else [names]
        )
        if self.chance(50):
            output.dtype = self.any(["INT64", "INT32"])

    def _hash(self, name, names):
        output = self.add(name, self.any(names))
        output.hash.buckets = self.any([1, 20, 1000, 2**31, 2**62])
        if self.chance(50):
            output.dtype = self.any(["INT64", "INT32"] if output.hash.buckets <= 2**31 else ["INT64"])

    def _stack(self, name, names):
        chosen = self.some(names)[:4]
        output = self.add(name)
        output.stack.features.extend(chosen if self.chance(80) else ["*"] if len(names) == len(self.names) else chosen)
        self.number(output, len(chosen))
        if not output.dtype and len({self.known[n].dtype for n in names}) > 1:
            output.dtype = "FLOAT32"

    def _expression(self, name, names):
        output = self.add(name)
        a, b = self.any(names), self.any(names)
        earlier = [
            o.name
            for o in self.p.output
            if o.name != name
            and o.WhichOneof("from") == "expression"
            or (o.feature in self.names and o.feature in self.scalars() and not o.WhichOneof("from"))
        ]
        forms = [
            f"{a} + {b} * 3",
            f"{a} - {b}",
            f"{a} * {b} * 100000",
            f"{a} / {b}",
            f"mod({a}, {b})",
            f"-{a} < {b} or not {a} == 3",
            f"abs({a}) - sign({b})",
            f"min({a}, max({b}, 2)) + floor({b} / 7.5)",
            f"if({a} > 10, {a} - 10, {b} + 0.5)",
            f"sqrt(abs({a})) * K",
            f"tanh({a} / K)",
            f"sigmoid({b} * 0.01)",
            f"exp({a} * 0.001)",
            f"log(abs({b}) + 1)",
            f"pow({a}, 2)",
            f"{a} >= {b} and {b} != 0",
            f"mod({a}, 7) <= 3",
        ]
        formula = self.any(forms)
        if earlier and self.chance(50):
            formula = f"out.{self.any(earlier)} + ({formula})"
        output.expression.formula = formula
        if "K" in formula:
            output.expression.constants["K"] = self.any([2.0, 410.0])
        if self.chance(50):
            exact = not any(word in formula for word in ("tanh", "sigmoid", "exp", "log", "pow", "out."))
            output.dtype = self.any(
                ["INT64", "INT32", "BOOL", "FLOAT32", "FLOAT16"] if exact else ["FLOAT32", "FLOAT64"]
            )
        output.internal = self.chance(20)

    # What must make no difference

    def around(self):
        p = self.p
        if self.chance(60):
            p.seed = self.rng.getrandbits(63)
        if self.chance(30 if self.kept is None else 60):
            cache = p.cache
            if self.kept is not None and self.chance(80):
                cache.what = self.any(["DECODED", "RESIZED"])
            cache.where = self.any(["MEMORY", "DISK"])
            if cache.where:
                cache.dir = "kept"
            cache.limit = self.any(["200KiB", "1MiB", "64MiB"])
        if self.chance(25):
            p.distribute.mode = self.any(["SPLIT", "REPLICATE", "SCATTER"])
            if self.chance(50):
                p.distribute.peer = self.any(["AUTO", "OFF"])
        if self.chance(10):
            p.memory.device_limit = self.any(["1GiB", "100MB"])
        p.memory.limit = "4GiB"
        p.parallelism.threads = 1
        if self.chance(50):
            p.parallelism.host_prefetch = self.any([1, 2, 4])
        if self.chance(10):
            p.parallelism.device_prefetch = self.any([1, 3])
        if self.chance(10):
            p.parallelism.cpu_set = str(min(os.sched_getaffinity(0)))
