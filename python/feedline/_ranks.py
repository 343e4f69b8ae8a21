"""Which rank this process is, and how ranks find each other."""

import contextlib
import os
import re
from typing import NamedTuple

from ._errors import Error


class Tcp(NamedTuple):
    """A communicator over TCP. `address` is a name of rank 0's machine that the others can reach; rank 0 listens at
    `port` until all ranks have come. Times are in seconds. Nothing is encrypted: use it in trusted networks."""

    address: str
    port: int
    start_timeout: float = 600
    timeout: float = 30

    def _arguments(self):
        return (self.address, self.port, round(self.start_timeout * 1000), round(self.timeout * 1000))


_NAMES = (
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "MPICH"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
)


def rank_of_environment(environ=os.environ):
    """Returns (rank, world size) as torchrun, mpirun or srun have set them, or (0, 1)."""
    for rank, size, launcher in _NAMES:
        if rank in environ and size in environ:
            try:
                return int(environ[rank]), int(environ[size])
            except ValueError:
                raise Error(f"{rank}={environ[rank]} {size}={environ[size]}: {launcher} sets numbers here") from None
    return 0, 1


def tcp_of_environment(environ=os.environ):
    """Returns the Tcp that the launcher's variables describe: MASTER_ADDR and MASTER_PORT + 1 (the launcher itself
    listens at MASTER_PORT), or the first machine of a Slurm job at a port made from its number."""
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if address and port:
        if not port.isdigit() or not 0 < int(port) < 65535:
            raise Error(f"MASTER_PORT={port} is no port")
        return Tcp(address, int(port) + 1)
    nodes, job = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST"), environ.get("SLURM_JOB_ID", "0")
    if nodes and job.isdigit():
        return Tcp(_first_node(nodes), 20000 + int(job) % 10000)
    raise Error(
        "communicator='env': neither MASTER_ADDR and MASTER_PORT nor SLURM_NODELIST are set; start the ranks with "
        "torchrun or srun, or pass communicator=feedline.Tcp(address, port)"
    )


def _first_node(nodes):
    """Returns the first name of a Slurm node list: "gpu[003-007,9],login" is gpu003."""
    match = re.match(r"([^,\[]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return match.group(1) + (match.group(2) or "") + (match.group(3) or "")


def exchange_of_group(group):
    """Returns the all-gather of bytes over a torch.distributed process group."""
    import torch
    import torch.distributed as dist

    # The exchange runs on a thread of its own, and the current GPU is that of a thread.
    device = torch.cuda.current_device() if dist.get_backend(group) == "nccl" else None

    def exchange(mine):
        everyone = [None] * dist.get_world_size(group)
        with torch.cuda.device(device) if device is not None else contextlib.nullcontext():
            dist.all_gather_object(everyone, mine, group=group)
        return everyone

    return exchange
