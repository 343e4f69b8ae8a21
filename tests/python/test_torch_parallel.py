"""feedline.torch under DDP and FSDP, and on a mesh of ranks: four processes that import torch take a while."""

import pytest
from torch_processes import run, run_group


def test_a_mesh_splits_by_its_data_axes(numbers):
    rows = run_group(
        4,
        """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
try:
    Loader(pipeline, mesh=mesh)
except feedline.Error as error:
    assert "data, model" in str(error), error
else:
    raise AssertionError
try:
    Loader(pipeline, mesh=mesh, data_parallel="dp")
except feedline.Error as error:
    assert "'dp'" in str(error), error
else:
    raise AssertionError
split = [batch["n"].tolist() for batch in Loader(pipeline, mesh=mesh, data_parallel="data")]
everyone = Loader(pipeline, mesh=mesh, data_parallel=("data", "model"), batch={"global_batch_size": 20})
flat = [batch["n"].tolist() for batch in everyone]
for wrong, said in [
    (dict(mesh=4), "mesh: 4 is not a DeviceMesh; give what init_device_mesh"),
    (dict(mesh=mesh, data_parallel=0), "data_parallel: 0 is not a name; give the name of a dimension"),
    (dict(mesh=mesh, data_parallel=("data", "data")), "('data', 'data') names a dimension twice"),
    (dict(mesh=mesh, data_parallel=("data", 1)), "no dimension 1; its dimensions are data, model"),
]:
    try:
        Loader(pipeline, **wrong)
    except feedline.Error as error:
        assert said in str(error), error
    else:
        raise AssertionError(wrong)
axis = [batch["n"].tolist() for batch in Loader(pipeline, mesh=mesh["data"])]
assert axis == split
print(json.dumps([split, flat]))
""",
        numbers,
    )
    splits, flats = zip(*rows)
    assert splits[0] == splits[1] and splits[2] == splits[3]  # ranks of a model share rows
    assert sorted(n for rank in (0, 2) for step in splits[rank] for n in step) == list(range(50))
    kept = [n for flat in flats for step in flat for n in step]
    assert sorted(kept) == list(range(40))  # two whole batches of 20


TRAIN = """
torch.manual_seed(1)
network = torch.nn.Linear(1, 1)
{wrap}
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
for epoch in range(2):
    for batch in Loader(pipeline{arguments}):
        x = batch["n"].float().unsqueeze(1)
        loss = (model(x) - 3 * x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
weights = [full(p).detach().flatten().tolist() for p in model.parameters()]
print(json.dumps(weights))
"""


@pytest.mark.parametrize("kind", ["DDP", "FSDP"])
def test_data_parallelism_learns_the_same(numbers, kind):
    full = "full = lambda p: p\n"
    alone = run(full + TRAIN.format(wrap="model = network", arguments=""), numbers)
    if kind == "DDP":
        wrap = full + "model = torch.nn.parallel.DistributedDataParallel(network)"
    else:
        wrap = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,))
fully_shard(network, mesh=mesh)
model = network
full = lambda p: p.full_tensor()
"""
    arguments = ", mesh=mesh" if kind == "FSDP" else ""
    ranks = run_group(2, TRAIN.format(wrap=wrap, arguments=arguments), numbers)
    for rank in ranks:
        for mine, wanted in zip(rank, alone):
            assert mine == pytest.approx(wanted, rel=1e-4)
