"""Trains a small convolutional network on pictures in CIFAR-10's layout, in mixed precision.

    python examples/trainers/cifar_torch.py --epochs 30 --precision bfloat16
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


def train(batches, model, optimizer, precision):
    """Trains with the steps of one epoch, and returns the mean loss. The weights stay float32; what the layers compute
    is in the given precision."""
    device = next(model.parameters()).device.type
    losses = []
    for image, label in batches:
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            loss = torch.nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "cifar_train.textproto"))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    flags = parser.parse_args()

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = Loader(flags.pipeline, device=device, as_tuple=("image", "class"))
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for epoch in range(flags.epochs):
        loss = train(loader, model, optimizer, getattr(torch, flags.precision))
        print(json.dumps({"epoch": epoch, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
