"""For how much of the time a GPU is idle, as NVIDIA's management library (NVML) tells."""

import ctypes
import threading

import torch


class GpuWatch:
    """Looks at torch's current GPU between begin() and end(), each of which waits until the GPU has done its work. NVML
    tells the share of the last moments, a sixth of a second to a second, in which a kernel was running: so it takes
    seconds to see something."""

    EVERY = 0.05  # seconds

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        found = self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.handle))
        if found != 0:
            raise OSError(f"NVML does not find {uuid}: {found}")

    def begin(self):
        torch.cuda.synchronize()
        self.busy, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def end(self):
        """Returns the share of the time in which no kernel was running; None if NVML does not tell it."""
        torch.cuda.synchronize()
        self.ended.set()
        self.thread.join()
        return 1 - sum(self.busy) / len(self.busy) if self.busy else None

    def _look(self):
        rates = (ctypes.c_uint * 2)()  # of the GPU and of its memory, in percent
        while not self.ended.wait(self.EVERY):
            if self.nvml.nvmlDeviceGetUtilizationRates(self.handle, rates) == 0:
                self.busy.append(rates[0] / 100)
