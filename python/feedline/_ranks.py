"""Finds out which rank this process is, and how ranks find each other."""

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import sys
import zlib
from typing import Any, NamedTuple

from ._arguments import integer, number, secret, string
from ._errors import Error


class Tcp(NamedTuple):
    """A communicator over TCP. `address` is a name of rank 0's machine that the others can reach; rank 0 listens at
    `port` until all ranks have connected. With `exchange` (a torch.distributed process group, an mpi4py communicator,
    or a function that takes bytes and returns the bytes of all ranks), rank 0 tells the others through it where it
    listens, and address and port may be left out. Times are in seconds.

    `token` is a secret of 16 bytes or more that all ranks have, by which they recognise one another; left out, it is
    that of the environment variable FEEDLINE_MEET_TOKEN. With `exchange`, rank 0 makes a secret and sends it to the
    others through the exchange. Without a secret, ranks meet only on one machine, at a loopback address, unless `open`
    lets any process join as a rank. Nothing is encrypted."""

    address: str = ""
    port: int = 0
    start_timeout: float = 600
    timeout: float = 30
    exchange: Any = None
    token: str = ""
    open: bool = False

    def __repr__(self):
        shown = self._asdict() | ({"token": "..."} if self.token else {})
        return f"Tcp({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _arguments(self):
        return (
            string("Tcp.address", self.address),
            integer("Tcp.port", self.port, range(65536)),
            _milliseconds("Tcp.start_timeout", self.start_timeout),
            _milliseconds("Tcp.timeout", self.timeout),
            secret("Tcp.token", self.token),
            bool(self.open),
        )


def _milliseconds(name, seconds):
    value = number(name, seconds, "give the time in seconds")
    if not 0 <= value <= 1e9:
        raise Error(f"{name}: {seconds!r} is not a number of seconds from 0 to 1000000000")
    return round(value * 1000)


class Place(NamedTuple):
    """Says which rank this process is, as a launcher or a framework has told it. `rank` or `world_size` is None if it
    is only known that the process is one of several. `said` names the source in messages."""

    rank: int | None
    world_size: int | None
    said: str
    launcher: str = ""

    def is_whole(self):
        return self.rank is not None and self.world_size is not None

    def allows(self, rank, world_size):
        """Returns whether this process can be that rank of so many ranks, by what is known."""
        return self.rank in (None, rank) and self.world_size in (None, world_size)

    def unknown(self):
        """Returns the Error for a process that is one of several, and whose rank is not known."""
        return Error(
            f"{self.said}: this process is one of several, but its rank or the number of ranks is not known. "
            "Initialise the framework's process group (such as by torch.distributed.init_process_group()) before the "
            "Loader is made. Otherwise start the processes with torchrun, mpirun or srun, or give the Loader rank and "
            "world_size (rank=0, world_size=1 for a process that reads all of the data)"
        )


_NAMES = (
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "horovodrun"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "MPICH"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
)


