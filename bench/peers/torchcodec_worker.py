"""torchcodec, which torchvision advises for decoding, and torchvision's transforms. Variants: tensor (DataLoader), threads."""
from of_torch import serve_pictures
from torchcodec.decoders import decode_image
from worker import arguments

args = arguments(["tensor", "threads"])

if __name__ == "__main__":
    serve_pictures(args, decode_image)
