"""The Loader: an iterable of batches."""

import atexit
import json
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Self

from . import _feedline, _log
from ._arguments import flag, integer, number, one_of, secret
from ._batch import Element, assembler
from ._errors import Error
from ._pipeline import Pipeline, pipeline_of
from ._ranks import Tcp, group_of, load_nccl, meeting_of, place_of_process, ranks_of

_open = weakref.WeakSet()
_INT, _EPOCHS = range(2**31), range(2**63)
_VERSION = 1  # of the dict that state_dict() returns; the text in it has its own version
_PARTS = "leave out data_parallel_rank and data_parallel_size if each rank gets a part of its own"


@atexit.register
def _close_all():
    for loader in list(_open):
        loader.close()


class _Progress:
    """Shows how far the counting is, with tqdm if it is installed, and on a terminal otherwise."""

    def __init__(self):
        self._bar = None

    def __call__(self, done, total):
        if self._bar is None:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                self._bar = False
            else:
                self._bar = tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, desc="counting records")
        if self._bar:
            self._bar.update(done - self._bar.n)
        elif sys.stderr.isatty():
            print(f"\rcounting records: {100 * done // max(total, 1)} %", end="", file=sys.stderr, flush=True)

    def close(self):
        if self._bar:
            self._bar.close()
        elif self._bar is False and sys.stderr.isatty():
            print(file=sys.stderr)


class _Lost:
    """Takes the place of a feeder that could not be made. Each use of it raises an Error that says why."""

    def __init__(self, why):
        self._why = why

    def __getattr__(self, _):
        raise Error(self._why, "stalled")


