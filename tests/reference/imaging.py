"""Pictures: decoding with Pillow, windows, resizing and mirroring, with all random choices that there are."""

import io
import itertools
import struct
import zlib

import numpy as np
import schema
from features import Failure
from PIL import Image, UnidentifiedImageError

Image.MAX_IMAGE_PIXELS = None
_GREY = (9797, 19234, 3737)  # 0.299 of red and 0.587 of green, as libpng has them in 32768ths; blue is the rest
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """Returns the whole chunks of a PNG, those of one kind joined."""
    chunks, at = {}, 8
    while at + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        at += length + 12
        if at <= len(data):
            chunks[kind] = chunks.get(kind, b"") + data[at - length - 4 : at - 4]
    return chunks


def _png_of_16_bits(data: bytes) -> np.ndarray | None:
    """Returns all 16 bits of the samples of a PNG [height, width, channels], or None if it has fewer."""
    chunks = _chunks(data)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"][:13])
    if depth != 16:
        return None
    if interlaced:
        raise NotImplementedError("interlaced PNGs of 16 bits")
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    step, stride = 2 * channels, 2 * channels * width
    raw = zlib.decompressobj().decompress(chunks[b"IDAT"])
    if len(raw) < height * (stride + 1):
        raise Failure("bad_image")
    above, rows = bytearray(stride), []
    for y in range(height):
        filtered = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride):
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            nearest = min((left, above[i], corner), key=lambda v: abs(left + above[i] - corner - v))
            row[i] = row[i] + (0, left, above[i], (left + above[i]) // 2, nearest)[filtered] & 255
        rows.append(bytes(row))
        above = row
    return np.frombuffer(b"".join(rows), ">u2").astype(np.uint16).reshape(height, width, channels)


def _grey(colour: np.ndarray) -> np.ndarray:
    """Returns a colour picture of a PNG as grey, as libpng does it."""
    half = 16384 if colour.dtype == np.uint16 else 0
    mixed = (colour.astype(np.int64) @ np.array(_GREY) + half) >> 15
    same = (colour[..., 0] == colour[..., 1]) & (colour[..., 0] == colour[..., 2])
    return np.where(same, colour[..., 0], mixed).astype(colour.dtype)[..., None]


def _channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """Returns a PNG's pixels with 1 or 3 channels. Alpha is dropped."""
    pixels = pixels[..., : 1 if pixels.shape[-1] <= 2 else 3]
    if channels == pixels.shape[-1]:
        return pixels
    return np.repeat(pixels, 3, -1) if channels == 3 else _grey(pixels)


def _png(image: Image.Image, data: bytes, channels: int) -> np.ndarray:
    if b"IEND" not in _chunks(data):
        raise Failure("bad_image")
    if (wide := _png_of_16_bits(data)) is not None:
        return _channels(wide, channels)
    if image.mode in ("1", "I", "I;16"):
        image = image.convert("L")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGB")
    pixels = np.asarray(image)
    return _channels(pixels.reshape(*pixels.shape[:2], -1), channels)


def _jpeg(image: Image.Image, data: bytes, channels: int, size: tuple[int, int]) -> np.ndarray:
    """Returns a JPEG's pixels, decoded to a half, a quarter or an eighth if that has at least `size` [width, height]."""
    if b"\xff\xd9" not in data[data.rfind(b"\xff\xda") :]:
        raise Failure("bad_image")
    if image.mode == "CMYK":
        if channels == 1:
            raise Failure("bad_image")
        # Pillow turns over what is stored; TensorFlow does so where there is no marker of Adobe's.
        inks = np.asarray(image).astype(np.int64)
        inks = 255 - inks if "adobe" in image.info else inks
        return (inks[..., :3] * inks[..., 3:] // 255).astype(np.uint8)
    image.draft("L" if channels == 1 else "RGB", size)
    return np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(image.height, image.width, channels)


def decode(data: bytes, spec, wanted) -> np.ndarray:
    """Returns the pixels [height, width, channels] of an encoded picture, UINT8 or UINT16, or raises Failure. With
    `scale: AUTO` they may be fewer than it has, if it will be resized to wanted(height, width)."""
    channels = spec.channels or 3
    try:
        image = Image.open(io.BytesIO(data), formats=["JPEG", "PNG"])
        if image.width * image.height > (spec.max_pixels or 1 << 24) or max(image.size) > 65536:
            raise Failure("bad_image")
        exif = image.info.get("exif")
        turn = None
        if spec.apply_exif and exif:
            tags = Image.Exif()
            tags.load(exif)
            turn = _TURNS.get(tags.get(0x0112))
        if image.format in ("JPEG", "MPO"):
            height, width = wanted(image.height, image.width) if spec.scale and not turn else image.size[::-1]
            pixels = _jpeg(image, data, channels, (width, height))
        else:
            pixels = _png(image, data, channels)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, KeyError, struct.error, zlib.error) as error:
        raise Failure("bad_image") from error
    if spec.bit_depth == 16:
        pixels = pixels if pixels.dtype == np.uint16 else pixels.astype(np.uint16) * 257
    elif pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    return pixels if turn is None else _turned(pixels, turn)


def _turned(pixels: np.ndarray, turn: Image.Transpose) -> np.ndarray:
    places = Image.fromarray(np.arange(pixels.shape[0] * pixels.shape[1], dtype=np.int32).reshape(pixels.shape[:2]))
    return pixels.reshape(-1, pixels.shape[-1])[np.asarray(places.transpose(turn))]


def weights(size: int, wanted: int, method: str, antialias: bool) -> np.ndarray:
    """Returns what each of `size` pixels gives to each of `wanted` pixels [wanted, size]."""
    if size == wanted:
        return np.eye(size)
    scale = size / wanted
    pixel, source = np.arange(wanted)[:, None], np.arange(size)[None, :]
    if method == "NEAREST":
        return ((2 * pixel + 1) * size // (2 * wanted) == source).astype(float)
    if method == "AREA":
        covered = np.minimum((pixel + 1) * size, (source + 1) * wanted) - np.maximum(pixel * size, source * wanted)
        return np.maximum(covered, 0) / size
    centre = (pixel + 0.5) * scale
    if antialias:
        share = np.maximum(0.0, 1 - np.abs(source + 0.5 - centre) / max(scale, 1.0))
        return share / share.sum(1, keepdims=True)
    place = np.clip(centre - 0.5, 0, size - 1)
    return np.maximum(0.0, 1 - np.abs(source - place))


class Shaping:
    """Crop, resize and flip of an output: every picture that may come of one, with the choice that leads to it."""

    def __init__(self, output):
        self.crop = output.crop if output.HasField("crop") else None
        self.resize = output.resize if output.HasField("resize") else None
        self.method = schema.enum_name(output.resize, "filter")
        probability = output.flip.probability if output.flip.HasField("probability") else 0.5
        probability = probability if output.HasField("flip") else 0.0
        self.mirrored = [False] * (probability < 1) + [True] * (probability > 0)
        self.is_random = len(self.mirrored) > 1 or bool(self.crop) and schema.enum_name(self.crop, "mode") == "RANDOM"
        self.does_something = any(map(output.HasField, ("crop", "resize", "flip")))

    def size(self, stored: tuple[int, int] | None) -> tuple[int, int] | None:
        """Returns height and width of the tensor; `stored` is that of the pictures, if all have one."""
        if self.crop and self.crop.after_resize:
            return tuple(self.crop.size)
        if self.resize:
            return tuple(self.resize.size) if self.resize.size else self.wanted(*stored)
        return tuple(self.crop.size) if self.crop else stored

    def candidates(self, pixels: np.ndarray) -> tuple[list, np.ndarray]:
        """Returns choices and pictures [choices, height, width, channels]; raises Failure if the crop is larger.

        A choice is (y, x, height, width, mirrored), of the window before resizing (or after it with after_resize).
        """
        after = bool(self.crop) and self.crop.after_resize
        if after:
            pixels = self._resized(pixels[None])[0]
        if self.crop:
            padding = self.crop.padding
            fill = self.crop.fill * (257 if pixels.dtype == np.uint16 else 1)
            pixels = np.pad(pixels, ((padding, padding), (padding, padding), (0, 0)), constant_values=fill)
        boxes, made = sorted(self._boxes(*pixels.shape[:2]), key=lambda box: box[2:]), []
        for _, group in itertools.groupby(boxes, key=lambda box: box[2:]):
            windows = np.stack([pixels[y : y + h, x : x + w] for y, x, h, w in group])
            made.append(windows if after else self._resized(windows))
        choices = [(*box, mirrored) for mirrored in self.mirrored for box in boxes]
        stacked = np.concatenate(made)
        return choices, np.concatenate([stacked[:, :, ::-1] if m else stacked for m in self.mirrored])

    def wanted(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width that a picture is resized to."""
        if not self.resize:
            return height, width
        if self.resize.size:
            return tuple(self.resize.size)
        short = self.resize.shorter
        return (short, short * width // height) if height <= width else (short * height // width, short)

    def _resized(self, windows: np.ndarray) -> np.ndarray:
        """Resizes pictures of one size [pictures, height, width, channels]."""
        size = windows.shape[1:3]
        if self.wanted(*size) == size:
            return windows
        down, across = (
            weights(old, new, self.method, self.resize.antialias) for old, new in zip(size, self.wanted(*size))
        )
        result = np.einsum("ah,nhwc,bw->nabc", down, windows.astype(np.float64), across, optimize=True)
        return result.astype(windows.dtype if self.method == "NEAREST" else np.float64)

    def _boxes(self, height: int, width: int) -> list[tuple]:
        """Returns the windows (y, x, height, width) that may be cut out of a picture of this size."""
        if not self.crop:
            return [(0, 0, height, width)]
        if self.crop.HasField("random_area"):
            return self._area_boxes(height, width)
        h, w = self.crop.size
        if h > height or w > width:
            raise Failure("bad_image")
        if schema.enum_name(self.crop, "mode") == "CENTER":
            return [(round((height - h) / 2), round((width - w) / 2), h, w)]
        return [(y, x, h, w) for y in range(height - h + 1) for x in range(width - w + 1)]

    def _area_boxes(self, height: int, width: int) -> list[tuple]:
        """Returns all windows that RandomResizedCrop may take. Sides are rounded, so half a pixel is allowed."""
        low, high = self.crop.random_area.scale or (0.08, 1.0)
        narrow, broad = self.crop.random_area.ratio or (3 / 4, 4 / 3)
        boxes = set()
        for h in range(1, height + 1):
            for w in range(1, width + 1):
                small, large = (h - 0.5) * (w - 0.5), (h + 0.5) * (w + 0.5)
                fits = small <= high * height * width and large >= low * height * width
                if fits and (w - 0.5) / (h + 0.5) <= broad and (w + 0.5) / (h - 0.5) >= narrow:
                    boxes |= {(y, x, h, w) for y in range(height - h + 1) for x in range(width - w + 1)}
        h, w = height, width
        if width / height < narrow:
            h = min(height, max(1, round(width / narrow)))
        elif width / height > broad:
            w = min(width, max(1, round(height * broad)))
        boxes.add(((height - h) // 2, (width - w) // 2, h, w))
        return list(boxes)

    @property
    def is_inexact(self) -> bool:
        return bool(self.resize) and self.method != "NEAREST"
