"""Which rank this process is, and how ranks find each other."""

import contextlib
import ctypes
import importlib.util
import os
import re
import zlib
from typing import Any, NamedTuple

from ._arguments import integer, number, string
from ._errors import Error


class Tcp(NamedTuple):
    """A communicator over TCP. `address` is a name of rank 0's machine that the others can reach; rank 0 listens at
    `port` until all ranks have come. With `exchange` (a torch.distributed process group, an mpi4py communicator, or a
    function that takes bytes and returns the bytes of all ranks), rank 0 tells the others through it where it listens,
    and address and port may be left out. Times are in seconds. Nothing is encrypted: use it in trusted networks."""

    address: str = ""
    port: int = 0
    start_timeout: float = 600
    timeout: float = 30
    exchange: Any = None

    def _arguments(self):
        return (
            string("Tcp.address", self.address),
            integer("Tcp.port", self.port, range(65536)),
            _milliseconds("Tcp.start_timeout", self.start_timeout),
            _milliseconds("Tcp.timeout", self.timeout),
        )


def _milliseconds(name, seconds):
    value = number(name, seconds, "it is in seconds")
    if not 0 <= value <= 1e9:
        raise Error(f"{name}: {seconds!r} is no number of seconds from 0 to a billion")
    return round(value * 1000)


_NAMES = (
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "MPICH"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
)


def rank_of_environment(environ=os.environ):
    """Returns (rank, world size) as torchrun, mpirun or srun have set them, or (0, 1).

    Launchers may be nested, and the innermost one counts: torchrun, or a program that sets RANK, may start several ranks
    in each task of srun or mpirun, and mpirun starts its helpers by srun. Raises Error if RANK and WORLD_SIZE can be no
    ranks inside of the task of mpirun or srun that this process belongs to, as when they were left set in a shell.
    torchrun itself may number its ranks in any order."""
    set_by = [names for names in _NAMES if names[0] in environ and names[1] in environ]
    if not set_by:
        return 0, 1
    rank, size = _numbers(environ, *set_by[0])
    if set_by[0] is _NAMES[0] and len(set_by) > 1 and "TORCHELASTIC_RUN_ID" not in environ:
        task, tasks = _numbers(environ, *set_by[1])
        if size % tasks or rank // (size // tasks) != task:
            task_name, tasks_name, launcher = set_by[1]
            raise Error(
                f"RANK={rank} WORLD_SIZE={size}, but {task_name}={task} {tasks_name}={tasks}: {launcher} has started this "
                "process as another rank; unset RANK and WORLD_SIZE, or give the Loader rank and world_size"
            )
    return rank, size


def _numbers(environ, rank, size, launcher):
    """Returns the rank and the world size that these variables say."""
    try:
        found = int(environ[rank]), int(environ[size])
    except ValueError:
        found = -1, 0
    if not 0 <= found[0] < found[1]:
        raise Error(
            f"{rank}={environ[rank]} {size}={environ[size]}: {launcher} sets numbers here, the first of which is below "
            "the second; unset both, or give the Loader rank and world_size"
        )
    return found


def tcp_of_environment(environ=os.environ):
    """Returns the Tcp that the launcher's variables describe: MASTER_ADDR and MASTER_PORT + 1 (the launcher itself
    listens at MASTER_PORT), the first machine of a Slurm job at a port made from its number, or this machine if mpirun
    has started all ranks here."""
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if address and port:
        if not port.isdigit() or not 0 < int(port) < 65535:
            raise Error(f"MASTER_PORT={port} is no port")
        return Tcp(address, int(port) + 1)
    nodes, job = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST"), environ.get("SLURM_JOB_ID", "0")
    if nodes and job.isdigit():
        return Tcp(_first_node(nodes), 20000 + int(job) % 10000)
    for all_ranks, here, job in _MPI:
        if all_ranks in environ and environ.get(here) == environ[all_ranks]:
            return Tcp("localhost", 20000 + zlib.crc32(environ.get(job, "").encode()) % 10000)
    raise Error(
        "communicator='env': the variables do not say where rank 0 is; start the ranks with torchrun or srun, or set "
        "MASTER_ADDR and MASTER_PORT, or pass communicator=feedline.Tcp(address, port) or, with mpi4py, "
        "feedline.Tcp(exchange=MPI.COMM_WORLD)"
    )


