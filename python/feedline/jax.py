"""Batches of JAX arrays, on one device or split over the devices of a mesh.

    from feedline.jax import Loader

    loader = Loader("chess.textproto", sharding=NamedSharding(mesh, PartitionSpec("data")))
    for epoch in range(10):
        for batch in loader:  # a dict of global arrays
            loss = step(parameters, batch)
"""

import atexit
import contextlib
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from . import _batch, _loader
from ._errors import Error
from ._pipeline import Pipeline
from ._ranks import meeting_of, must_agree, place_of_environment
from .numpy import HostLoader, array_of

_AHEAD = 2  # the maximum number of steps that are given before JAX has made the arrays of the first of them

# At exit JAX destroys its streams. Loaders must be closed before that. Functions that were registered last run first.
atexit.register(_loader._close_all)


class Batch(_batch.Batch):
    """A feedline.Batch whose tensors, `valid_mask` among them, are JAX's. Strings are numpy arrays of bytes objects.

    It is a pytree of the outputs and the mask, so jitted functions accept it. The batch that such a function gets, or
    that jax.tree.map makes, has `valid_mask` but no other attributes.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"feedline.jax.Batch({dict.__repr__(self)})"


class Loader(HostLoader):
    """Feeds a training in JAX: each step is a Batch, a dict of JAX arrays.

    Args:
        pipeline, overrides, and all arguments that are not listed here: those of feedline.Loader.
        sharding: a NamedSharding whose first axis says how rows are split. Each step is then the whole step of all
            processes, as global arrays, of which this process reads the rows that its devices hold.
        device: where the arrays are wanted, if there is neither a sharding nor `devices`. Left out, JAX's default
            device.
        devices: left out, the feed makes its batches on the host, and JAX transfers them. "cuda:0": the feed makes them
            on this GPU, and JAX copies them there; with a sharding it must be the one device of this process in the
            mesh. "cpu" does the same with the host. A process has one device; start one for each GPU.
        rank, world_size: left out, those of jax.distributed, or of the launcher as long as jax.distributed is not
            initialised. A process that feeds itself alone, such as the one that validates, gives rank=0, world_size=1.
        communicator: left out, that of jax.distributed, so that processes that do not have the same pipeline and data
            are told so while they start. All processes must then make this loader, or, if it was made before
            jax.distributed was initialised, begin to iterate it.

    Unless jax_enable_x64 is set, JAX converts INT64 and FLOAT64 to 32 bits, and cuts off the upper bits. So such
    outputs are then an Error.

    With `devices` JAX copies the feed's batch into arrays of its own, and the batch is kept until the copy is done. The
    loader gives a step when the arrays of the step two before it are done. So a program that does not wait for its
    results runs up to two steps ahead of the GPU. Strings and ragged outputs are an Error.
    """

    _module = __name__
    _kept: "_Kept | None" = None  # set if `devices` was given, so that JAX copies batches

    def __init__(
        self,
        pipeline: Pipeline | str | os.PathLike | list,
        *,
        sharding: NamedSharding | None = None,
        device: jax.Device | None = None,
        devices: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        communicator: Any = None,
        **arguments: Any,
    ):
        self._sharding, self._device = sharding, device
        if device is not None and not isinstance(device, jax.Device):
            raise Error(f"device: {device!r} is not a device of JAX; give a device such as jax.devices('cpu')[0]")
        if devices is not None:
            if device is not None:
                raise Error(
                    "device and devices are both given; give only one: with devices, arrays stay where the feed makes "
                    "them"
                )
            if arguments.get("gpu_communicator") is not None:
                raise Error(
                    "gpu_communicator: JAX does not say on which CUDA stream it works, so rows cannot arrive in the "
                    "order of JAX's own transfers between GPUs; leave gpu_communicator out"
                )
            arguments["devices"] = devices
        if sharding is not None:
            if device is not None:
                raise Error("sharding and device are both given; give only one: a sharding names its devices")
            arguments["data_parallel_rank"], arguments["data_parallel_size"], self._shards = _part_of(sharding)
        self._shares = True
        super().__init__(pipeline, rank=rank, world_size=world_size, communicator=communicator, **arguments)
        if devices is not None:
            if self._replicas > 1:
                raise Error(
                    f"devices: {devices!r} names {self._replicas} devices; name only one, and start a process for each "
                    "GPU"
                )
            self._device = _device_of("cuda" if str(devices).startswith("cuda") else "cpu", self._feeder.device(0))
            self._alone, self._kept = Mesh(np.array([self._device]), ("device",)), _Kept()
        self._check()

    _sharding: NamedSharding | None = None
    _shares = False  # whether processes compare pipeline and data by jax.distributed; False at first after unpickling

    def _meeting(self, rank, world_size):
        joined = jax.distributed.is_initialized()
        if joined or self._sharding is not None:
            rank, world_size = _agreed(rank, world_size)
        shared = self._shares and joined and world_size != 1 and self._communicator is None
        return meeting_of(_gather if shared else self._communicator, rank, world_size)

    def _check_devices(self, devices):
        if not str(devices).startswith(("host", "cpu", "cuda")):
            raise Error(f"devices: {devices!r} is not a device; give 'cpu' or a GPU, such as 'cuda:0'")

    def __reduce__(self) -> Any:
        if self._sharding is not None or self._device is not None:
            raise TypeError(
                "a loader with a sharding or a device of JAX cannot be pickled, because JAX cannot pickle these; make "
                "the loader in the process that uses it"
            )
        return super().__reduce__()

    def _check(self):
        wide = [element for element in self._elements if element.dtype in ("INT64", "FLOAT64")]
        if wide and not jax.config.read("jax_enable_x64"):
            raise Error(
                f"JAX would cut {', '.join(f'{e.name!r} ({e.dtype})' for e in wide)} to 32 bits; give these outputs "
                f"a different dtype, such as {wide[0].dtype[:-2]}32, or call jax.config.update('jax_enable_x64', True)"
            )
        if self._kept is not None:
            for element in self._elements:
                if element.dtype == "BYTES" or element.kind in ("ragged", "nested"):
                    raise Error(
                        f"output {element.name!r} is {'strings' if element.dtype == 'BYTES' else element.kind}: if the "
                        "argument 'devices' is given, each output must be dense or padded numbers, because JAX "
                        "compiles the copy of each shape; leave out 'devices', or leave out this output"
                    )
        if self._sharding is None:
            return
        if self._kept is not None and self._sharding.addressable_devices != {self._device}:
            raise Error(
                f"devices: the batches are made only on {self._device}, but this process has different devices in the "
                "mesh; leave out 'devices', or start a process for each GPU"
            )
        alone = jax.process_count() == 1
        for element in self._elements:
            if element.kind in ("ragged", "nested") or (element.kind == "padded" and not alone):
                raise Error(
                    f"output {element.name!r} is {element.kind}: its length differs between steps and processes, but a "
                    "global array has one shape; leave out 'sharding', or give the feature a fixed number of values"
                )
        if not alone and "last_batch_policy: PARTIAL" in str(self.pipeline):
            raise Error("batch.last_batch_policy: PARTIAL gives processes different numbers of rows; use DROP or PAD")

    def close(self) -> None:
        super().close()
        if self._kept is not None:
            self._kept.drop()

    def _take(self):
        if self._kept is not None:
            self._kept.drop(_AHEAD - 1)
        return super()._take()

    def _present(self, batch):
        result = self._transferred(batch) if self._kept is None else self._copied(batch)
        result.epoch, result.step, result.valid_count = batch.epoch, batch.step, batch.valid_count
        result.rows = len(result.valid_mask)
        return result

    def _copied(self, batch):
        """Returns arrays into which JAX copies the batch on the same device, and keeps the batch until they are
        done."""
        with jax.set_mesh(self._alone):  # the program may have set another mesh
            result, done = _copy(_batch.mapped(batch, Batch, jax.dlpack.from_dlpack))
        self._kept.add(batch, done)
        if self._sharding is None:
            return result
        parts = self._arguments["data_parallel_size"]
        return jax.tree.map(
            lambda part: jax.make_array_from_single_device_arrays(
                (parts * len(part), *part.shape[1:]), self._sharding, [part]
            ),
            result,
        )

    def _transferred(self, batch):
        leaves, tree = jax.tree.flatten(_batch.mapped(batch, Batch, array_of, self._string_array))
        numbers = [leaf for leaf in leaves if leaf.dtype != object]
        if self._sharding is None:
            arrays = jax.device_put(numbers, self._device)
        elif batch.rows % self._shards:
            everywhere = self._shards * self._arguments["data_parallel_size"]
            raise Error(
                f"step {batch.step} has {batch.rows} rows in this process, which cannot be divided evenly by its "
                f"{self._shards} shards; set batch.global_batch_size to a multiple of {everywhere}, and, for the last "
                "step of an epoch, batch.last_batch_policy to DROP or PAD"
            )
        else:
            arrays = jax.make_array_from_process_local_data(self._sharding, numbers)
        rest = iter(arrays)
        return jax.tree.unflatten(tree, [leaf if leaf.dtype == object else next(rest) for leaf in leaves])


def _flatten_with_keys(batch):
    leaves, names = _flatten(batch)
    keys = [*map(jax.tree_util.DictKey, names), jax.tree_util.GetAttrKey("valid_mask")]
    return list(zip(keys, leaves, strict=True)), names


def _flatten(batch):
    names = tuple(sorted(batch))
    return [*(batch[name] for name in names), batch.valid_mask], names


def _unflatten(names, leaves):
    *outputs, mask = leaves
    batch = Batch(zip(names, outputs, strict=True))
    batch.valid_mask = mask
    return batch


jax.tree_util.register_pytree_with_keys(Batch, _flatten_with_keys, _unflatten, _flatten)


@jax.jit
def _copy(batch):
    """Returns a copy of the batch, and an array that becomes ready together with the copy, because one execution makes
    both. The program never gets that array. So the loader can wait for it even if the program has donated the
    others."""
    return jax.tree.map(jnp.copy, batch), jnp.any(batch.valid_mask)


class _Kept:
    """Keeps the feed's batches that JAX has not copied yet.

    On a GPU, JAX frees the memory of a DLPack tensor when the last reference to its array goes, and does not wait for
    the work that reads it. The stream that JAX names for the tensor is none of the streams on which that work runs, so
    the feed cannot wait for the work either. So a batch is kept here until its copy is ready, also if the wait ends by
    Ctrl-C. close() may be called during a wait.
    """

    def __init__(self):
        self._batches = {}  # in the order of the steps; the keys are arbitrary
        self._process = os.getpid()

    def add(self, batch, done):
        """Keeps a batch until `done` is ready."""
        self._batches[id(batch)] = (batch, done)

    def drop(self, most=0):
        """Drops batches that are copied, in the order of the steps. Waits while more than `most` are not copied."""
        if self._process != os.getpid():
            return  # in a forked child nothing becomes ready
        for key, (_, done) in list(self._batches.items()):
            if not done.is_deleted():  # a program may delete all arrays that are alive, also this one
                if len(self._batches) <= most and not done.is_ready():
                    return
                with contextlib.suppress(RuntimeError):  # if the copy failed, its arrays raise the error when used
                    done.block_until_ready()
            self._batches.pop(key, None)

    def __del__(self):
        if os is not None:  # it is None when the interpreter ends; all feeds were closed before that
            self.drop()


def _device_of(platform, number):
    """Returns JAX's device with this number, as feedline counts the devices of a platform."""
    try:
        device = {one.local_hardware_id: one for one in jax.local_devices(backend=platform)}.get(number)
        if device is None:
            raise RuntimeError("JAX has no such device")
        if platform == "cuda":
            device.get_stream_for_external_ready_events()  # from_dlpack() needs it to wait for the feed's writes
    except RuntimeError as error:
        raise Error(
            f"devices: JAX cannot take batches from {platform}:{number} ({error}); leave out 'devices'"
        ) from None
    return device


