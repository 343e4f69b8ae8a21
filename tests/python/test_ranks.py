"""Ranks: how they find each other, what they share, and how a wait for them ends."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import free_port, run_ranks

import feedline
from feedline import _ranks

FEED = """
import json, sys, numpy as np, feedline
loader = feedline.Loader(feedline.Pipeline(sys.argv[1]), communicator=COMMUNICATOR, shuffle={"buffer_size": 50})
print(json.dumps([np.asarray(batch["n"]).tolist() for batch in loader]))
"""


def numbers_of(outputs):
    return sorted(n for output in outputs for step in json.loads(output) for n in step)


def test_ranks_of_processes_meet_over_tcp(numbers):
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", FEED.replace("COMMUNICATOR", "'env'"), str(numbers)],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port - 1),
            },
        )
        for rank in range(2)
    ]
    assert numbers_of(rank.communicate(timeout=120)[0] for rank in ranks) == list(range(50))


def under_mpirun(code, folder, *arguments):
    """Runs two ranks, and returns what each has printed. Each prints into a file, because mpirun mixes their lines."""
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    code = f"import os, sys; sys.stdout = open(os.path.join({str(folder)!r}, str(os.getpid()) + '.out'), 'w')\n{code}"
    done = subprocess.run(
        ["mpirun", "-n", "2", "--oversubscribe", sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [file.read_text() for file in folder.glob("*.out")]


def test_ranks_that_mpirun_has_started_here(numbers, tmp_path):
    assert numbers_of(under_mpirun(FEED.replace("COMMUNICATOR", "'env'"), tmp_path, numbers)) == list(range(50))


@pytest.mark.parametrize("communicator", ["MPI.COMM_WORLD", "feedline.Tcp(exchange=MPI.COMM_WORLD)"])
def test_ranks_of_mpi4py(numbers, tmp_path, communicator):
    pytest.importorskip("mpi4py")
    code = "from mpi4py import MPI" + FEED.replace("COMMUNICATOR", communicator)
    assert numbers_of(under_mpirun(code, tmp_path, numbers)) == list(range(50))


def exchanges(count):
    """Returns an all-gather of bytes for each of as many threads."""
    barrier, given = threading.Barrier(count), [None] * count

    def exchange_of(rank):
        def exchange(mine):
            given[rank] = mine
            barrier.wait()
            everyone = list(given)
            barrier.wait()
            return everyone

        return exchange

    return [exchange_of(rank) for rank in range(count)]


# Rows travel only by a communicator.
@pytest.mark.parametrize("over_tcp, mode", [(False, "SPLIT"), (True, "SPLIT"), (True, "REPLICATE")])
def test_an_exchange_in_python(numbers, over_tcp, mode):
    meet, found, done = exchanges(2), [None, None], threading.Barrier(2)

    def run(rank):
        loader = feedline.Loader(
            numbers,
            rank=rank,
            world_size=2,
            communicator=feedline.Tcp(exchange=meet[rank]) if over_tcp else meet[rank],
            distribute={"mode": mode},
        )
        found[rank] = [n for batch in loader for n in np.asarray(batch["n"]).tolist()]
        done.wait(timeout=60)  # a loader that goes ends the feed of the other rank

    run_ranks(2, run)
    if mode == "REPLICATE":
        assert found[0] == found[1] == list(range(50))
    else:
        assert sorted(found[0] + found[1]) == list(range(50))


@pytest.mark.parametrize(
    "returned, found",
    [
        ("text", "a value of type str"),
        (None, "a value of type NoneType"),
        (["text"], "a list that contains a value of type str"),
        ([b"", 5], "contains a value of type int"),
    ],
)
@pytest.mark.parametrize("over_tcp", [False, True])
def test_an_exchange_that_returns_something_else(numbers, returned, found, over_tcp):
    exchange = lambda mine: returned
    communicator = feedline.Tcp(exchange=exchange) if over_tcp else exchange
    with pytest.raises(feedline.Error, match=f"exchanges bytes returned .*{found}; it must return a list"):
        feedline.Loader(numbers, rank=0, world_size=2, communicator=communicator)


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_while_a_rank_waits_for_others(numbers, rank):
    code = """
