"""feedline.torch: batches of torch tensors, and process groups."""

from conftest import free_port, need, run_ranks
from torch_processes import START, run, run_group


def test_a_step_is_a_dict_of_torch_tensors(numbers):
    assert run(
        """
loader = Loader(pipeline)
batches = [batch for batch in loader]
assert type(batches[0]) is Batch and type(batches[0]["n"]) is torch.Tensor
assert [batch["n"].tolist() for batch in batches] == wanted
assert batches[1].valid_mask.dtype == torch.bool and batches[1].valid_mask.all()
batches[0]["n"][:] = 99  # a batch is the user's
assert [batch["n"].tolist() for batch in loader] == wanted
moved = batches[1].to("meta")
assert (moved.step, moved["n"].device.type, moved.valid_mask.device.type) == (1, "meta", "meta")
print(json.dumps([len(loader), loader.epoch]))
""",
        numbers,
    ) == [5, 2]


def test_a_step_is_a_tuple_if_asked(numbers):
    run(
        """
for step, (mask, n) in enumerate(Loader(pipeline, as_tuple=("@valid", "n"))):
    assert n.tolist() == wanted[step] and mask.all()
print(1)
""",
        numbers,
    )


def test_a_device_that_only_torch_knows(numbers):
    assert run('print(json.dumps([str(batch["n"].device) for batch in Loader(pipeline, device="meta")]))', numbers) == ["meta"] * 5


def test_what_torch_does_not_know(numbers):
    """Each wrong argument is an Error; so is a DataLoader around the loader."""
    run(
        """
def refused(call, said):
    try:
        call()
    except feedline.Error as error:
        assert said in str(error), error
    else:
        raise AssertionError
for device in None, "gpu", [], 1.5:
    refused(lambda: Loader(pipeline, device=device), f"device: {device!r} is not a device of torch; give a torch.device, or a name")
if not torch.cuda.is_available():
    refused(lambda: Loader(pipeline, device="cuda"), "device: torch has no GPU for 'cuda': ")
for arguments in {}, {"batch_size": None}, {"batch_size": 2, "num_workers": 1}:
    around = torch.utils.data.DataLoader(Loader(pipeline), **arguments)
    refused(lambda: next(iter(around)), "give the loader to the trainer without a torch DataLoader")
print(1)
""",
        numbers,
    )


def test_ragged_outputs(tmp_path):
    import feedline

    feedline.write(tmp_path / "0.tfrecord", ({"n": list(range(i)), "s": [b"a"] * i} for i in range(1, 9)))
    pipeline = feedline.tfrecords(tmp_path / "0.tfrecord").feature("n", int, kind="RAGGED").feature("s", bytes, kind="RAGGED")
    pipeline = pipeline.batch(4).output("n", feature="n").output("s", feature="s")
    run(
        """
for batch in Loader(pipeline):
    values, splits = batch["n"]
    assert [values[a:b].tolist() for a, b in zip(splits, splits[1:])] == [list(range(4 * batch.step + i)) for i in range(1, 5)]
    assert batch["s"].values.tolist() == [b"a"] * len(values)
for batch in Loader(pipeline, ragged="nested"):
    nested = batch["n"]
    assert nested.is_nested and nested.layout == torch.jagged
    assert [row.tolist() for row in nested.unbind()] == [list(range(4 * batch.step + i)) for i in range(1, 5)]
    assert batch["s"].values.tolist() == [b"a"] * nested.values().numel()
print(1)
""",
        pipeline,
    )


