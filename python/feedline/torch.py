"""Batches of torch tensors, for training loops of PyTorch, Lightning and Accelerate.

    from feedline.torch import Loader

    loader = Loader("chess.textproto", device="cuda")
    for epoch in range(10):
        for batch in loader:  # a dict of torch tensors
            loss = network(batch["board"])
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from . import _batch, _loader
from ._arguments import one_of
from ._batch import Ragged
from ._errors import Error
from ._pipeline import Pipeline
from ._ranks import meeting_of, must_agree, ranks_of


class Batch(_batch.Batch):
    """A feedline.Batch whose tensors, `valid_mask` among them, are torch's."""

    __slots__ = ()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """Returns the batch on another device. Lightning and Accelerate call this."""
        return _batch.mapped(self, Batch, lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """Returns a copy of the batch in pinned memory."""
        return _batch.mapped(self, Batch, torch.Tensor.pin_memory)


class Loader(_loader.Loader):
    """Feeds a training loop: each step is a Batch, a dict of torch tensors on one device.

    Give it to a trainer as it is. It needs no torch DataLoader around it, which would only copy.

    Args:
        pipeline, overrides, and all arguments that are not listed here: those of feedline.Loader.
        device: where the tensors are wanted. "cuda" is torch's current GPU, where the feed makes its batches itself.
            For a device that only torch knows, such as "mps", torch copies them from the host.
        ragged: "values": a ragged output is a tuple (values, row_splits). "nested": it is a nested tensor of the layout
            torch.jagged.
        mesh, data_parallel: a DeviceMesh, and the name, or the names, of those of its dimensions that split the
            samples. Ranks that differ only in other dimensions are given the same rows. A mesh of one dimension needs
            no name.
        rank, world_size: left out, those of the process group that is given as communicator, else those of torch's
            default process group; without one, those of the launcher. A process that feeds itself alone, such as the
            one that validates, gives rank=0, world_size=1.
        communicator: left out, torch's default process group, so that ranks that do not have the same pipeline and data
            are told so while they start. All ranks must then make this loader, or, if it was made before the group,
            begin to iterate it. For a feed of only some ranks give their process group; these ranks must then make this
            loader.

    With a GPU, the current stream waits for a batch when the loader gives it, and the memory of a tensor is used again
    when this stream has done the work that it had when the tensor was freed. No other stream is waited for, and
    tensor.record_stream() does nothing, because the memory is not torch's. Before another stream uses a tensor, let it
    wait for this one, and this one for it before the tensor is freed:

        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = network(batch["board"])
        torch.cuda.current_stream().wait_stream(side)

    (With a feedline.Loader it is enough to name the other stream, too, while the batch exists:
    `with torch.cuda.stream(side): torch.from_dlpack(batch["board"])`. Here batch["board"] is a tensor of torch, so this
    call names no stream.)
    """

    def __init__(
        self,
        pipeline: Pipeline | str | os.PathLike | list,
        *,
        device: torch.device | str = "cpu",
        ragged: str = "values",
        mesh: DeviceMesh | None = None,
        data_parallel: str | Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        communicator: Any = None,
        **arguments: Any,
    ):
        try:
            self._device = torch.device(device)
        except (TypeError, RuntimeError):
            raise Error(
                f"device: {device!r} is not a device of torch; give a torch.device, or a name such as 'cuda:0'"
            ) from None
        self._nested = one_of("ragged", ragged, "values", "nested") == "nested"
        if "devices" in arguments:
            raise Error("devices: a Loader of feedline.torch has only one device; write device='cuda:0'")
        if self._device.type == "cuda":
            index = self._device.index
            try:
                index = torch.cuda.current_device() if index is None else index
            except (RuntimeError, AssertionError) as error:
                raise Error(f"device: torch has no GPU for {device!r}: {error}") from None
            arguments["devices"] = f"cuda:{index}"
        if mesh is not None:
            if not isinstance(mesh, DeviceMesh):
                raise Error(f"mesh: {mesh!r} is not a DeviceMesh; give what init_device_mesh() has returned")
            if "data_parallel_rank" in arguments or "data_parallel_size" in arguments:
                raise Error(
                    "data_parallel_rank, data_parallel_size: the mesh already says which part of a batch this rank is "
                    "given; leave out these two, or leave out the mesh"
                )
            arguments["data_parallel_rank"], arguments["data_parallel_size"] = _part_of(mesh, data_parallel)
        elif data_parallel is not None:
            raise Error("data_parallel names dimensions of a mesh, but no mesh is given; give mesh, too")
        self._shares = True
        super().__init__(pipeline, rank=rank, world_size=world_size, communicator=communicator, **arguments)

    _shares = False  # whether ranks compare pipeline and data by torch's process group; False at first after unpickling

    def _meeting(self, rank, world_size):
        if not dist.is_available() or not dist.is_initialized():
            return super()._meeting(rank, world_size)
        if ranks_of(self._communicator) is None:
            found = dist.get_rank(), dist.get_world_size()
            advice = (
                "if groups of ranks share rows, give mesh and data_parallel, or, for only some of the ranks, give "
                "their process group as communicator"
            )
            must_agree(rank, world_size, found, "torch's process group says rank", advice)
        size = world_size or dist.get_world_size()
        shared = self._shares and self._communicator is None and size != 1
        return meeting_of(dist.group.WORLD if shared else self._communicator, rank, world_size)

    @property
    def dataset(self) -> NoReturn:
        """Raises AttributeError, because a loader has no Dataset. Code that rebuilds a DataLoader asks for this."""
        raise AttributeError(
            "a feedline Loader has no dataset, so a DataLoader cannot be made of it: give the Loader itself to the "
            "trainer. loader.samples_per_epoch counts the samples. To skip steps, as accelerate.skip_first_batches() "
            "does, or to go on from a checkpoint (for Hugging Face's Trainer with ignore_data_skip=True), keep "
            "loader.state_dict() and call loader.load_state_dict(state); loader.state_dict(epoch=e, step=n) is the "
            "state after n steps of epoch e"
        )

    # The state of next_into(): the iterator from which it takes steps, the generation of that iterator, whether it has
    # given the last step of its epoch, and a step that could not be copied, which does not count as taken yet.
    _into: Iterator[Any] | None = None
    _into_of: int = -1
    _into_ended: bool = False
    _given: Any = None

    def __reduce__(self) -> Any:
        self._own |= {"_into", "_into_of", "_into_ended", "_given"}
        return super().__reduce__()

    def next_into(self, step: Any) -> bool:
        """Copies the next step into tensors that stay where they are, as a captured CUDA graph needs them.

        `step` is what an earlier step was, with memory of your own: a Batch, any dict of the outputs that you want
        ("@valid" is the mask), or with `as_tuple` the tuple. The copies run on the current stream. Returns False, and
        copies nothing, at the end of the epoch; the next call begins the next one. Raises Error, and copies and takes
        nothing, so that the next call is about the same step, if an output has another shape or dtype than its tensor.
        Raises Error, too, if another iteration of the loader has begun before the epoch was done.
        """
        if self._into is None or self._into_of != self._generation:
            cut = self._into is not None and not self._into_ended and self._begun == self._generation
            self._into = self._given = None
            if cut:
                raise Error(
                    "next_into: another iteration of this loader began before the epoch of next_into() was done; make "
                    "a second Loader to iterate at the same time, or call set_epoch() to say where next_into() goes on"
                )
            self._into = iter(self)
        given, self._given = self._given, None
        if given is None:
            steps, self._into = self._into, None  # an iterator that raises gives no more steps
            given = next(steps, None)
            self._into_of = self._generation
            if given is None:
                return False
            self._into = steps
            self._step -= 1  # the step counts as taken only after it has been copied
        self._given = given
        for name, target, source in (pairs := list(self._pairs(step, given))):
            if isinstance(source, tuple) or (target.shape, target.dtype) != (source.shape, source.dtype):
                found = "tensors whose shapes change from step to step" if isinstance(source, tuple) else _kind(source)
                raise Error(
                    f"next_into: output {name!r} has {found}, but the tensor to copy into is {_kind(target)}; give a "
                    "tensor of the same dtype and shape, or leave out this output"
                )
        for _, target, source in pairs:
            target.copy_(source, non_blocking=True)
        if isinstance(step, Batch):
            step.epoch, step.step, step.rows, step.valid_count = given.epoch, given.step, given.rows, given.valid_count
        self._given = None
        self._step += 1
        self._into_ended = self._at_end()
        return True

    def _pairs(self, step, given):
        """Yields the name, the tensor to copy into and the tensor to copy of each output that is wanted."""
        if isinstance(step, Mapping) != (self.as_tuple is None) or len(step) != len(self.as_tuple or step):
            wanted, found = "a dict with a tensor for each output to copy", f"a {type(step).__name__}"
            if self.as_tuple is not None:
                tensors = "1 tensor" if len(self.as_tuple) == 1 else f"{len(self.as_tuple)} tensors"
                wanted = f"a tuple of {tensors}, one for each name in as_tuple"
            if isinstance(step, (tuple, list)):
                found += f" of {len(step)}"
            raise Error(f"next_into: `step` must be {wanted}, but it is {found}")
        if self.as_tuple is not None:
            yield from zip(self.as_tuple, step, given)
            return
        if isinstance(step, Batch):
            yield "@valid", step.valid_mask, given.valid_mask
        for name, target in step.items():
            if name != "@valid" and name not in given:
                raise Error(f"next_into: the loader has no output {name!r}; its outputs are {', '.join(given)}")
            yield name, target, given.valid_mask if name == "@valid" else given[name]

    def _present(self, given):
        batch = _batch.mapped(given, Batch, torch.from_dlpack)
        if self._device.type not in ("cpu", "cuda"):
            batch = batch.to(self._device)
        if self._nested:
            for name, value in batch.items():
                if isinstance(value, Ragged) and isinstance(value.values, torch.Tensor):
                    batch[name] = torch.nested.nested_tensor_from_jagged(value.values, value.row_splits)
        return batch


def _kind(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _part_of(mesh, data_parallel):
    """Returns the number of the part of the samples that this rank has, and the number of parts. Both come from the
    named dimensions of the mesh, of which the first varies slowest."""
    names = mesh.mesh_dim_names or ()
    if data_parallel is None:
        if mesh.ndim != 1:
            raise Error(
                f"data_parallel: the mesh has {mesh.ndim} dimensions ({', '.join(names) or 'without names'}); name "
                "those that split the samples"
            )
        dimensions = [0]
    else:
        if not isinstance(data_parallel, Sequence):
            raise Error(
                f"data_parallel: {data_parallel!r} is not a name; give the name of a dimension, or a tuple of names"
            )
        wanted = [data_parallel] if isinstance(data_parallel, str) else data_parallel
        for name in wanted:
            if name not in names:
                raise Error(
                    f"data_parallel: the mesh has no dimension {name!r}; its dimensions are "
                    f"{', '.join(names) or 'not named'}"
                )
        if len(set(wanted)) < len(wanted):
            raise Error(f"data_parallel: {data_parallel!r} names a dimension twice; name each only once")
        dimensions = [names.index(name) for name in wanted]
    place = mesh.get_coordinate()
    if place is None:
        raise Error("mesh: this rank is not in the mesh; make the loader only on ranks of the mesh")
    part, parts = 0, 1
    for dimension in dimensions:
        part = part * mesh.size(dimension) + place[dimension]
        parts *= mesh.size(dimension)
    return part, parts
