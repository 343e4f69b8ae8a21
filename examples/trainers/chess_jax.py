"""Trains the network of chess_torch.py with JAX, on a mesh of all devices: each has a part of every batch.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/trainers/chess_jax.py --epochs 6
"""

import argparse
import json
import os

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from feedline.jax import Loader

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTHS = (8 * 8 * 24 + 10, 64, 32, 1)


def score(parameters, board, flags):
    x = jnp.concatenate([board.reshape(len(board), -1), flags], 1)
    for layer, (weights, biases) in enumerate(parameters):
        x = x @ weights + biases
        x = jax.nn.relu(x) if layer < len(parameters) - 1 else x
    return x[:, 0]


@jax.jit
def step(parameters, momentum, batch):
    """Returns the parameters and the momentum after a step of gradient descent, and the loss before it."""

    def loss_of(parameters):
        return jnp.square(score(parameters, batch["board"], batch["flags"]) - batch["score"]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - 0.02 * m, parameters, momentum), momentum, loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "train.textproto"))
    parser.add_argument("--epochs", type=int, default=6)
    flags = parser.parse_args()

    mesh = Mesh(numpy.array(jax.devices()), ("data",))
    loader = Loader(flags.pipeline, sharding=NamedSharding(mesh, PartitionSpec("data")))
    keys = jax.random.split(jax.random.key(1), len(WIDTHS) - 1)
    shapes = zip(WIDTHS, WIDTHS[1:])
    parameters = [(jax.random.normal(k, (i, o)) * (2 / i) ** 0.5, jnp.zeros(o)) for k, (i, o) in zip(keys, shapes)]
    parameters = jax.device_put(parameters, NamedSharding(mesh, PartitionSpec()))  # each device has all of them
    momentum = jax.tree.map(jnp.zeros_like, parameters)
    for epoch in range(flags.epochs):
        losses = []
        for batch in loader:
            parameters, momentum, loss = step(parameters, momentum, batch)
            losses.append(loss)
        print(json.dumps({"epoch": epoch, "devices": len(mesh.devices), "loss": float(jnp.stack(losses).mean())}), flush=True)


if __name__ == "__main__":
    main()
