"""The program of a rank that a launcher starts: LAUNCHER early|late FOLDER STEPS RANKS ADDRESS.

It feeds the pipeline FOLDER/pipeline for so many steps by a loader that is not told its rank. The loader is made before
or after the framework has initialised its process group. The rank that the launcher has given it, and what it was fed,
go to FOLDER/PID.pickle."""

import os
import pickle
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "reference")]

import feeds

import feedline
from feedline.numpy import Loader

LAUNCHER, WHEN, FOLDER, STEPS, RANKS, ADDRESS = sys.argv[1:]

if LAUNCHER.startswith(("Lightning", "Fabric")):
    import lightning
    import torch

    class Module(lightning.LightningModule):
        """Trains for one step, before which a rank feeds."""

        def __init__(self, loader):
            super().__init__()
            self.loader, self.layer = loader, torch.nn.Linear(1, 1)

        def on_train_start(self):
            feed(self.loader, self.global_rank)

        def training_step(self, batch, index):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.zeros(4, 1))


def opened():
    """Returns a loader, or the Fed of one that a bad record ends before its first step."""
    with open(os.path.join(FOLDER, "pipeline")) as file:
        pipeline = feedline.Pipeline(file.read(), folder=os.path.dirname(FOLDER))
    try:
        return Loader(pipeline, progress=False)
    except feedline.Error as error:
        if error.category in ("bad_pipeline", *feeds.BAD_ENDS):
            raise
        return feeds.Fed(error=error)


def feed(early, rank):
    """Feeds by the loader that was made early, or if that is None, by one that is made now."""
    one = early or opened()
    fed = one if isinstance(one, feeds.Fed) else feeds.take(one, int(STEPS), feeds.Fed())
    with open(os.path.join(FOLDER, f"{os.getpid()}.pickle"), "wb") as file:
        pickle.dump((int(rank), fed), file)


def feed_spawned(rank, early):
    import torch.distributed

    torch.distributed.init_process_group("gloo", f"tcp://{ADDRESS}", rank=rank, world_size=int(RANKS))
    feed(early, rank)
    torch.distributed.barrier()  # a rank that goes takes its connections from those that are slower to make them
    torch.distributed.destroy_process_group()


def main():
    early = opened() if WHEN == "early" else None
    if LAUNCHER == "torchrun":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        feed(early, os.environ["RANK"])
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    elif LAUNCHER == "mp.spawn":
        import torch.multiprocessing

        torch.multiprocessing.spawn(feed_spawned, (early,), nprocs=int(RANKS))
    elif LAUNCHER.startswith("Lightning"):
        quiet = dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "barebones"), False
        )
        lightning.Trainer(
            max_steps=1, accelerator="cpu", devices=int(RANKS), strategy=LAUNCHER.removeprefix("Lightning, "), **quiet
        ).fit(Module(early))
    elif LAUNCHER == "Fabric":
        fabric = lightning.Fabric(accelerator="cpu", devices=int(RANKS), strategy="ddp")
        fabric.launch()
        feed(early, fabric.global_rank)
        fabric.barrier()
    elif LAUNCHER == "Accelerate":
        import accelerate

        accelerator = accelerate.Accelerator(cpu=True)
        feed(early, accelerator.process_index)
        accelerator.wait_for_everyone()
    elif LAUNCHER == "JAX":
        import jax

        jax.distributed.initialize(ADDRESS, int(RANKS), int(os.environ["PROCESS"]))
        feed(early, os.environ["PROCESS"])
    elif LAUNCHER == "mpirun":
        feed(early, os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
    else:  # its variables say it all
        feed(early, os.environ["PROCESS"])


if __name__ == "__main__":
    main()
