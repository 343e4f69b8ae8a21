"""Trains a classifier of handwritten digits with Ray Train: each worker feeds itself, by the rank that Ray gave it.

    python examples/trainers/digits_ray.py --workers 2 --folder runs/digits
    python examples/trainers/digits_ray.py --workers 2 --folder runs/lost --lose worker   # what happens to a lost worker

When a worker dies, or a machine with its workers, Ray starts the workers again. They go on from the last checkpoint, in
the middle of an epoch; with `--workers 1 3` as many of them as there is room for.
"""

import argparse
import json
import os
import signal
import tempfile

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device
from torch.nn.parallel import DistributedDataParallel

from feedline.torch import Loader

HERE = os.path.dirname(os.path.abspath(__file__))


def train(config):
    """What each worker does."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    loader = Loader(
        [config["pipeline"], 'output { name: "record" feature: "@record" }'],
        shuffle={"buffer_size": 150},
        seed=1,
        batch={"global_batch_size": 30},  # 1, 2, 3 or 5 workers can divide it
        device=get_device(),
    )
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    model = DistributedDataParallel(network.to(get_device()))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    # How often this worker has trained on each record in this epoch; where workers were started; what epochs gave.
    times = torch.zeros(loader.samples_per_epoch, dtype=torch.int64, device=get_device())
    starts, epochs = [], []
    if last := ray.train.get_checkpoint():
        with last.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "state.pt"), map_location=get_device())
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        starts, epochs = saved["starts"], saved["epochs"]
        if dist.get_rank() == 0:
            times = saved["times"]
    step = len(epochs[-1]["losses"]) % len(loader) if epochs else 0
    starts.append({"epoch": loader.epoch, "step": step, "workers": dist.get_world_size()})

    def report():
        """Reports the last loss to Ray, with a checkpoint by rank 0. All workers call it together."""
        all_times = total(times)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if dist.get_rank() == 0:
                parts = {"model": model, "optimizer": optimizer, "loader": loader}
                states = {name: part.state_dict() for name, part in parts.items()}
                seen = {"times": all_times, "starts": starts, "epochs": epochs}
                torch.save({**states, **seen}, os.path.join(folder, "state.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"loss": epochs[-1]["losses"][-1]}, checkpoint=checkpoint)

    while loader.epoch < config["epochs"]:
        for batch in loader:
            if batch.step == 0:
                epochs.append({"epoch": batch.epoch, "losses": []})
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epochs[-1]["losses"].append(total(loss.detach()).item() / dist.get_world_size())
            times += torch.bincount(batch["record"], minlength=len(times))
            if batch.step % config["every"] == 0 and batch.step + 1 < len(loader):  # there is another one after the epoch
                report()
            if (batch.epoch, batch.step) == (1, 3) and not last and dist.get_rank() == dist.get_world_size() - 1:
                lose(config["lose"])
        epochs[-1]["exactly_once"] = bool((total(times) == 1).all())
        times.zero_()
        report()


def total(tensor):
    """Returns the sum of the tensors of all workers."""
    result = tensor.clone()
    dist.all_reduce(result)
    return result


def lose(what):
    """Kills this worker; and if its machine is to be lost, what Ray takes for that: the process that started the worker."""
    if what == "machine":
        os.kill(os.getppid(), signal.SIGKILL)
    if what:
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "digits.textproto"), help="of as many records as fill its batches of 30")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folder", required=True, help="where the checkpoints are; of all machines, if there are several")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="how many, or the fewest and the most; all of these numbers must divide 30")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--lose", choices=["worker", "machine"], help="loses the last worker, or its machine, in epoch 1")
    flags = parser.parse_args()

    if "RAY_ADDRESS" not in os.environ:  # there is no cluster: this machine alone is one
        ray.init("local", num_cpus=max(flags.workers), object_store_memory=100 << 20, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={
            "pipeline": os.path.abspath(flags.pipeline),
            "epochs": flags.epochs,
            "every": flags.every,
            "lose": flags.lose,
        },
        scaling_config=ScalingConfig(
            num_workers=flags.workers[0] if len(flags.workers) == 1 else tuple(flags.workers),
            use_gpu=torch.cuda.is_available(),
        ),
        run_config=RunConfig(
            name="digits",
            storage_path=os.path.abspath(flags.folder),
            failure_config=FailureConfig(max_failures=3),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    )
    with trainer.fit().checkpoint.as_directory() as folder:
        saved = torch.load(os.path.join(folder, "state.pt"), map_location="cpu")
        for line in [*saved["starts"], *saved["epochs"]]:
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