import sys, feedline
print("begins", flush=True)
try:
    feedline.Loader(feedline.Pipeline(sys.argv[1]), rank=int(sys.argv[2]), world_size=2,
                    communicator=feedline.Tcp("127.0.0.1", int(sys.argv[3])))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(numbers), str(rank), str(free_port())], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begins\n"
    while len(os.listdir(f"/proc/{process.pid}/task")) < 3:  # until another thread than that of the log waits
        pass
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert process.wait(timeout=60) == 0


def test_what_cannot_be_pickled(numbers):
    loader = feedline.Loader(numbers, rank=0, world_size=1, communicator=lambda mine: [mine])
    with pytest.raises(TypeError, match="mpi4py communicator or a function"):
        pickle.dumps(loader)


def test_what_is_refused(numbers):
    for arguments, message in [
        ({"communicator": "mpi"}, "is not a communicator"),
        ({"communicator": 5}, "is not a communicator"),
        ({"communicator": feedline.Tcp("localhost", 99999)}, "from 0 to 65535"),
        ({"communicator": feedline.Tcp("localhost", "x")}, "Tcp.port: 'x' is not an integer from 0 to 65535"),
        ({"communicator": feedline.Tcp(5, 1)}, "Tcp.address: 5 is not a string"),
        ({"communicator": feedline.Tcp("localhost", 1, timeout="x")}, "Tcp.timeout: 'x' is not a number; give the time in seconds"),
        ({"communicator": feedline.Tcp("localhost", 1, float("inf"))}, "Tcp.start_timeout: inf is not a number of"),
        ({"communicator": feedline.Tcp("localhost", 1, token=b"0123456789abcdef")}, "Tcp.token: the value is of type bytes; give"),
        ({"monitor_token": b"secret"}, "monitor_token: the value is of type bytes; give a string"),
        ({"start_epoch": -1}, "counted from 0"),
        ({"rank": 0}, "only one of rank and world_size is given"),
        ({"gpu_communicator": "gloo"}, "'gloo' is not supported; give 'nccl'"),
        ({"gpu_communicator": "nccl", "rank": 0, "world_size": 2}, "communicator=feedline.Tcp"),
    ]:
        with pytest.raises(feedline.Error, match=message):
            feedline.Loader(numbers, **arguments)


def place(environment):
    """Returns the rank and the world size that the environment says; None if it says nothing."""
    found = _ranks.place_of_environment(environment)
    return None if found is None else found[:2]