def test_steps_into_tensors_that_stay(numbers):
    run(
        """
loader = Loader(pipeline)
static = {"n": torch.zeros(10, dtype=torch.int64), "@valid": torch.zeros(10, dtype=torch.bool)}
where = static["n"].data_ptr()
compiled = torch.compile(lambda n: (2 * n).sum(), backend="aot_eager")
for epoch in range(2):
    sums = []
    while loader.next_into(static):
        sums.append(compiled(static["n"]).item())
        assert static["@valid"].all()
    assert sums == [2 * sum(step) for step in wanted] and loader.epoch == epoch + 1
assert static["n"].data_ptr() == where
batch = next(iter(loader)).to("cpu")
assert loader.next_into(batch)
again = pickle.loads(pickle.dumps(loader))
assert again.next_into(batch) and batch.step == 0 and batch["n"].tolist() == wanted[0]
mine = torch.zeros(10, dtype=torch.int64)
tuples = Loader(pipeline, as_tuple=("n",))
assert tuples.next_into((mine,)) and mine.tolist() == wanted[0]
def refused(step, *said):
    try:
        tuples.next_into(step)
    except feedline.Error as error:
        assert all(text in str(error) for text in said), error
    else:
        raise AssertionError
refused((torch.zeros(9, dtype=torch.int64),), "'n'", "int64 (10,)", "int64 (9,)")
refused((torch.zeros(10),), "float32 (10,)")
refused((mine, mine), "`step` must be a tuple of 1 tensor, one for each name in as_tuple, but it is a tuple of 2")
refused({"n": mine}, "`step` must be a tuple of 1 tensor, one for each name in as_tuple, but it is a dict")
assert tuples.step == 1 and tuples.state_dict() == tuples.state_dict(epoch=0, step=1)
assert tuples.next_into((mine,)) and mine.tolist() == wanted[1]  # no step was lost
tuples.set_epoch(0)
assert tuples.next_into((mine,)) and mine.tolist() == wanted[0]
assert len(list(tuples)) == 5
refused((mine,), "another iteration of this loader began before the epoch of next_into() was done")
assert tuples.next_into((mine,)) and mine.tolist() == wanted[0] and tuples.epoch == 2
next(iter(tuples))
tuples.set_epoch(0)  # says where it goes on
assert tuples.next_into((mine,)) and mine.tolist() == wanted[0]
assert all(tuples.next_into((mine,)) for _ in range(4))
assert next(iter(tuples)) and tuples.next_into((mine,)) and tuples.epoch == 2  # its epoch was done
tuples = loader
refused((mine,), "`step` must be a dict with a tensor for each output to copy, but it is a tuple of 1")
refused({"m": mine}, "no output 'm'", "its outputs are n")
tuples = Loader(pipeline)
take = tuples._take
def fails():
    tuples._take = take
    raise feedline.Error("a bad record")
for epoch in (1, 2):  # first at the first step, then after one
    tuples._take = fails
    refused(static, "a bad record")
    assert tuples.next_into(static) and tuples.epoch == epoch
print(1)
""",
        numbers,
    )


def test_a_state_is_found_by_its_protocol(numbers):
    run(
        """
loader = Loader(pipeline)
steps = iter(loader)
next(steps), next(steps)
state = json.loads(json.dumps(loader.state_dict()))
other = Loader(pipeline)
other.load_state_dict(state)
other.sampler.set_epoch(0)
assert [batch["n"].tolist() for batch in other] == wanted[2:]
print(1)
""",
        numbers,
    )


WORKERS = """
from torch.utils.data import DataLoader, IterableDataset
class Around(IterableDataset):
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        return (batch["n"].tolist() for batch in self.loader)
def told(loader, workers):
    try:
        return sum(len(batch) for batch in DataLoader(Around(loader), None, num_workers=workers, multiprocessing_context="spawn"))
    except feedline.Error as error:
        return str(error)
if __name__ == "__main__":
    print(json.dumps([told(Loader(pipeline), 1), told(Loader(pipeline), 2)]))
"""


def test_workers_of_a_data_loader(numbers, tmp_path):
    """Each worker would be fed everything."""
    need("torch")
    file = tmp_path / "workers.py"
    file.write_text(START + WORKERS)
    one, several = run("import runpy; runpy.run_path(sys.argv[2], run_name='__main__')", numbers, file)
    assert one == 50
    assert "iterated in worker 0 of 2 of a torch DataLoader, and each worker would get all of the data" in several


def test_what_takes_a_loader_apart_is_told(numbers):
    run(
        """
loader = Loader(pipeline)
assert not hasattr(loader, "dataset")
try:
    loader.dataset
except AttributeError as error:
    assert "samples_per_epoch" in str(error) and "load_state_dict" in str(error), error
print(1)
""",
        numbers,
    )


def test_ranks_of_the_process_group(numbers):
    shares = run_group(
        2,
        """
loader = Loader(pipeline)
steps = [batch["n"].tolist() for batch in loader]
alone = [batch["n"].tolist() for batch in Loader(pipeline, rank=0, world_size=1)]
assert alone == wanted
again = [batch["n"].tolist() for batch in pickle.loads(pickle.dumps(loader))]
assert again == steps
try:
    Loader(pipeline, rank=0, world_size=4)
except feedline.Error as error:
    assert "rank 0 of 4" in str(error) and "of 2" in str(error), error
else:
    raise AssertionError
print(json.dumps(steps))
""",
        numbers,
    )
    assert [len(steps) for steps in shares] == [5, 5]
    assert sorted(n for steps in shares for step in steps for n in step) == list(range(50))


