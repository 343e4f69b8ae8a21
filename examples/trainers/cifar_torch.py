"""Trains a small convolutional network on pictures in CIFAR-10's layout, in mixed precision.

    python examples/trainers/cifar_torch.py --epochs 30 --precision bfloat16 --checkpoint cifar.pt

Started again, it goes on from its last checkpoint, in the middle of an epoch, and the losses are those of a run that was
not interrupted, bit for bit.
"""

import argparse
import json
import os

import torch

from feedline.torch import Loader

HERE = os.path.dirname(os.path.abspath(__file__))


def network():
    def block(channels, more):
        return [torch.nn.Conv2d(channels, more, 3, 2, 1), torch.nn.BatchNorm2d(more), torch.nn.ReLU()]

    return torch.nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), torch.nn.Flatten(), torch.nn.Linear(1024, 10))


def train(image, label, model, optimizer, precision):
    """Trains with a batch, and returns its loss. The weights stay float32; what the layers compute is in the given
    precision."""
    with torch.autocast(image.device.type, precision, enabled=precision != torch.float32):
        loss = torch.nn.functional.cross_entropy(model(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "cifar_train.textproto"))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--checkpoint", help="where to save, and from where to go on")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    flags = parser.parse_args()

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = Loader(flags.pipeline, device=device, as_tuple=("image", "class"))
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []  # of all steps so far
    if flags.checkpoint and os.path.exists(flags.checkpoint):
        saved = torch.load(flags.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        losses = saved["losses"]
    for epoch in range(loader.epoch, flags.epochs):
        for image, label in loader:
            losses.append(train(image, label, model, optimizer, getattr(torch, flags.precision)))
            if flags.checkpoint and len(losses) % flags.every == 0:
                parts = {"model": model, "optimizer": optimizer, "loader": loader}
                states = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**states, "losses": losses}, flags.checkpoint + ".new")
                os.replace(flags.checkpoint + ".new", flags.checkpoint)
        print(json.dumps({"epoch": epoch, "loss": sum(losses[-len(loader) :]) / len(loader)}), flush=True)


if __name__ == "__main__":
    main()
