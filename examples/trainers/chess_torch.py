"""Trains a small network to score chess positions, with PyTorch and DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/trainers/chess_torch.py --epochs 6 --checkpoint chess.pt

Kill it whenever you like. Started again, with the same or another number of processes, it goes on from its last
checkpoint, and the losses are those of a run that was never interrupted.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from feedline.torch import Loader

HERE = os.path.dirname(os.path.abspath(__file__))


class Network(torch.nn.Module):
    """board and flags -> 64 -> 32 -> 1"""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8 * 8 * 24 + 10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )

    def forward(self, board, flags):
        return self.layers(torch.cat([board.flatten(1), flags], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "train.textproto"))
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--checkpoint", help="where to save, and from where to go on")
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--losses", help="a file to which rank 0 adds a line of JSON for each step")
    flags = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    loader = Loader(flags.pipeline, device=device)
    model = DistributedDataParallel(Network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    if flags.checkpoint and os.path.exists(flags.checkpoint):
        saved = torch.load(flags.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    if loader.epoch >= flags.epochs:
        parser.exit(message=f"{flags.checkpoint} is that of epoch {loader.epoch}; there is nothing left to train\n")
    while loader.epoch < flags.epochs:
        for batch in loader:
            loss = (model(batch["board"], batch["flags"]) - batch["score"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach() / dist.get_world_size()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                if flags.losses:
                    with open(flags.losses, "a", encoding="utf-8") as losses:
                        print(json.dumps({"epoch": batch.epoch, "step": batch.step, "loss": mean.item()}), file=losses)
                if flags.checkpoint and batch.step % flags.every == 0:
                    save(flags.checkpoint, model=model, optimizer=optimizer, loader=loader)
    exactly_once = audit(loader)
    if dist.get_rank() == 0:
        print(json.dumps({"loss": mean.item(), "exactly_once": exactly_once}))
    dist.destroy_process_group()


def audit(loader):
    """Returns whether all ranks together were given each record of the last epoch exactly once. Each rank's audit is a
    sum over the records that it was given, and all of them together must give what the data holds."""
    audits = [None] * dist.get_world_size()
    dist.all_gather_object(audits, loader.report()["epoch_audit"])
    given = sum(one["delivered"] + one["dropped"] + one["bad"] for one in audits)
    return given % 2**64 == audits[0]["expected"]


def save(path, **parts):
    """Saves the states of all parts in one file, which is replaced as a whole."""
    torch.save({name: part.state_dict() for name, part in parts.items()}, path + ".new")
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
