"""The trainers that are built on torch take feedline's loader as it is: Lightning and Accelerate."""

import json
import os
import subprocess
import sys

import pytest
from conftest import CUDA, QUIET, need
from torch_processes import START, run, run_group

LIGHTNING = """
import logging
logging.getLogger("lightning").setLevel(logging.ERROR)
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []
    def training_step(self, batch, index):
        self.seen.append([batch.epoch, batch["n"].tolist()])
        return self.layer(batch["n"].float().unsqueeze(1)).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-9)
def trainer(**options):
    return lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                             default_root_dir=sys.argv[2], **options)
"""


def test_lightning_takes_every_step(numbers, tmp_path):
    need("lightning")
    seen = run(
        LIGHTNING
        + """
module = Module()
trainer(max_epochs=3, enable_checkpointing=False).fit(module, Loader(pipeline))
print(json.dumps(module.seen))
""",
        numbers,
        tmp_path,
    )
    wanted = [list(range(10 * i, 10 * i + 10)) for i in range(5)]
    assert seen == [[epoch, step] for epoch in range(3) for step in wanted]


def test_lightning_goes_on_in_the_middle_of_an_epoch(numbers, tmp_path):
    need("lightning")
    first = """
from lightning.pytorch.callbacks import ModelCheckpoint
module = Module()
save = ModelCheckpoint(sys.argv[2], every_n_train_steps=7, filename="at-{step}", save_top_k=-1)
shuffled = dict(shuffle={"buffer_size": 50}, seed=3)
trainer(max_steps=STEPS, max_epochs=3, callbacks=[save]).fit(module, Loader(pipeline, **shuffled), ckpt_path=FROM)
print(json.dumps(module.seen))
"""
    whole = run(LIGHTNING + first.replace("STEPS", "15").replace("FROM", "None"), numbers, tmp_path / "whole")
    begun = run(LIGHTNING + first.replace("STEPS", "7").replace("FROM", "None"), numbers, tmp_path / "cut")
    checkpoint = repr(str(tmp_path / "cut" / "at-step=7.ckpt"))
    rest = run(LIGHTNING + first.replace("STEPS", "15").replace("FROM", checkpoint), numbers, tmp_path / "cut")
    assert len(whole) == 15 and len(begun) == 7
    assert begun + rest == whole


SPREAD = """
import pathlib
class Ranked(Module):
    def on_train_end(self):
        seen = [n for epoch, step in self.seen for n in step]
        pathlib.Path(sys.argv[2], f"{self.global_rank}.json").write_text(json.dumps([self.trainer.world_size, seen]))
def main():
    loader = Loader(pipeline)  # before the processes know of each other
    trainer(max_epochs=1, enable_checkpointing=False, devices=2, strategy=STRATEGY).fit(Ranked(), loader)
"""
FABRIC = """
import lightning, pathlib
def main():
    loader = Loader(pipeline)
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    seen = [n for batch in loader for n in batch["n"].tolist()]
    pathlib.Path(sys.argv[2], f"{fabric.global_rank}.json").write_text(json.dumps([fabric.world_size, seen]))
"""


@pytest.mark.parametrize(
    "program",
    [LIGHTNING + SPREAD.replace("STRATEGY", "'ddp'"), LIGHTNING + SPREAD.replace("STRATEGY", "'ddp_spawn'"), FABRIC],
    ids=["ddp", "ddp_spawn", "fabric"],
)
def test_lightning_starts_the_ranks_after_the_loader_is_made(numbers, tmp_path, program):
    """Lightning's own launcher starts the program once more for each rank, or a function of it."""
    need("lightning")
    file, out = tmp_path / "train.py", tmp_path / "out"
    out.mkdir()
    file.write_text(START + program + "\nif __name__ == '__main__':\n    main()\n")
    environment = {**os.environ, "LD_LIBRARY_PATH": CUDA, "OMP_NUM_THREADS": "1", **QUIET}
    done = subprocess.run(
        [sys.executable, file, str(numbers), out], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]
    assert [size for size, _ in found] == [2, 2]
    assert [len(seen) for _, seen in found] == [25, 25]
    assert sorted(n for _, seen in found for n in seen) == list(range(50))


def test_the_same_loader_for_training_and_for_validation_in_between_is_told(numbers, tmp_path):
    need("lightning")
    told = run(
        LIGHTNING
        + """
class Validated(Module):
    def validation_step(self, batch, index):
        pass
shared, told = Loader(pipeline), "nothing"
try:
    trainer(max_epochs=3, val_check_interval=2, enable_checkpointing=False).fit(Validated(), shared, shared)
except feedline.Error as error:
    told = str(error)
module = Validated()
trainer(max_epochs=3, val_check_interval=2, enable_checkpointing=False).fit(module, Loader(pipeline), Loader(pipeline))
print(json.dumps([told, len(module.seen)]))
""",
        numbers,
        tmp_path,
    )
    assert "when another iteration of the loader began" in told[0] and told[1] == 15


def test_accelerate_leaves_the_loader_alone(numbers):
    need("accelerate")
    shares = run_group(
        2,
        """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-9)
mine = Loader(pipeline)
model, optimizer, loader = accelerator.prepare(model, optimizer, mine)
assert loader is mine
from accelerate import skip_first_batches
try:
    skip_first_batches(loader, 2)
except AttributeError as error:
    assert "To skip steps" in str(error), error
else:
    raise AssertionError
seen = []
for batch in loader:
    seen.append(batch["n"].tolist())
    loss = model(batch["n"].float().unsqueeze(1)).sum()
    accelerator.backward(loss)
    optimizer.step()
print(json.dumps(seen))
""",
        numbers,
    )
    assert [len(steps) for steps in shares] == [5, 5]
    assert sorted(n for steps in shares for step in steps for n in step) == list(range(50))
