"""What a loader costs the training loop that it feeds."""

import glob
import os
import time


class Measure:
    """Iterates over a loader's steps, and measures how long the loop waited for each, and the CPU time of loading: that
    of the loop's thread inside of the loader, of all other threads of the process, and of its child processes. So the
    training itself must use no thread but the loop's, and the children must live as long as the measurement."""

    def __init__(self):
        self.waits, self.inside = [], 0.0
        self.begun = _times()

    def over(self, loader):
        steps = iter(loader)
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            step = next(steps, None)
            self.inside += time.thread_time() - cpu
            if step is None:
                return
            self.waits.append(time.perf_counter() - wall)
            yield step

    def result(self):
        """Returns the figures of a step: milliseconds, and the part of the steps that were there within 1 ms."""
        wall, process, loop, children = (now - then for now, then in zip(_times(), self.begun))
        steps = len(self.waits)
        return {
            "steps": steps,
            "step_ms": 1000 * wall / steps,
            "wait_ms": 1000 * sum(self.waits) / steps,
            "ready": sum(wait < 0.001 for wait in self.waits) / steps,
            "loader_cpu_ms": 1000 * (process - loop + self.inside + children) / steps,
        }


def _times():
    """Returns the wall clock, and the CPU time of this process, of this thread, and of the child processes; all in
    seconds."""
    children = 0
    for path in glob.glob("/proc/self/task/*/children"):
        with open(path, encoding="ascii") as file:
            for child in file.read().split():
                with open(f"/proc/{child}/stat", encoding="ascii") as stat:
                    user, system = stat.read().rpartition(")")[2].split()[11:13]  # proc(5)
                children += int(user) + int(system)
    return time.perf_counter(), time.process_time(), time.thread_time(), children / os.sysconf("SC_CLK_TCK")
