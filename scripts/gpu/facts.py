"""Prints what a machine with a GPU is, so that what happens there later can be understood."""

import glob
import importlib.metadata
import os
import pathlib
import platform
import resource
import shutil
import subprocess
import sys

COMMANDS = (
    "nvidia-smi",
    "nvidia-smi --query-gpu=name,driver_version,persistence_mode,compute_mode,mig.mode.current,ecc.mode.current,"
    "memory.total,memory.used,pcie.link.gen.max,pcie.link.width.max,clocks.max.sm,clocks.max.memory,power.limit --format=csv",
    "nvidia-smi topo -m",
    "lscpu",
    "free -m",
    "df -h / /tmp /dev/shm",
    "ip -brief address",
)
FILES = (
    "/proc/driver/nvidia/version",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/memory.max",
    "/sys/devices/system/node/online",
    "/etc/os-release",
)
TOOLS = ("nvcc", "compute-sanitizer", "ncu", "cuda-gdb", "gdb", "stdbuf", "python3", "mpirun")
PACKAGES = ("torch", "jax", "jaxlib", "cupy-cuda13x", "tensorflow", "numpy", "nvidia-nccl-cu13", "nvidia-cublas", "nvidia-dali-cuda130")


def main() -> None:
    for command in COMMANDS:
        print(f"== {command}", flush=True)
        try:
            subprocess.run(command.split(), stdin=subprocess.DEVNULL, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(error)
    for path in FILES:
        if os.path.exists(path):
            print(f"== {path}\n{pathlib.Path(path).read_text(errors='replace').strip()}")
    for device in map(pathlib.Path, sorted(glob.glob("/sys/bus/pci/devices/*"))):
        if (device / "vendor").read_text().strip() == "0x10de":  # NVIDIA
            print(f"== {device.name}: NUMA node {(device / 'numa_node').read_text().strip()}")
    print("== limits")
    for name in ("RLIMIT_MEMLOCK", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_STACK"):
        print(name, *resource.getrlimit(getattr(resource, name)))
    print("CPUs of this process:", len(os.sched_getaffinity(0)))
    print("== versions")
    print(platform.platform(), platform.libc_ver(), sys.executable, platform.python_version())
    for package in PACKAGES:
        try:
            print(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            print(package, "not here")
    print("== tools")
    for tool in TOOLS:
        print(tool, shutil.which(tool) or "not here")
    print("== environment")
    for name in sorted(os.environ):
        if name.startswith(("CUDA", "NCCL", "NVIDIA", "LD_", "XLA", "PYTHON", "OMP")):
            print(f"{name}={os.environ[name]}")
    print("== all told")


if __name__ == "__main__":
    main()
