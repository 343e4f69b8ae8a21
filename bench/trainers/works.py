"""Trains with one loader, and prints what a step cost as a line of JSON.

    python bench/trainers/works.py chess feedline
    python bench/trainers/works.py chess own        # what users of the framework write: own_loaders.py
    python bench/trainers/works.py keras memory     # one batch that lies in memory, again and again
    python bench/trainers/works.py cifar own --device cuda      # batches and training on a GPU; cifar dali: DALI's batches
    python bench/trainers/works.py chess --same     # whether both loaders give the same samples
"""

import argparse
import itertools
import json
import os
import sys

import numpy
import torch
import torch.distributed as dist
from gpu_watch import GpuWatch
from measure import WARM, Measure
from own_loaders import Pictures, Positions, data_loader, on_gpu, pictures_of_dali, positions_of_tf_data

import feedline.numpy
import feedline.torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "examples", "trainers"))
CHESS = os.path.join(ROOT, "examples", "train.textproto"), 256
CIFAR = os.path.join(ROOT, "examples", "cifar_train.textproto"), 64


def fed(pipeline, rows, loader=feedline.torch.Loader, **arguments):
    return loader(pipeline, batch={"global_batch_size": rows}, epoch={"repeat": 1000}, **arguments)


def loader_of(flags, work, samples):
    """Returns a loader for one process of torch, whose batches lie on the device that trains."""
    if flags.loader == "dali":
        return pictures_of_dali(*work)
    if flags.loader == "own" and flags.device == "cpu":
        return data_loader(samples(work[0]), work[1])
    if flags.loader == "own":
        return on_gpu(data_loader(samples(work[0]), work[1], pinned=True), flags.device)
    loader = fed(*work, device=flags.device)
    return itertools.repeat(next(iter(loader))) if flags.loader == "memory" else loader


def looped(loader, steps, train, device="cpu"):
    """Returns the figures of a loop that trains with each batch of a loader."""
    measure = Measure(None if device == "cpu" else GpuWatch())
    for batch in itertools.islice(measure.over(loader), WARM + steps):
        train(batch)
    return measure.result(steps)