def _part_of(sharding):
    """Returns the number of the part of the rows that this process has, the number of parts, and the number of shards
    into which the process splits its part. Processes whose devices hold the same rows have the same part."""
    if not isinstance(sharding, NamedSharding) or any(axis is not None for axis in sharding.spec[1:]):
        raise Error(f"sharding: {sharding!r} does not split only rows; give NamedSharding(mesh, PartitionSpec('data'))")
    held: dict[int, set[int]] = {}
    for device, (rows,) in sharding.devices_indices_map((sharding.num_devices,)).items():
        held.setdefault(device.process_index, set()).add(rows.start or 0)
    mine = held.get(jax.process_index())
    if mine is None:
        raise Error("sharding: no device of this process is in the mesh; make the loader only in processes of the mesh")
    parts = sorted({tuple(sorted(rows)) for rows in held.values()})
    if len({len(part) for part in parts}) > 1 or len(set().union(*parts)) != sum(map(len, parts)):
        raise Error(
            "sharding: two processes must have either the same rows or no common row, and each the same number of "
            "rows; order the devices of the mesh by process"
        )
    return parts.index(tuple(sorted(mine))), len(parts), len(mine)


def _agreed(rank, world_size):
    """Returns the rank and world size that were given, or those of JAX. Raises Error if they do not agree."""
    processes = jax.process_index(), jax.process_count()
    advice = "if groups of processes share rows, give a sharding whose mesh says so"
    must_agree(rank, world_size, processes, "JAX says process", advice)
    launched = place_of_environment() if rank is None and processes[1] == 1 else None
    if launched is not None and launched.world_size != 1:
        raise Error(
            f"the launcher has started {launched.world_size or 'several'} processes, but JAX knows of only one; call "
            "jax.distributed.initialize() before the Loader is made"
        )
    return processes if rank is None else (rank, world_size)


def _gather(mine):
    """Returns the bytes of all processes, in their order."""
    lengths = multihost_utils.process_allgather(np.int32(len(mine)))
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(mine)] = np.frombuffer(mine, np.uint8)
    everyone = multihost_utils.process_allgather(padded)
    return [row[:length].tobytes() for row, length in zip(everyone, lengths, strict=True)]
