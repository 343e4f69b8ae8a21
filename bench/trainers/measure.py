"""What a loader costs the training loop that it feeds."""

import json
import resource
import time


class Measure:
    """Iterates over a loader's steps, and measures them: how long the loop waited for each step, and how much CPU time
    was spent on loading. The latter is that of the loop's thread inside of the loader, of all other threads of this
    process, and of its children that have ended; so the training itself must use no threads but the loop's."""

    def __init__(self):
        self.steps, self.waited, self.inside, self.ready = 0, 0.0, 0.0, 0
        self._started = self._cpu()

    def over(self, loader):
        """Yields the loader's steps. The first one after a start is not counted as late."""
        steps = iter(loader)
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                step = next(steps)
            except StopIteration:
                self.inside += time.thread_time() - cpu
                return
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            self.inside += cpu
            self.waited += wall
            self.ready += wall < 0.001
            self.steps += 1
            yield step

    def result(self):
        """Returns the measurements so far as a dict."""
        wall, whole, loop, children = (now - then for now, then in zip(self._cpu(), self._started))
        steps = max(self.steps, 1)
        return {
            "steps": self.steps,
            "ms_per_step": 1000 * wall / steps,
            "waited_ms_per_step": 1000 * self.waited / steps,
            "ready": self.ready / steps,
            "loader_cpu_ms_per_step": 1000 * (whole - loop + self.inside + children) / steps,
        }

    @staticmethod
    def _cpu():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.perf_counter(), time.process_time(), time.thread_time(), children.ru_utime + children.ru_stime


def print_result(name, measure, **more):
    print(json.dumps({"trainer": name, **measure.result(), **more}), flush=True)