def trained_by_torch(loader, flags, model, loss_of):
    model.to(flags.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def train(batch):
        optimizer.zero_grad()
        loss_of(batch).backward()
        optimizer.step()

    return looped(loader, flags.steps, train, flags.device)


def chess(flags):
    from chess_torch import Network

    model = Network()
    loader = loader_of(flags, CHESS, Positions)
    return trained_by_torch(loader, flags, model, lambda batch: chess_loss(model, batch))


def chess_loss(model, batch):
    return (model(batch["board"], batch["flags"]) - batch["score"]).square().mean()


def cifar(flags):
    from cifar_torch import network

    model = network()
    loader, loss = loader_of(flags, CIFAR, Pictures), torch.nn.CrossEntropyLoss()
    return trained_by_torch(loader, flags, model, lambda batch: loss(model(batch["image"]), batch["class"]))


def lightning(flags):
    import lightning
    from chess_torch import Network

    loader = loader_of(flags, CHESS, Positions)
    measure, results = Measure(), []

    class Scorer(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def training_step(self, batch, _):
            return chess_loss(self.network, batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01, momentum=0.9)

        def on_train_batch_end(self, outputs, batch, number):
            if number == WARM + flags.steps - 1:
                results.append(measure.result(flags.steps))

    class Steps:
        def __iter__(self):
            return measure.over(loader)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=WARM + flags.steps, **quiet)
    trainer.fit(Scorer(), Steps())
    return results[0]


def mpi(flags):
    from chess_torch import Network
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    if flags.loader == "feedline":
        loader = fed(*CHESS, communicator=ranks)
    else:
        loader = data_loader(Positions(CHESS[0]), CHESS[1], 1, ranks.rank, ranks.size)

    def train(batch):
        optimizer.zero_grad()
        chess_loss(model, batch).backward()
        for parameter in model.parameters():
            ranks.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
            parameter.grad /= ranks.size
        optimizer.step()

    return of_all_ranks(ranks.gather(looped(loader, flags.steps, train)))


def of_all_ranks(results):
    """Returns the CPU time of all ranks together, and of the other figures the mean. None: this is not rank 0."""
    if results is None:
        return None
    return {
        name: sum(one[name] for one in results) / (1 if name.endswith("cpu_ms") else len(results)) for name in results[0]
    }


def jax(flags):
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import chess_jax
    import jax

    import feedline.jax

    shapes = zip(chess_jax.WIDTHS, chess_jax.WIDTHS[1:])
    keys = jax.random.split(jax.random.key(1), len(chess_jax.WIDTHS) - 1)
    parameters = [(jax.random.normal(k, (i, o)) * (2 / i) ** 0.5, jax.numpy.zeros(o)) for k, (i, o) in zip(keys, shapes)]
    state = [parameters, jax.tree.map(jax.numpy.zeros_like, parameters)]
    if flags.loader == "own":
        loader = positions_of_tf_data(*CHESS).as_numpy_iterator()
    else:
        loader = fed(*CHESS, feedline.jax.Loader)
    if flags.loader == "memory":
        loader = itertools.repeat(next(iter(loader)))

    def train(batch):
        state[0], state[1], loss = chess_jax.step(*state, batch)
        loss.block_until_ready()

    return looped(loader, flags.steps, train)


def keras(flags):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import tensorflow

    from feedline.keras import steps

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    inputs = [keras.Input((8, 8, 24)), keras.Input((10,))]
    tensors = keras.layers.Concatenate()([keras.layers.Flatten()(inputs[0]), inputs[1]])
    for width in (64, 32):
        tensors = keras.layers.Dense(width, "relu")(tensors)
    model = keras.Model(inputs, keras.layers.Dense(1)(tensors))
    model.compile(keras.optimizers.SGD(0.01, 0.9), "mse")
    if flags.loader == "own":
        data = positions_of_tf_data(*CHESS).map(lambda batch: ((batch["board"], batch["flags"]), batch["score"]))
    else:
        data = steps(fed(*CHESS, feedline.numpy.Loader), ["board", "flags"], "score")
    if flags.loader == "memory":
        data = tensorflow.data.Dataset.from_tensors(next(data)).repeat()
    measure, results = Measure(), []

    class Ends(keras.callbacks.Callback):
        def on_train_batch_end(self, number, logs=None):
            if number == WARM - 1:
                measure.begin()
            if number == WARM + flags.steps - 1:
                results.append(measure.result(flags.steps))

    model.fit(data, steps_per_epoch=WARM + flags.steps, verbose=0, callbacks=[Ends()])
    return results[0]


def deblur(flags):
    from deblur_torch import Network, Pairs, files_in, patches_of, step

    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    model = trained = Network().to(memory_format=torch.channels_last)
    if ranks > 1:
        dist.init_process_group("gloo")
        trained = torch.nn.parallel.DistributedDataParallel(model)
    if rank == 0:
        files_in(os.path.join(ROOT, "build", "deblur"))
    if ranks > 1:
        dist.barrier()
    file, _ = files_in(os.path.join(ROOT, "build", "deblur"))
    if flags.loader == "feedline":
        loader = fed(patches_of(file, 8, flags.precision), 8)
    else:
        loader = data_loader(Pairs(file), 8, 2, rank, ranks)
    optimizer = torch.optim.Adam(model.parameters())
    precision = getattr(torch, flags.precision)
    result = looped(loader, flags.steps, lambda batch: step(trained, optimizer, batch, precision))
    if ranks == 1:
        return result
    del result["loader_cpu_ms"]  # gloo's own threads have a part of it
    results = [None] * ranks if rank == 0 else None
    dist.gather_object(result, results)
    dist.destroy_process_group()
    return of_all_ranks(results)


WORKS = {work.__name__: work for work in (chess, cifar, lightning, mpi, jax, keras, deblur)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("loader", choices=["feedline", "own", "memory", "dali"], nargs="?", default="feedline")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of deblur")
    parser.add_argument("--device", default="cpu", help="of chess and cifar: where batches are made and models are trained")
    parser.add_argument("--same", action="store_true")
    flags = parser.parse_args()
    if flags.loader == "dali" and flags.work != "cifar":
        parser.error("dali loads only the pictures of cifar")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if flags.same and flags.work not in ("chess", "cifar", "jax", "keras"):
        parser.error(f"{flags.work} has the samples of another work, or only random ones; --same is for chess, cifar, jax and keras")
    if flags.same:
        return same(flags.work)
    result = WORKS[flags.work](flags)
    if result:
        print(json.dumps(result))


def same(work):
    """Prints how far apart the samples of both loaders are. Windows of pictures are at random places."""
    pipeline = CIFAR[0] if work == "cifar" else CHESS[0]
    if work in ("jax", "keras"):
        with feedline.Loader(pipeline) as loader:
            rows = loader.samples_per_epoch
        theirs = next(positions_of_tf_data(pipeline, rows, 1).as_numpy_iterator())
    else:
        samples = Pictures(pipeline) if work == "cifar" else Positions(pipeline)
        rows = len(samples)
        theirs = next(iter(torch.utils.data.DataLoader(samples, rows)))
    ours = next(iter(feedline.numpy.Loader(pipeline, batch={"global_batch_size": rows}, shuffle={"mode": "NONE"})))
    for name, wanted in theirs.items():
        print(f"{name}: {abs(ours[name] - numpy.asarray(wanted)).max():.1e} apart")


if __name__ == "__main__":
    main()
