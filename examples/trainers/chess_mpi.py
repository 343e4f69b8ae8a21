"""Trains the network of chess_torch.py in processes that MPI connects.

    mpirun -n 2 python examples/trainers/chess_mpi.py --epochs 6
"""

import argparse
import json
import os

import torch
from chess_torch import Network
from mpi4py import MPI

from feedline.torch import Loader

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "train.textproto"))
    parser.add_argument("--epochs", type=int, default=6)
    flags = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    ranks = MPI.COMM_WORLD
    loader = Loader(flags.pipeline, communicator=ranks)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    for epoch in range(flags.epochs):
        total = 0.0
        for batch in loader:
            loss = (model(batch["board"], batch["flags"]) - batch["score"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                ranks.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
                parameter.grad /= ranks.size
            optimizer.step()
            total += ranks.allreduce(loss.item()) / ranks.size
        if ranks.rank == 0:
            print(json.dumps({"epoch": epoch, "loss": total / len(loader)}), flush=True)


if __name__ == "__main__":
    main()
