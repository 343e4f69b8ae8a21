"""Records and pictures for the tests of the reference."""

import io
import struct
import zlib

import numpy as np
import schema
from PIL import Image


def feature(values, kind: str = ""):
    """Returns a Feature message: of a value, of a list of values, or without a kind for None."""
    message = schema.Feature()
    if values is None:
        return message
    values = values if isinstance(values, list) else [values]
    if not kind:
        kind = {bytes: "bytes_list", str: "bytes_list", float: "float_list"}.get(type(values[0]), "int64_list")
    plain = [value.encode() if isinstance(value, str) else value for value in values]
    if kind == "float_list":
        plain = [int(np.float32(value).view(np.uint32)) for value in plain]
    getattr(message, kind).SetInParent()
    getattr(message, kind).value.extend(plain)
    return message


NO_BYTES, NO_FLOATS, NO_NUMBERS = (feature([], kind) for kind in ("bytes_list", "float_list", "int64_list"))


def _entries(entries, values: dict) -> None:
    for key, value in values.items():
        message = value if hasattr(value, "SerializeToString") else feature(value)
        entries.entry.add(key=key.encode(), value=[message.SerializeToString()])


def example(**features) -> bytes:
    message = schema.Example()
    _entries(message.features, features)
    return message.SerializeToString()


def sequence(context: dict, **lists) -> bytes:
    """Returns a SequenceExample; each list is the values of its steps."""
    message = schema.SequenceExample()
    _entries(message.context, context)
    steps = {key: [step if isinstance(step, schema.Feature) else feature(step) for step in values]
             for key, values in lists.items()}
    _entries(message.feature_lists, {key: schema.FeatureList(feature=values) for key, values in steps.items()})
    return message.SerializeToString()


def encoded(pixels: np.ndarray, form: str = "PNG", mode: str | None = None, **options) -> bytes:
    """Returns pixels [height, width, channels] as a file of Pillow's."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(
        pixels[..., 0] if pixels.shape[-1] == 1 else pixels, mode)
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png(rng, height: int, width: int, depth: int, colour: int) -> bytes:
    """Returns a PNG of random bytes, whose rows have random filters."""
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    stride = (width * channels * depth + 7) // 8
    rows = [bytes([rng.integers(5)]) + rng.bytes(stride) for _ in range(height)]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")


def pictures(rng, height: int, width: int) -> dict[str, bytes]:
    """Returns pictures of one size in many formats, by name."""
    def noise(channels):
        return rng.integers(0, 256, (height, width, channels), np.uint8)

    indexed = Image.fromarray(noise(3)).quantize(7)
    return {
        "jpeg": encoded(noise(3), "JPEG", quality=90),
        "jpeg progressive": encoded(noise(3), "JPEG", progressive=True, subsampling=2),
        "jpeg 4:2:2": encoded(noise(3), "JPEG", subsampling=1),
        "jpeg grey": encoded(noise(1), "JPEG"),
        "png": encoded(noise(3)),
        "png grey": encoded(noise(1)),
        "png grey, alpha": encoded(noise(2), mode="LA"),
        "png alpha": encoded(noise(4)),
        "png of bits": encoded(Image.fromarray(noise(1)[..., 0]).convert("1")),
        "png indexed": encoded(indexed),
        "png indexed, transparent": encoded(indexed, transparency=3),
        "png grey of 16 bits": encoded(Image.fromarray(rng.integers(0, 65536, (height, width), np.uint16))),
    } | {f"png {depth} {colour}": png(rng, height, width, depth, colour)
         for depth, colour in ((16, 2), (16, 6), (16, 4), (2, 0), (4, 0))}