def test_a_process_group_of_some_ranks(numbers):
    """Two of three ranks feed a training; the third has a feed of its own."""
    found = run_group(
        3,
        """
def refused(said, **arguments):
    try:
        Loader(pipeline, **arguments)
    except feedline.Error as error:
        assert said in str(error), error
    else:
        raise AssertionError
me, group = dist.get_rank(), dist.new_group([0, 2])
def epoch(**arguments):
    loader = Loader(pipeline, **arguments)
    steps = [batch["n"].tolist() for batch in loader]
    if me != 1:
        dist.barrier(group)  # a loader that goes ends the feed of the other rank
    return steps
if me == 1:
    refused("this process is not in the process group", communicator=group)
    print(json.dumps([epoch(rank=0, world_size=1)] * 4))
else:
    mine = {"rank": me // 2, "world_size": 2}
    refused(f"the Loader was given rank {me} of 3, but the communicator says rank {me // 2} of 2",
            communicator=group, rank=me, world_size=3)
    refused("for only some of the ranks, give their process group as communicator", **mine)
    shared = epoch(communicator=group)
    everyone = {"communicator": feedline.Tcp(exchange=group), "distribute": {"mode": "REPLICATE"}}
    over_tcp = epoch(communicator=feedline.Tcp(exchange=group))
    print(json.dumps([shared, epoch(communicator=group, **mine), over_tcp, epoch(**everyone)]))
""",
        numbers,
    )
    whole = [list(range(10 * i, 10 * i + 10)) for i in range(5)]
    assert found[1] == [whole] * 4
    for shared in zip(found[0][:3], found[2][:3]):
        assert [first + second for first, second in zip(*shared)] == whole
    assert found[0][3] == found[2][3] == whole


def test_the_ranks_of_a_group_that_no_launcher_has_started(numbers):
    """The environment says nothing, and the communicator does not know the ranks."""
    need("torch")
    port, tcp, done = free_port(), free_port(), [None, None]
    code = """
me = int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[3]}", rank=me, world_size=2)
loader = Loader(pipeline, communicator=feedline.Tcp("127.0.0.1", int(sys.argv[4])))
print(json.dumps([batch["n"].tolist() for batch in loader]))
dist.barrier()
dist.destroy_process_group()
"""

    def rank(number):
        done[number] = run(code, numbers, number, port, tcp, OMP_NUM_THREADS="1")

    run_ranks(2, rank)
    assert [first + second for first, second in zip(*done)] == [list(range(10 * i, 10 * i + 10)) for i in range(5)]


def test_loaders_that_are_made_before_the_process_group(numbers):
    """As with torch.multiprocessing.spawn. They become ranks when they are iterated."""
    need("torch")
    port, done = free_port(), [None, None]
    code = """
me = int(sys.argv[2])
def told(loader):
    try:
        next(iter(loader))
    except feedline.Error as error:
        return str(error)
early, plain, used, other = Loader(pipeline), feedline.Loader(pipeline), Loader(pipeline), Loader(pipeline, seed=me)
alone = Loader(pipeline, rank=0, world_size=1)
pickled = pickle.dumps(early)
next(iter(used))
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[3]}", rank=me, world_size=2)
loaders = early, pickle.loads(pickled), plain
steps = [[torch.from_dlpack(batch["n"]).tolist() for batch in loader] for loader in loaders]
print(json.dumps([steps, told(used), told(other), sum(batch.rows for batch in alone)]))
dist.barrier()
dist.destroy_process_group()
assert [len(batch["n"]) for batch in early] == [5] * 5  # is the rank that it was
"""

    def rank(number):
        done[number] = run(code, numbers, number, port, OMP_NUM_THREADS="1")

    run_ranks(2, rank)
    for first, second in zip(*(steps for steps, *_ in done)):
        assert [one + two for one, two in zip(first, second)] == [list(range(10 * i, 10 * i + 10)) for i in range(5)]
    for me, (_, used, other, alone) in enumerate(done):
        assert used.startswith(f"this loader has already read as rank 0 of 1, but now torch's process group says rank {me} of 2")
        assert "rank" in other and "seed" in other, other  # ranks compare notes when they become ranks, too
        assert alone == 50


def test_ranks_with_different_data_are_told(numbers):
    errors = run_group(
        2,
        """
try:
    Loader(pipeline, seed=dist.get_rank() + 1, shuffle={"buffer_size": 50})
except feedline.Error as error:
    print(json.dumps(str(error)))
""",
        numbers,
    )
    assert all("rank" in error for error in errors), errors