def place_of_process():
    """Returns the Place of this process in the training: by torch's process group, by jax.distributed, or by the
    environment; None if none of them says anything. They may say it only after a loader was made."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return Place(group.get_rank(), group.get_world_size(), "torch's process group")
    if getattr(sys.modules.get("jax.distributed"), "is_initialized", bool)():
        jax = sys.modules["jax"]
        return Place(jax.process_index(), jax.process_count(), "JAX")
    return place_of_environment()


def place_of_environment(environ=os.environ):
    """Returns the Place that torchrun, horovodrun, TensorFlow's TF_CONFIG, mpirun or srun have set, or None.

    Launchers may be nested, and the innermost one counts: torchrun, or a program that sets RANK, may start several
    ranks in each task of srun or mpirun, and mpirun starts its helpers by srun. If only one of rank and world size is
    set, as when Lightning sets WORLD_SIZE before its processes have a RANK, the Place is not whole. Raises Error if
    RANK and WORLD_SIZE do not fit the task of mpirun or srun in which this process runs, as when a shell has them from
    before. This is not checked for torchrun, which may number its ranks in any order."""
    first, second, *others = (_place_of(environ, *names) for names in _NAMES)
    found = [place for place in (first, second, _place_of_tf_config(environ), *others) if place is not None]
    whole = [place for place in found if place.is_whole()]
    if not whole or not found[0].allows(*whole[0][:2]):
        return found[0] if found else None
    inner, *outer = whole
    if inner is first and outer and "TORCHELASTIC_RUN_ID" not in environ:
        tasks = outer[0].world_size
        if inner.world_size % tasks or inner.rank // (inner.world_size // tasks) != outer[0].rank:
            raise Error(
                f"{inner.said}, but {outer[0].said}: {outer[0].launcher} has started this process as a different rank; "
                "unset RANK and WORLD_SIZE, or give the Loader rank and world_size"
            )
    return inner


def _place_of(environ, rank, size, launcher):
    """Returns the Place that these variables name. Returns None if they are not set, or if one variable is set alone,
    to the value for a single process."""
    said = f"{rank}={environ.get(rank)} {size}={environ.get(size)}"
    found = [_number(environ.get(name)) for name in (rank, size)]
    if rank in environ and size in environ:
        if None in found or not 0 <= found[0] < found[1]:
            raise Error(
                f"{said}: {rank} must be a number from 0 to {size} - 1, as {launcher} sets it; unset both variables, "
                "or give the Loader rank and world_size"
            )
        return Place(*found, said, launcher)
    if (found[0] or 0) > 0:
        return Place(found[0], None, f"{rank}={environ[rank]} is set, but {size} is not")
    if (found[1] or 1) > 1:
        return Place(None, found[1], f"{size}={environ[size]} is set, but {rank} is not")
    return None


def _number(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _place_of_tf_config(environ):
    """Returns the Place of a worker in the cluster of TensorFlow's TF_CONFIG; None without several workers."""
    if not environ.get("TF_CONFIG"):
        return None
    try:
        config = json.loads(environ["TF_CONFIG"])
        counts = {kind: len(tasks) for kind, tasks in config.get("cluster", {}).items()}
        kind, index = config.get("task", {}).get("type"), int(config.get("task", {}).get("index", 0))
    except (ValueError, TypeError, AttributeError):
        return Place(None, None, "TF_CONFIG is set, but does not describe a cluster and a task")
    if kind == "evaluator":  # it feeds itself, and is no rank of the training
        return Place(index, max(counts.get(kind, 1), index + 1), "TF_CONFIG", "TF_CONFIG")
    kinds = ("chief", "master", "worker")  # in the order of their ranks
    size = sum(counts.get(one, 0) for one in kinds)
    if size <= 1:
        return None
    if "ps" in counts or kind not in kinds or not 0 <= index < counts.get(kind, 0):
        said = f"TF_CONFIG has {size} workers, but gives this process ({kind} {index}) no rank among them"
        return Place(None, None, said)
    before = sum(counts.get(one, 0) for one in kinds[: kinds.index(kind)])
    return Place(before + index, size, "TF_CONFIG", "TF_CONFIG")


def tcp_of_environment(environ=os.environ):
    """Returns the Tcp that the launcher's variables describe: MASTER_ADDR and MASTER_PORT + 1 (the launcher itself
    listens at MASTER_PORT), or the first machine of a Slurm job at a port made from the job's number. The address is
    localhost if torchrun, srun or mpirun says that all ranks are on this machine, so that they need no secret."""
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if address and port:
        if not port.isdigit() or not 0 < int(port) < 65535:
            raise Error(
                f"MASTER_PORT={port}: the port must be from 1 to 65534, because feedline listens at MASTER_PORT + 1"
            )
        here = environ.get("LOCAL_WORLD_SIZE", "") == environ.get("WORLD_SIZE")  # torchrun has started all ranks here
        return Tcp("localhost" if here else address, int(port) + 1)
    nodes, job = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST"), environ.get("SLURM_JOB_ID", "0")
    if nodes and job.isdigit():
        here = environ.get("SLURM_STEP_NUM_NODES") == "1"
        return Tcp("localhost" if here else _first_node(nodes), 20000 + int(job) % 10000)
    for all_ranks, here, job in _MPI:
        if all_ranks in environ and environ.get(here) == environ[all_ranks]:
            return Tcp("localhost", 20000 + zlib.crc32(environ.get(job, "").encode()) % 10000)
    raise Error(
        "communicator='env': no environment variable says on which machine rank 0 is; start the ranks with torchrun or "
        "srun, or set MASTER_ADDR and MASTER_PORT, or pass communicator=feedline.Tcp(address, port) or, with mpi4py, "
        "feedline.Tcp(exchange=MPI.COMM_WORLD)"
    )


# Variables of MPI launchers: the number of ranks, how many of them are on this machine, and the name of the job.
_MPI = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS", "PMI_PORT"),
)


