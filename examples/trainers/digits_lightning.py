"""Trains a classifier of handwritten digits with Lightning. Started again, it goes on from its last checkpoint.

    python examples/trainers/digits_lightning.py --epochs 10 --folder runs/digits
"""

import argparse
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from feedline.torch import Loader

HERE = os.path.dirname(os.path.abspath(__file__))


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def loss(self, batch):
        """The mean loss of the rows that are samples; the last batch of an epoch has others."""
        losses = torch.nn.functional.cross_entropy(self.layers(batch["image"]), batch["label"].long(), reduction="none")
        return losses[batch["valid"].bool()].mean()

    def training_step(self, batch, _):
        return self.loss(batch)

    def validation_step(self, batch, _):
        self.log("loss", self.loss(batch), batch_size=batch.valid_count)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "digits.textproto"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folder", required=True, help="where the checkpoints are")
    flags = parser.parse_args()

    lightning.seed_everything(1)
    train = Loader(flags.pipeline, shuffle={"buffer_size": 100}, seed=1)
    validate = Loader(flags.pipeline)
    trainer = lightning.Trainer(
        max_epochs=flags.epochs,
        default_root_dir=flags.folder,
        callbacks=[ModelCheckpoint(flags.folder, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = os.path.join(flags.folder, "last.ckpt")
    trainer.fit(Classifier(), train, validate, ckpt_path=last if os.path.exists(last) else None)
    print(f"loss {trainer.callback_metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
