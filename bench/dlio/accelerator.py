"""One simulated accelerator: DLIO's benchmark in a process of its own, which begins, and ends, when it is told to.

  accelerator.py measure WARM_UP OVERRIDE...   trains, and measures CPU time after WARM_UP steps
  accelerator.py generate OVERRIDE...          writes DLIO's data

OVERRIDE is what DLIO's command line takes. `measure` prints {} when it is ready; begins at a line on its standard
input; prints its figures as one line of JSON; and ends when the input does, so that accelerators that are measured
together all run until the last one is done.
"""
import json
import logging
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "peers"))

import hydra
from dlio_benchmark.main import DLIOBenchmark
from dlio_benchmark.utils.config import ConfigArguments
from dlio_benchmark.utils.utility import DLIOMPI
from worker import cpu_seconds


class SampleMap(dict):
    """Where each sample lies. PyTorch's reader formats the whole map into a debug message for each sample, which would
    take nearly all of its time."""

    def __repr__(self):
        return f"{len(self)} samples"


class Arguments(ConfigArguments):
    """DLIO's options."""

    def get_global_map_index(self, file_list, total_samples):
        return SampleMap(super().get_global_map_index(file_list, total_samples))


class Accelerator(DLIOBenchmark):
    """The benchmark, measured. DLIO writes a line to its log at each step, which is left out here."""

    def __init__(self, workload, warm_up):
        super().__init__(workload)
        self.warm_up = warm_up
        logging.disable(logging.INFO)

    def _train(self, epoch):
        loader = self.framework.get_loader()
        batches = loader.next
        loader.next = lambda: self.watched(batches())
        print("{}", flush=True)
        sys.stdin.readline()
        steps = super()._train(epoch)
        self.result = {"steps": steps, "cpu_s": cpu_seconds() - self.cpu_at_start,
                       "rows": getattr(loader, "rows", None), "bytes": getattr(loader, "bytes", None)}
        return steps

    def watched(self, batches):
        for number, batch in enumerate(batches):
            if number == self.warm_up:
                self.cpu_at_start = cpu_seconds()
            yield batch


def main():
    command, *overrides = sys.argv[1:]
    warm_up = int(overrides.pop(0)) if command == "measure" else None
    DLIOMPI.get_instance().initialize()
    Arguments()  # becomes the one instance
    with hydra.initialize_config_module("dlio_benchmark.configs", version_base=None):
        workload = hydra.compose("config", overrides)["workload"]
    if command == "generate":
        # Indexes for DALI's reader, which are not used here, come from a script of DALI.
        import dlio_benchmark.data_generator.tf_generator as generator
        generator.call = lambda command: None
        DLIOBenchmark(workload).initialize()
        return
    accelerator = Accelerator(workload, warm_up)
    accelerator.initialize()
    accelerator.run()
    # DLIO leaves the first step of an epoch out of the utilisation, too.
    print(json.dumps({**accelerator.result, "utilisation": float(accelerator.stats.train_au[0]) / 100}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