class Loader:
    """Feeds this process: `for batch in loader` is an epoch of batches, and iterating again is the next epoch.

    Args:
        pipeline: a file, text, a feedline.Pipeline, or a list of these, each laid over those before it.
        devices: "host" (the default; "cpu" is the same), "host:4", "cuda", "cuda:0,2", "cuda:GPU-5a1b" (by UUID) or
            "auto"; a torch.device, or a list of them. With several devices each step is a list of batches, one for
            each device.
        rank, world_size: this process's number, and the number of processes that feed one training. Left out, those
            of the process group or mpi4py communicator; else those of torch's process group or of jax.distributed, if
            the process is in one; else those that torchrun, horovodrun, TF_CONFIG, mpirun or srun have set; else 0 and
            1. Each iteration looks again. If the process has become a rank meanwhile, the loader becomes that rank as
            long as no step was taken, and is an Error afterwards. It is also an Error if the process is one of several,
            and nothing says which.
        communicator: how ranks exchange messages. None: not at all, and each rank counts the data by itself. "env":
            over TCP, at the address that the launcher's variables name. A feedline.Tcp. A torch.distributed process
            group, an mpi4py communicator, or a function that takes bytes and returns the bytes of all ranks: then ranks
            exchange messages only while they start, to compare their pipelines and data.
        gpu_communicator: "nccl": rows that ranks share (`distribute` REPLICATE or SCATTER) go from GPU to GPU. Each
            rank has one GPU, and a communicator over TCP. Rows arrive on torch's current stream if torch is imported,
            else on CUDA's legacy default stream, in the order of the steps. NCCL is the process's, or the system's.
        threads: the number of threads; 0 chooses it by the CPUs that this process may use.
        start_epoch: the epoch to begin with.
        as_tuple: names of outputs, or "@valid" for the mask; each batch is then the tuple of these tensors.
        backend: "auto", "uring" or "pread". direct: whether to read past the page cache; None decides by size.
        deliver_before_error: whether the good rows before an error are delivered as a shorter batch.
        data_parallel_rank, data_parallel_size: the number of the part of each batch that this rank is given, and the
            number of parts. Left out: the whole batch if `distribute` is REPLICATE, else part `rank` of `world_size`.
        monitor: the address at which the loader's monitor answers HTTP: "127.0.0.1:9400", or "unix:/run/feed.sock",
            which only this user can open. It serves a page for browsers, the report at /report.json, and metrics for
            Prometheus at /metrics. With port 0 it takes a free port, which is in `monitor_address`. With any other
            port, rank r listens at that port plus r.
        monitor_token: the password of the monitor, for the user "feedline". An address that other machines can reach
            needs one.
        progress: whether to show how far the counting of the data is. None: only if standard error is a terminal.
        overrides: fields that are laid over the pipeline: batch={"global_batch_size": 512}, seed=7.

    A batch is yours for as long as you keep it. If you keep so many that the feed has no memory left for the next one,
    the next batches come in memory of their own, at the price of a copy; a warning says so once, and
    report()["batches_copied"] counts them.

    Raises feedline.Error. A loader may be used by one thread at a time, belongs to the process that made it, and can be
    pickled. Unpickling makes another loader of the same pipeline and options, which begins with `start_epoch`. It has
    the attributes that a subclass or the program has added.
    """

    def __init__(
        self,
        pipeline: Pipeline | str | os.PathLike | list,
        *,
        devices: Any = "host",
        rank: int | None = None,
        world_size: int | None = None,
        communicator: Tcp | str | Callable[[bytes], list[bytes]] | Any = None,
        gpu_communicator: str | None = None,
        threads: int = 0,
        start_epoch: int = 0,
        as_tuple: tuple[str, ...] | None = None,
        backend: str = "auto",
        direct: bool | None = None,
        deliver_before_error: bool = False,
        data_parallel_rank: int = -1,
        data_parallel_size: int = 0,
        monitor: str | None = None,
        monitor_token: str | None = None,
        progress: bool | None = None,
        **overrides: Any,
    ):
        others = set(vars(self))  # attributes that a subclass has set before
        self._feeder, self._closed = None, False
        self.pipeline = pipeline_of(pipeline, overrides)
        one_of("backend", backend, "auto", "uring", "pread")
        if (rank is None) != (world_size is None):
            raise Error("only one of rank and world_size is given; give both of them or neither")
        if rank is not None:
            advice = "leave out rank and world_size to use the values that the launcher has set"
            rank = integer("rank", rank, _INT, advice)
            world_size = integer("world_size", world_size, _INT[1:], advice)
        start_epoch = integer("start_epoch", start_epoch, _EPOCHS, "epochs are counted from 0")
        flag("progress", progress, or_none=True)
        if as_tuple is not None and (isinstance(as_tuple, str) or not isinstance(as_tuple, Iterable)):
            raise Error(f"as_tuple: {as_tuple!r} is not a tuple of names; write ('image', 'label') or ('image',)")
        if gpu_communicator not in (None, "nccl"):
            raise Error(
                f"gpu_communicator: {gpu_communicator!r} is not supported; give 'nccl', or leave out gpu_communicator"
            )
        self._communicator, self._gpu_communicator = communicator, gpu_communicator
        devices = ",".join(map(str, devices)) if isinstance(devices, (list, tuple)) else str(devices)
        devices = devices.replace(",cuda:", ",").replace("cpu", "host")
        self._arguments = dict(
            devices=devices,
            threads=integer("threads", threads, _INT, "0 chooses a number by the CPUs that this process may use"),
            start_epoch=start_epoch,
            backend=backend,
            direct=flag("direct", direct, or_none=True),
            deliver_before_error=flag("deliver_before_error", deliver_before_error),
            data_parallel_rank=integer("data_parallel_rank", data_parallel_rank, range(-1, 2**31), _PARTS),
            data_parallel_size=integer("data_parallel_size", data_parallel_size, _INT, _PARTS),
            monitor=_text("monitor", monitor),
            monitor_token=secret("monitor_token", monitor_token),
        )
        self._progress = progress
        self.as_tuple = None if as_tuple is None else tuple(as_tuple)
        self._read = False  # whether a step was asked for
        self._placed = False  # whether a state was loaded, or weights were set
        self._process = os.getpid()
        self._follows = rank is None and ranks_of(communicator) is None  # whether each iteration asks for the rank
        self._open(self._meeting(rank, world_size))
        self._elements = [Element(*element) for element in self._feeder.elements()]
        names = [element.name for element in self._elements]
        for name in self.as_tuple or ():
            if name not in [*names, "@valid"]:
                raise Error(f"as_tuple: the pipeline has no output {name!r}; its outputs are {', '.join(names)}")
        self._assemble = assembler(self._elements)
        self._replicas = self._feeder.replicas()
        self._epoch, self._step = start_epoch, 0  # the present epoch, and the steps of it that the program has taken
        self._iterated = False  # whether the loader was iterated since its position was set
        self._loaded = False  # whether a state was loaded, and the loader was not iterated since
        self._failed = False  # whether the feed has ended with an Error since its position was set
        self._generation = 0  # an iterator of an older generation gives no more steps
        self._begun = 0  # the generation of the iteration that has begun last
        self._warned = False
        self._own = {"_own", *vars(self)} - others
        _open.add(self)

    def _meeting(self, rank, world_size):
        """Returns the rank, the number of ranks, and how they meet (meeting_of()). If rank and world size are None,
        they are those that this process has by now."""
        return meeting_of(self._communicator, rank, world_size)

    def _place(self):
        """Returns the Place of this process (its rank and the number of ranks), or None. Called before the first step
        of an iteration."""
        return place_of_process()

    def _open(self, meeting):
        """Makes the feeder. `meeting` is what _meeting() has returned."""
        rank, world_size, tcp, exchange = meeting
        if self._gpu_communicator and world_size > 1 and tcp is None:
            raise Error(
                "gpu_communicator: several ranks also need a communicator over TCP; give communicator='env' or "
                "communicator=feedline.Tcp(address, port)"
            )
        self._arrives = self._gpu_communicator is not None and tcp is not None
        if self._arrives:
            load_nccl()
        self._arguments.update(rank=rank, world_size=world_size, tcp=tcp, nccl=self._arrives)
        show = self._progress or (self._progress is None and sys.stderr and sys.stderr.isatty())
        shown = _Progress() if show else None
        try:
            self._feeder = _feedline.Feeder(
                self.pipeline._message, exchange=exchange, progress=shown, **self._arguments
            )
        except Error as error:
            raise self.pipeline._explain(error) from None
        finally:
            if shown:
                shown.close()

    def _follow(self):
        """Makes the loader feed the rank that this process is by now, if the loader was not given a rank, and no step
        was asked for yet. A trainer may start its processes, and a program may initialise their process group, after
        the loader is made. Raises Error if that happens too late, if this process is one of several and nothing says
        which, or if it is a worker of a DataLoader."""
        worker = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", bool)()
        if self._follows and worker and worker.num_workers > 1:
            raise Error(
                f"this loader is iterated in worker {worker.id} of {worker.num_workers} of a torch DataLoader, and "
                "each worker would get all of the data; give the trainer the loader itself, which has threads of its "
                "own, or make the DataLoader with num_workers=0"
            )
        place = self._place() if self._follows else None
        made = self._arguments["rank"], self._arguments["world_size"]
        if place is None or (place.allows(*made) and made[1] > 1) or os.getpid() != self._process:
            return  # in a forked child, the next call of the feeder raises the Error that says so
        if not place.is_whole():
            raise place.unknown()
        if place[:2] == made or self._closed:
            return
        if self._read:
            raise Error(
                f"this loader has already read as rank {made[0]} of {made[1]}, but now {place.said} says rank "
                f"{place.rank} of {place.world_size}; begin to iterate the loader after the framework's "
                "process group is initialised, or give the Loader rank and world_size"
            )
        state = self._feeder.get_state(self._epoch, self._step) if self._placed else None
        self._feeder.close()
        try:
            self._open(self._meeting(place.rank, place.world_size))
            if state is not None:
                self._feeder.set_state(state, False)
            elif self._epoch != self._arguments["start_epoch"]:
                self._feeder.set_epoch(self._epoch)
        except Exception as error:
            became = f"rank {place.rank} of {place.world_size}"
            self._feeder = _Lost(f"the loader could not become {became}: {error}; make a new Loader")
            self._closed = True
            raise

    # Epochs

    def __iter__(self) -> Iterator[Any]:
        """Begins an epoch: the next one, if the present one has been iterated, however far. After load_state_dict() or
        set_epoch() it begins at the position that was set. These may also be called after iter(), before the first step
        is taken, because Lightning makes its iterators before it sets the epoch.

        A loader is at one position at a time. If another iteration begins, or the position is set, an iterator that has
        not given the last step of its epoch raises Error when it is asked for the next step.

        Each step is a feedline.Batch; with `as_tuple` it is the tuple of these tensors. With several devices it is a
        list of these, one for each device. (The type is Any because the arguments decide.)"""
        return self._steps()

    def _begin(self):
        """Moves the loader to the position at which an iteration begins."""
        if self._iterated:
            self._go_to(self._epoch + 1)

    def _steps(self):
        self._follow()
        self._begin()
        self._generation += 1
        generation = self._begun = self._generation
        self._iterated, self._loaded = True, False
        while generation == self._generation:
            epoch, step = self._epoch, self._step
            batches = self._next()
            if batches is None:
                return
            yield batches
        if step + 1 != self._feeder.steps_per_epoch():
            raise Error(
                f"this iteration had taken step {step} of epoch {epoch} when another iteration of the loader began, or "
                "when load_state_dict() or set_epoch() moved the loader; a loader is at only one step at a time: make "
                "a second Loader to iterate at the same time"
            )

    def _next(self):
        """Returns the next step, or None at the end of the epoch."""
        self._read = True
        try:
            given = self._take()
        except Error as error:
            self._failed = True
            raise self.pipeline._explain(error) from None
        if given[0] is None:
            _log.flush()
            self._epoch, self._step, self._iterated = self._epoch + 1, 0, False
            return None
        batches = [self._present(self._assemble(one)) for one in given]
        if self.as_tuple is not None:
            batches = [tuple(batch.valid_mask if n == "@valid" else batch[n] for n in self.as_tuple) for batch in batches]
        self._step += 1
        if not self._warned and self._feeder.batches_copied():
            self._warned = True
            _warn(
                "the program keeps more batches than the feed has memory for, so the next batches are copied; drop "
                "batches that are no longer used, or raise parallelism.host_prefetch (on GPUs "
                "parallelism.device_prefetch); if the batches are kept on purpose, nothing need be changed"
            )
        return batches[0] if self._replicas == 1 else batches

    def _present(self, batch):
        """Returns the batch as the user gets it. A framework's loader makes its own tensors here."""
        return batch

    def _take(self):
        if self._arrives:
            return [self._feeder.next(0, _torch_stream(self._feeder.device(0)))]
        return [self._feeder.next(replica) for replica in range(self._replicas)]

    def _go_to(self, epoch):
        """Moves the loader to the beginning of an epoch. If that is the next epoch, and the last step of the present
        one was taken, only takes the end of the present epoch. Then the batches that were prefetched are not lost."""
        if epoch == self._epoch + 1 and self._at_end() and not self._failed:
            try:
                if all(given is None for given in self._take()):  # the feed is now at the next epoch
                    return self._stand_at(epoch)
            except Error as error:  # a record after the last whole step is bad; the next call does not come here
                self._failed = True
                raise self.pipeline._explain(error) from None
        self._feeder.set_epoch(epoch)
        self._stand_at(epoch)

    def _stand_at(self, epoch):
        self._epoch, self._step, self._iterated, self._loaded, self._failed = epoch, 0, False, False, False
        self._generation += 1

    def _at_end(self):
        return self._step > 0 and self._step == self._feeder.steps_per_epoch()

    def set_epoch(self, epoch: int) -> None:
        """Moves the loader to the beginning of an epoch. Does nothing if a state of this epoch has been loaded and not
        iterated yet, so that a trainer may load its state and then set its epoch. (If the state is that of the end of
        the epoch, an iteration then has no steps.)"""
        epoch = integer("set_epoch", epoch, _EPOCHS, "epochs are counted from 0")
        self._generation += 1
        if epoch == self._epoch and self._loaded:
            self._iterated = False
        elif epoch != self._epoch or self._iterated:
            self._go_to(epoch)

    @property
    def epoch(self) -> int:
        """The epoch that is being iterated, or that the next iteration will begin."""
        return self._epoch + (self._loaded and self._iterated)  # a state at an end begins the next epoch

    @property
    def step(self) -> int:
        """The number of steps of `epoch` that the program has taken."""
        return 0 if self._loaded and self._iterated else self._step

    @property
    def sampler(self) -> "Loader":
        """The loader itself, for trainers that call loader.sampler.set_epoch()."""
        return self

    batch_sampler = None  # trainers that look for a sampler also look here, where a DataLoader may have one

    def __len__(self) -> int:
        """The number of steps in an epoch. Raises TypeError if it has no end, or is not known yet (index.mode LAZY)."""
        steps = self._feeder.steps_per_epoch()
        if steps < 0:
            raise TypeError(
                "the number of steps is not known: the epoch has no end, or index.mode is LAZY and its first epoch is "
                "not done"
            )
        return steps

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> NoReturn:
        """Raises Error, because a loader is iterated. A DataLoader of torch that is made of one looks here."""
        raise Error(
            "a loader cannot be indexed, because the loader itself decides the order of its steps; write "
            "`for batch in loader`, or give the loader to the trainer without a torch DataLoader around it"
        )

    # States

    def state_dict(self, *, epoch: int | None = None, step: int | None = None) -> dict:
        """Returns the position of the program in the data, as a dict for a checkpoint: after the steps that it has
        taken. With `epoch` or `step` it is the position after the first `step` steps of that epoch. This is for
        programs in which something, such as a prefetcher, takes steps before the program uses them. If only one of the
        two is given, `epoch` is the present one, and `step` is 0.

        A state is the same on all ranks, and any number of ranks may continue from it."""
        if epoch is None and step is None:
            epoch, step, steps = self._epoch, self._step, self._feeder.steps_per_epoch()
            step = min(step, steps) if steps >= 0 else step
        else:
            epoch = integer("epoch", self.epoch if epoch is None else epoch, _EPOCHS, "epochs are counted from 0")
            step = integer("step", 0 if step is None else step, _EPOCHS, "give how many steps of the epoch are done")
        return {"feedline": self._feeder.get_state(epoch, step), "version": _VERSION}

    def load_state_dict(self, state: dict, accept_changes: bool = False) -> None:
        """Moves the loader to the position that state_dict() has returned, without reading the data before it. Raises
        Error if the data or the pipeline are not those of the state, unless `accept_changes` is true."""
        text = state.get("feedline") if isinstance(state, dict) else None
        if not isinstance(text, str):
            raise Error(
                "load_state_dict: the value is not a state of a feedline.Loader, which is a dict with a string under "
                "the key 'feedline'; give what state_dict() has returned"
            )
        if state.get("version", _VERSION) != _VERSION:
            raise Error(
                f"load_state_dict: the state has version {state['version']!r}, but this feedline reads only version "
                f"{_VERSION}; use the version of feedline that wrote the state"
            )
        self._feeder.set_state(text, flag("accept_changes", accept_changes))
        place = json.loads(text)
        self._epoch, self._step = int(place["epoch"]), int(place["step"])
        self._generation += 1
        self._iterated, self._loaded, self._failed, self._placed = self._at_end(), True, False, True

    def set_weights(self, weights: Iterable[float]) -> None:
        """Sets new weights of a mixture, one for each source, from the next epoch on. Call it between epochs."""
        advice = "give a list with one number for each source"
        if not isinstance(weights, Iterable):
            raise Error(f"set_weights: {weights!r} is not a list; {advice}")
        weights = [number("set_weights", weight, advice) for weight in weights]
        if self._iterated and self._at_end():
            self._go_to(self._epoch + 1)
        self._feeder.set_weights(weights)
        self._placed = True

    # What the loader is and has done

    def elements(self) -> list[Element]:
        """Returns the outputs that every batch has, as a list of feedline.Element. They are known before the first
        batch."""
        return list(self._elements)

    def report(self) -> dict:
        """Returns what the loader has done, as a dict; docs/questions.md lists its keys. `batches_copied` counts the
        batches that were copied into memory of their own, because the program keeps too many."""
        return {**json.loads(self._feeder.report_json()), "batches_copied": self._feeder.batches_copied()}

    @property
    def monitor_address(self) -> str:
        """The address of the monitor: "http://127.0.0.1:9400/" or "unix:/run/feed.sock"; empty if there is none."""
        return self._feeder.monitor_address()

    def plan(self) -> str:
        """Returns the plan as text: stages, counts, and every byte of memory."""
        return self._feeder.plan_text()

    @property
    def samples_per_epoch(self) -> int:
        """The number of good samples in an epoch; -1 if it is not known."""
        return self._feeder.samples_per_epoch()

    @property
    def files(self) -> list[str]:
        """The paths of the files, indexed by the numbers that `@file` gives."""
        return self._feeder.files()

    def __repr__(self):
        if self._closed:
            return "feedline.Loader(closed)"
        names = ", ".join(element.name for element in self._elements)
        return f"feedline.Loader({names}; {self._feeder.steps_per_epoch()} steps an epoch)"

    # Closing and pickling

    def close(self) -> None:
        """Ends the feed and frees its memory, except that of batches that the program still keeps."""
        if self._feeder is not None and not self._closed:
            self._closed = True
            self._feeder.close()
            _log.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        arguments = {k: v for k, v in self._arguments.items() if k not in ("tcp", "nccl")}
        if group_of(self._communicator) is not None:
            raise TypeError(
                "a loader whose communicator is a process group, an mpi4py communicator or a function cannot be "
                "pickled; make the loader in the process that uses it"
            )
        if self._follows and arguments["world_size"] == 1:  # in another process it may be one of several ranks
            arguments.update(rank=None, world_size=None)
        arguments.update(
            communicator=self._communicator,
            gpu_communicator=self._gpu_communicator,
            progress=self._progress,
            as_tuple=self.as_tuple,
        )
        others = {name: value for name, value in vars(self).items() if name not in self._own}
        return (_unpickle, (type(self), self.pipeline, arguments, self._follows), others or None)


def _text(name, value):
    if value is not None and not isinstance(value, str):
        raise Error(f"{name}: {value!r} is not a string")
    return value or ""


def _warn(text):
    """Warns once. If the program turns warnings into errors, writes a line to standard error, and raises nothing."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except RuntimeWarning:
        print(f"feedline: warning: {text}", file=sys.stderr)


def _torch_stream(ordinal):
    """Returns the number, as in DLPack, of torch's current stream; that of the legacy default stream without torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream(ordinal).cuda_stream or 1 if torch and torch.cuda.is_available() else 1


def _unpickle(kind, pipeline, arguments, follows):
    """Makes a loader from a pickle. Attributes that a subclass or the program has added are in the pickle, as those of
    other objects are, so __init__() of the subclass is not called. A loader that was not given a rank has at first the
    rank with which it was pickled; if `follows`, each iteration asks again which rank this process is."""
    loader = kind.__new__(kind)
    Loader.__init__(loader, pipeline, **arguments)
    if follows:
        loader._follows = True
    return loader
