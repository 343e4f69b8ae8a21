"""The trainers that are built on torch take feedline's loader as it is: Lightning and Accelerate."""

from conftest import need
from torch_processes import run, run_group

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