# The number of ranks, how many of them are on this machine, and what names the job.
_MPI = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS", "PMI_PORT"),
)


def _first_node(nodes):
    """Returns the first name of a Slurm node list: "gpu[003-007,9],login" is gpu003."""
    match = re.match(r"([^,\[]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return match.group(1) + (match.group(2) or "") + (match.group(3) or "")


def meeting_of(communicator, rank=None, world_size=None):
    """Returns the rank, the number of ranks, and how they meet: the arguments of a communicator over TCP or None, and an
    all-gather of bytes or None."""
    if isinstance(communicator, str) and communicator != "env":
        raise Error(f"communicator: {communicator!r} is no way to meet; 'env' and feedline.Tcp(address, port) are")
    group, known = group_of(communicator), ranks_of(communicator)
    if known is not None:
        advice = "for another group of ranks, give the communicator of that group"
        must_agree(rank, world_size, known, "the communicator says rank", advice)
    if rank is None:
        rank, world_size = known or rank_of_environment()
    if communicator == "env" and world_size > 1:
        communicator = tcp_of_environment()
    tcp = communicator._arguments() if isinstance(communicator, Tcp) else None
    return rank, world_size, tcp, None if group is None else _exchange_of(group)


def must_agree(rank, world_size, found, says, advice):
    """Raises Error if the rank and the world size that were asked for are not those that were found. Both are None if
    nobody asked, and a world size of 1 is a process that feeds itself alone."""
    if rank is not None and world_size != 1 and (rank, world_size) != found:
        raise Error(
            f"rank {rank} of {world_size} was asked for, but {says} {found[0]} of {found[1]}; leave out rank and "
            f"world_size, or, {advice}"
        )


def load_nccl():
    """Loads the NCCL that a framework in this environment brings, unless one is loaded. The system's may be too old for a
    framework that is imported later."""
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
    """Returns the rank and the number of ranks that a communicator knows: that of a process group or of mpi4py. None of
    others."""
    group = group_of(communicator)
    if hasattr(group, "Get_rank"):
        return group.Get_rank(), group.Get_size()
    if group is None or callable(group):
        return None
    try:
        import torch.distributed as dist

        rank, size = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise Error("communicator: this process is not in the process group; make the loader on its ranks alone")
        return rank, size
    except (ImportError, TypeError, ValueError, AttributeError):
        raise Error(
            f"communicator: {group!r} is no way to meet; give 'env', a feedline.Tcp, a torch.distributed process group, "
            "an mpi4py communicator, or a function"
        ) from None


def _exchange_of(group):
    """Returns the all-gather of bytes, which refuses what is no list of bytes."""
    all_gather = _all_gather_of(group)

    def exchange(mine):
        everyone = all_gather(mine)
        if not isinstance(everyone, (list, tuple)):
            found = f"a {type(everyone).__name__}"
        elif wrong := [type(one).__name__ for one in everyone if not isinstance(one, bytes)]:
            found = f"a list in which there is a {wrong[0]}"
        else:
            return everyone
        raise Error(
            f"communicator: the exchange of bytes returned {found}; it must return a list of the bytes objects that "
            "the ranks gave to it, in their order"
        )

    return exchange


def _all_gather_of(group):
    """Returns the all-gather of an mpi4py communicator or a torch.distributed process group; a function is one
    already."""
    if hasattr(group, "Get_rank"):
        return group.allgather
    if callable(group):
        return group
    import torch
    import torch.distributed as dist

    # The exchange runs on a thread of its own, and the current GPU is that of a thread.
    device = torch.cuda.current_device() if dist.get_backend(group) == "nccl" else None

    def all_gather(mine):
        everyone = [None] * dist.get_world_size(group)
        with torch.cuda.device(device) if device is not None else contextlib.nullcontext():
            dist.all_gather_object(everyone, mine, group=group)
        return everyone

    return all_gather