def test_the_environment():
    assert place({}) is None
    # A batch script that does not start its ranks with srun is one process.
    assert place({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None
    assert place({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}) == (3, 8)
    assert place({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}) == (1, 2)
    slurm = {"SLURM_NODELIST": "gpu[003-007,9],login", "SLURM_JOB_ID": "7"}
    assert _ranks.tcp_of_environment(slurm)[:2] == ("gpu003", 20007)
    assert _ranks.tcp_of_environment({**slurm, "SLURM_STEP_NUM_NODES": "1"})[:2] == ("localhost", 20007)
    named = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "WORLD_SIZE": "8"}
    for local, address in (("8", "localhost"), ("4", "node0")):
        assert _ranks.tcp_of_environment({**named, "LOCAL_WORLD_SIZE": local})[:2] == (address, 29501)
    assert _ranks.tcp_of_environment(named)[:2] == ("node0", 29501)
    assert "sesame" not in repr(feedline.Tcp("node0", 1, token="open-sesame-of-the-ranks"))
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "1234"}
    assert _ranks.tcp_of_environment(mpi).address == "localhost"
    with pytest.raises(feedline.Error, match="Tcp"):  # ranks on other machines
        _ranks.tcp_of_environment({**mpi, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    for rank in "x", "2", "-1":
        with pytest.raises(feedline.Error, match=f"RANK={rank} WORLD_SIZE=2: RANK must be a number from 0 to WORLD_SIZE - 1, as torchrun sets it"):
            place({"RANK": rank, "WORLD_SIZE": "2"})
    with pytest.raises(feedline.Error, match="MASTER_ADDR"):
        _ranks.tcp_of_environment({})


def tf_config(kind, index, **counts):
    """Returns the environment of a task in a cluster of TensorFlow."""
    cluster = {name: [f"host{i}:1" for i in range(count)] for name, count in counts.items()}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def test_the_cluster_of_tensorflow():
    assert [place(tf_config("worker", i, worker=2)) for i in range(2)] == [(0, 2), (1, 2)]
    cluster = {"chief": 1, "worker": 2, "evaluator": 1}
    assert place(tf_config("chief", 0, **cluster)) == (0, 3)
    assert place(tf_config("worker", 1, **cluster)) == (2, 3)
    assert place(tf_config("evaluator", 0, **cluster)) == (0, 1)  # which feeds itself
    assert place(tf_config("worker", 0, worker=1)) is None
    for wrong in tf_config("worker", 2, worker=2), tf_config("worker", 0, worker=2, ps=1), {"TF_CONFIG": "[1]"}:
        assert place(wrong)[0] is None, wrong


def test_half_an_environment():
    assert place({"WORLD_SIZE": "2", "LOCAL_RANK": "1"}) == (None, 2)  # what Lightning sets for the processes it starts
    assert place({"RANK": "1"}) == (1, None)
    assert place({"SLURM_PROCID": "3"}) == (3, None)
    assert place({"RANK": "0"}) is None and place({"WORLD_SIZE": "1"}) is None and place({"RANK": "general"}) is None
    assert place({"WORLD_SIZE": "4", **names(1, 4, "Open MPI")}) == (1, 4)  # the other half is there
    assert place({"WORLD_SIZE": "8", **names(1, 4, "Open MPI")}) == (None, 8)  # one of two processes in this task


HALVES = [{"WORLD_SIZE": "2"}, {"RANK": "1"}, {"HOROVOD_SIZE": "2"}, tf_config("ps", 0, ps=1, worker=2)]


@pytest.mark.parametrize("half", HALVES)
def test_one_of_several_that_does_not_know_which(numbers, monkeypatch, half):
    for name, value in half.items():
        monkeypatch.setenv(name, value)
    loader = feedline.Loader(numbers)
    assert len(loader) == 5  # the steps of all ranks are as many
    with pytest.raises(feedline.Error, match=r"this process is one of several, but its rank or the number of ranks is not known\. Initialise"):
        next(iter(loader))
    alone = feedline.Loader(numbers, rank=0, world_size=1)
    assert sum(batch.rows for batch in alone) == 50
    with pytest.raises(feedline.Error, match="one of several"):  # these would meet while they start
        feedline.Loader(numbers, communicator="env")


def test_a_loader_becomes_the_rank_of_its_process(numbers, monkeypatch):
    """The process is told its rank after the loader is made, and before it is iterated."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    shuffled = numbers.shuffle(50, seed=3)
    whole = feedline.Loader(shuffled, rank=0, world_size=1, start_epoch=1)
    wanted = [np.asarray(batch["n"]).tolist() for batch in whole]
    early = [feedline.Loader(shuffled, start_epoch=1) for _ in range(2)]
    pickled = pickle.dumps(early[0])
    resumed = feedline.Loader(shuffled)
    resumed.load_state_dict(whole.state_dict(epoch=3, step=2))
    parts = []
    for rank, loader in enumerate(early):
        monkeypatch.setenv("RANK", str(rank))
        parts.append([np.asarray(batch["n"]).tolist() for batch in loader])
        assert [np.asarray(batch["n"]).tolist() for batch in pickle.loads(pickled)] == parts[rank]
    assert [first + second for first, second in zip(*parts)] == wanted
    # The place of a state is kept, and a loader that has read as one rank stays that rank.
    assert [(batch.epoch, batch.step, batch.rows) for batch in resumed] == [(3, step, 5) for step in (2, 3, 4)]
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(feedline.Error, match="has already read as rank 1 of 2, but now RANK=0 WORLD_SIZE=2 says rank 0 of 2; begin"):
        next(iter(resumed))
    for name in "RANK", "WORLD_SIZE":
        monkeypatch.delenv(name)
    assert sum(batch.rows for batch in resumed) == 25  # nothing says otherwise


def test_a_loader_that_cannot_become_a_rank_says_why(numbers, monkeypatch):
    def fails(*_):
        raise feedline.Error("rank 1 did not come")

    loader = feedline.Loader(numbers)
    monkeypatch.setattr(loader, "_place", lambda: _ranks.Place(0, 2, "the launcher"))
    monkeypatch.setattr(loader, "_meeting", fails)
    with pytest.raises(feedline.Error, match="^rank 1 did not come$"):
        list(loader)
    for ask in (list, len, feedline.Loader.state_dict):
        with pytest.raises(feedline.Error, match="could not become rank 0 of 2: rank 1 did not come; make"):
            ask(loader)
    assert repr(loader) == "feedline.Loader(closed)"
    loader.close()


def names(rank, size, launcher="torchrun"):
    """Returns the variables that a launcher sets."""
    return {name: str(value) for *both, of in _ranks._NAMES if of == launcher for name, value in zip(both, (rank, size))}


@pytest.mark.parametrize("outer", ["Open MPI", "MPICH", "srun"])
def test_launchers_inside_of_each_other(outer):
    for inner, task in [((3, 8), (3, 8)), ((5, 8), (1, 2)), ((7, 8), (0, 1))]:  # the same; blocks of 4; one task
        assert place({**names(*inner), **names(*task, outer)}) == inner
    torchrun = {**names(0, 8), "TORCHELASTIC_RUN_ID": "none"}  # which asks a store for the numbers of its machines
    assert place({**torchrun, **names(1, 2, outer)}) == (0, 8)
    # mpirun starts its helpers by srun.
    assert place({**names(5, 8, "Open MPI"), **names(1, 2, "srun")}) == (5, 8)
    for wrong, task in [((0, 1), (3, 4)), ((0, 4), (3, 4)), ((0, 8), (1, 2)), ((2, 3), (1, 2))]:
        environment = {**names(*wrong), **names(*task, outer)}
        with pytest.raises(feedline.Error) as raised:
            place(environment)
        for name, value in environment.items():
            assert f"{name}={value}" in str(raised.value)
        assert f"{outer} has started this process as a different rank; unset RANK" in str(raised.value)


def test_variables_that_do_not_matter_are_not_looked_at(numbers, monkeypatch):
    for name, value in {**names(0, 1), **names(3, 4, "srun")}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(feedline.Error, match="SLURM_PROCID=3"):
        feedline.Loader(numbers)
    assert len(feedline.Loader(numbers, rank=0, world_size=1)) == 5


def test_ranks_that_share_rows_may_end_their_epochs_in_different_ways(numbers):
    """One rank asks for the end of the epoch; the other takes len() steps, and begins the next one."""
    meet, found, done = exchanges(2), [[], []], threading.Barrier(2)

    def run(rank):
        loader = feedline.Loader(
            numbers,
            rank=rank,
            world_size=2,
            communicator=feedline.Tcp(exchange=meet[rank]),
            distribute={"mode": "REPLICATE"},
        )
        for _ in range(3):
            steps = iter(loader)
            for batch in steps if rank == 0 else (next(steps) for _ in range(len(loader))):
                found[rank] += np.asarray(batch["n"]).tolist()
        done.wait(timeout=60)  # a loader that goes ends the feed of the other rank

    run_ranks(2, run)
    assert found[0] == found[1] == list(range(50)) * 3


def test_ctrl_c_while_set_epoch_waits_for_a_rank(numbers):
    port = free_port()
    code = """
import sys, feedline
rank = int(sys.argv[2])
loader = feedline.Loader(feedline.Pipeline(sys.argv[1]), rank=rank, world_size=2,
                         communicator=feedline.Tcp("127.0.0.1", int(sys.argv[3])), distribute={"mode": "REPLICATE"})
next(iter(loader))
if rank == 1:
    print("begins", flush=True)
    sys.stdin.read()
else:
    try:
        print("begins", flush=True)
        loader.set_epoch(3)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(numbers), str(rank), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.stdout.readline() == "begins\n"
    while open(f"/proc/{ranks[0].pid}/stat").read().split(")")[1].split()[0] != "S":  # until it waits
        pass
    ranks[0].send_signal(signal.SIGINT)
    assert ranks[0].stdout.readline() == "interrupted\n"
    ranks[1].stdin.close()
    for rank in ranks:
        rank.wait(timeout=60)
