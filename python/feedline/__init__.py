"""feedline: TFRecord files to finished tensors, in an order that can be named, repeated and resumed.

    import feedline

    loader = feedline.Loader("chess.textproto")
    for epoch in range(10):
        for batch in loader:                         # a dict of tensors that numpy, torch, jax, ... take by DLPack
            board = torch.from_dlpack(batch["board"])
"""

from . import _log
from ._batch import Batch, Element, Ragged, Strings
from ._errors import Error
from ._feedline import Tensor
from ._feedline import version as __version__
from ._loader import Loader
from ._pipeline import Pipeline, tfrecords
from ._ranks import Tcp
from ._records import RecordWriter, parse_example, records, write

_log.start()

__all__ = [
    "Batch",
    "Element",
    "Error",
    "Loader",
    "Pipeline",
    "Ragged",
    "RecordWriter",
    "Strings",
    "Tcp",
    "Tensor",
    "parse_example",
    "records",
    "tfrecords",
    "write",
]