def _first_node(nodes):
    """Returns the first name of a Slurm node list: "gpu[003-007,9],login" is gpu003."""
    match = re.match(r"([^,\[]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return match.group(1) + (match.group(2) or "") + (match.group(3) or "")


def meeting_of(communicator, rank=None, world_size=None):
    """Returns the rank, the number of ranks, and how they meet: the arguments of a communicator over TCP (or None), and
    an all-gather of bytes (or None)."""
    if isinstance(communicator, str) and communicator != "env":
        raise Error(f"communicator: {communicator!r} is not a communicator; give 'env' or feedline.Tcp(address, port)")
    group, known = group_of(communicator), ranks_of(communicator)
    if known is not None:
        advice = "for a different group of ranks, give the communicator of that group"
        must_agree(rank, world_size, known, "the communicator says rank", advice)
    if rank is None:
        rank, world_size = known or _place_to_begin_with(communicator)
    if communicator == "env" and world_size > 1:
        communicator = tcp_of_environment()
    tcp = communicator._arguments() if isinstance(communicator, Tcp) else None
    return rank, world_size, tcp, None if group is None else _exchange_of(group)


def _place_to_begin_with(communicator):
    """Returns the rank and the world size that are known now; 0 and 1 if none or only one of them is known. A loader
    asks again when it is iterated. But with a communicator ranks meet while they start, so they must know both; then
    raises Error if only one is known."""
    place = place_of_process()
    if place is None or place.is_whole():
        return (0, 1) if place is None else place[:2]
    if communicator is not None:
        raise place.unknown()
    return 0, 1


def must_agree(rank, world_size, found, says, advice):
    """Raises Error if the rank and the world size that the Loader was given are not those that were found. Accepts
    None, if it was given neither, and a world size of 1, for a process that feeds itself alone."""
    if rank is not None and world_size != 1 and (rank, world_size) != found:
        raise Error(
            f"the Loader was given rank {rank} of {world_size}, but {says} {found[0]} of {found[1]}; leave out rank "
            f"and world_size, or, {advice}"
        )


def load_nccl():
    """Loads the NCCL library that a framework in this environment has installed, if there is one. The library of the
    system may be too old for a framework that is imported later."""
    spec = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.nccl")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = os.path.join(folder, "lib", "libnccl.so.2")
        if os.path.exists(file):
            ctypes.CDLL(file)


def group_of(communicator):
    """Returns the process group, or the function, by which ranks meet; None if there is none."""
    if isinstance(communicator, Tcp):
        return communicator.exchange
    return None if isinstance(communicator, str) else communicator


def ranks_of(communicator):
    """Returns the rank and the number of ranks that a communicator knows, if it is a process group or of mpi4py;
    otherwise None."""
    group = group_of(communicator)
    if hasattr(group, "Get_rank"):
        return group.Get_rank(), group.Get_size()
    if group is None or callable(group):
        return None
    try:
        import torch.distributed as dist

        rank, size = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise Error(
                "communicator: this process is not in the process group; make the loader only in processes of the group"
            )
        return rank, size
    except (ImportError, TypeError, ValueError, AttributeError):
        raise Error(
            f"communicator: {group!r} is not a communicator; give 'env', a feedline.Tcp, a torch.distributed process "
            "group, an mpi4py communicator, or a function"
        ) from None


def _exchange_of(group):
    """Returns the group's all-gather of bytes. It raises Error if its result is not a list of bytes."""
    all_gather = _all_gather_of(group)

    def exchange(mine):
        everyone = all_gather(mine)
        if not isinstance(everyone, (list, tuple)):
            found = f"a value of type {type(everyone).__name__}"
        elif wrong := [type(one).__name__ for one in everyone if not isinstance(one, bytes)]:
            found = f"a list that contains a value of type {wrong[0]}"
        else:
            return everyone
        raise Error(
            f"communicator: the function that exchanges bytes returned {found}; it must return a list of the bytes "
            "objects of all ranks, in the order of the ranks"
        )

    return exchange


def _all_gather_of(group):
    """Returns the all-gather of an mpi4py communicator or a torch.distributed process group. If given a function, returns
    that function: it is an all-gather already."""
    if hasattr(group, "Get_rank"):
        return group.allgather
    if callable(group):
        return group
    import torch
    import torch.distributed as dist

    # The exchange runs on a thread of its own, and each thread has its own current GPU.
    device = torch.cuda.current_device() if dist.get_backend(group) == "nccl" else None

    def all_gather(mine):
        everyone = [None] * dist.get_world_size(group)
        with torch.cuda.device(device) if device is not None else contextlib.nullcontext():
            dist.all_gather_object(everyone, mine, group=group)
        return everyone

    return all_gather
