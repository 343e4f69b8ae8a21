"""feedline as a data loader of DLIO, and a loader that gives nothing.

DLIO takes any class that is derived from its BaseDataLoader:

  dlio_benchmark workload=resnet50_h100 ++workload.reader.data_loader_classname=loaders.FeedlineLoader
                 ++workload.reader.data_loader_sampler=iterative
"""
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

import feedline


class FeedlineLoader(BaseDataLoader):
    """Delivers the bytes of each picture, and its size, of the files and in the order that DLIO's options name."""

    def __init__(self, format_type, dataset_type, epoch):
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.TENSORFLOW)
        self.rows = self.bytes = 0  # delivered so far

    def read(self):
        options = self._args
        files = options.file_list_train if self.dataset_type is DatasetType.TRAIN else options.file_list_eval
        pipeline = (
            feedline.tfrecords(*files)
            .feature("image", bytes)
            .feature("size", int)
            .batch(self.batch_size * options.comm_size, last_batch_policy="DROP")
        )
        if options.sample_shuffle != Shuffle.OFF:
            pipeline = pipeline.shuffle(options.shuffle_size, mode="BUFFER", seed=options.seed)
        self._loader = feedline.Loader(pipeline, rank=options.my_rank, world_size=options.comm_size,
                                       threads=options.read_threads)

    def next(self):
        for batch in self._loader:
            self.rows += batch.rows
            self.bytes += batch["image"][0].shape[0]
            yield batch

    def finalize(self):
        pass  # the next epoch goes on with the same loader


class NoLoader(BaseDataLoader):
    """Gives batches of nothing: what DLIO's own loop costs."""

    def __init__(self, format_type, dataset_type, epoch):
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.SYNTHETIC)

    def read(self):
        pass

    def next(self):
        while True:
            yield None

    def finalize(self):
        pass
