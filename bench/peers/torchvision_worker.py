"""torchvision. Variants: tensor (decode_image and transforms of uint8 tensors), pil (the same with Pillow), threads
(tensor's work in threads)."""
import io

from of_torch import serve_pictures
from PIL import Image
from torchvision.io import decode_image
from worker import arguments

args = arguments(["tensor", "pil", "threads"])


def decode(encoded):
    if args.variant == "pil":
        return Image.open(io.BytesIO(encoded)).convert("RGB")
    return decode_image(encoded)


if __name__ == "__main__":
    serve_pictures(args, decode)
