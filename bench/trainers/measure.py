"""What a step of a training costs, and what its loader has of that."""

import glob
import os
import time

WARM = 50  # how many steps come before the first that is measured: they start workers, fill queues and compile


class Measure:
    """Measures steps, from begin() on: the time of each, and the CPU time of the process and its child processes. The
    children must live as long as the measurement.

    If the loop takes its steps out of over(), the measurement begins after WARM steps. It then has also how long the loop
    waited for its steps, and the CPU time of loading: that of the loop's thread inside of the loader, of all other
    threads, and of the children. So the training itself must use no thread but the loop's for that to be right.

    Where a GPU computes the steps, a GpuWatch says when it has, and for how much of the time it was idle. torch then has
    threads of its own for it, so that the CPU time of loading is not told."""

    def __init__(self, gpu=None):
        self.gpu = gpu

    def begin(self):
        self.waits, self.inside = [], 0.0
        if self.gpu:
            self.gpu.begin()
        self.begun = _times()

    def over(self, loader):
        steps = iter(loader)
        for _ in range(WARM):
            yield next(steps)
        self.begin()
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            step = next(steps)
            self.waits.append(time.perf_counter() - wall)
            self.inside += time.thread_time() - cpu
            yield step

    def result(self, steps):
        """Returns the figures of a step, all in milliseconds, and the part of the steps that were there within 1 ms."""
        idle = self.gpu.end() if self.gpu else None
        wall, process, loop, children = (now - then for now, then in zip(_times(), self.begun))
        figures = {"step_ms": wall, "cpu_ms": process + children}
        if self.waits:
            figures["wait_ms"] = sum(self.waits)
            if not self.gpu:
                figures["loader_cpu_ms"] = process - loop + self.inside + children
        steps = len(self.waits) or steps  # some frameworks take a step ahead
        figures = {name: 1000 * seconds / steps for name, seconds in figures.items()}
        if self.waits:
            figures["ready"] = sum(wait < 0.001 for wait in self.waits) / steps
        if idle is not None:
            figures["gpu_idle"] = idle
        return figures


def _times():
    """Returns the wall clock, and the CPU time of this process, of this thread, and of the child processes; all in
    seconds."""
    children, paths = 0, glob.glob("/proc/self/task/*/children")
    if not paths:
        raise OSError("/proc/self/task/*/children is missing, so the CPU time of child processes is not known")
    for path in paths:
        with open(path, encoding="ascii") as file:
            for child in file.read().split():
                with open(f"/proc/{child}/stat", encoding="ascii") as stat:
                    user, system = stat.read().rpartition(")")[2].split()[11:13]  # proc(5)
                children += int(user) + int(system)
    return time.perf_counter(), time.process_time(), time.thread_time(), children / os.sysconf("SC_CLK_TCK")
