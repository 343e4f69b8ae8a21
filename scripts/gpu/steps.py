"""What is run on a machine with a GPU, the most telling first."""

from typing import NamedTuple


class Step(NamedTuple):
    """A program that says by its exit status what came of it: 0 passed, 77 skipped, any other failed.

    In its command {python} is the interpreter, {json} a file for figures, {data} a folder for made-up data that all steps
    share, {gpus} the number of GPUs, and {powers} the powers of two up to the number of CPUs. A compiled program of the
    kit begins with "./"."""

    name: str
    seconds: int  # its budget: about twice what it is expected to take
    command: str
    modules: tuple = ()  # Python modules without which the step is skipped
    needs_gpu: bool = False  # skipped without a GPU; compiled programs find this out themselves
    environment: dict = {}
    pattern: str = ""  # a regular expression that finds names and values of figures in the log; empty: {json} has them
    has_parts: bool = False  # {json} has a line for each of its parts, with a name and a verdict
    always: bool = False  # it is run again in each call of `run`


# Leaves out cases that stop a stream until another stream has continued: with compute-sanitizer, streams may wait for
# one another.
HELD = "~[holds]"
THOUSAND = "a thousand feeders*"
TABLES = ("rows of a table that lies on each GPU*", "a table on GPUs*")


def sanitized(name: str, seconds: int, command: str, ours_alone: bool = False) -> Step:
    """A step "TOOL-NAME" in compute-sanitizer. What it finds is an error; a call of CUDA that fails is none, because
    feedline and NCCL ask for what a GPU may not have, and go on without it. Of programs with NCCL only our own kernels
    are checked."""
    options = f"--tool {name.partition('-')[0]} --print-limit 10 --error-exitcode 9 --report-api-errors no"
    kernels = " --kernel-name kernel_substring=feedline" if ours_alone else ""
    return Step(name, seconds, f"compute-sanitizer {options}{kernels} {command}", needs_gpu=True)


def profiled(name: str, case: str) -> Step:
    """A step in which ncu looks at the kernel of a case of unpack_check."""
    sections = " ".join("--section " + section for section in ("SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats"))
    figures = r"Duration|DRAM Throughput|Compute \(SM\) Throughput|Registers Per Thread|Achieved Occupancy"
    return Step(
        name,
        40,
        f"ncu --clock-control none --kernel-name unpack --launch-skip 2 --launch-count 1 {sections} ./unpack_gpu_check --bench '{case}'",
        needs_gpu=True,
        pattern=rf"^ +({figures}) +(\S+ +[\d.,]+) *$",
    )


STEPS = [
    Step("facts", 30, "{python} facts.py", always=True),
    # Kernels, compared bit for bit with the host's code.
    Step("unpack", 60, "./unpack_gpu_check"),
    Step("copy", 30, "./copy_gpu_check -d yes"),
    Step("copy-after-host-function", 20, "./host_function_copy_test", pattern=r"^(.+ bytes): (.+)$"),
    # Feeds to GPUs, compared byte for byte with feeds to the host.
    Step("feed", 110, f"./device_feed_test -d yes '~{THOUSAND}' '~{TABLES[0]}' '~{TABLES[1]}'"),
    Step(
        "python",
        240,
        "{python} checks_python.py . --device cuda:0 --json {json}",
        ("numpy", "feedline"),
        needs_gpu=True,
        has_parts=True,
    ),
    Step(
        "random-pipelines",
        90,
        "{python} tests/property/property_test.py --gpus real --seconds 45",
        ("numpy", "feedline"),
        needs_gpu=True,
        pattern=r"^(\d+ pipelines of seed \d+): (.+)$",
    ),
    # Training and NCCL, as far as one GPU goes.
    Step("data-parallel", 60, "./data_parallel_gpu_test -d yes"),
    Step("nccl", 40, "./nccl_communicator_test -d yes"),
    Step("nccl-feed", 60, "./nccl_feed_test -d yes"),
    Step("nccl-processes", 40, "./nccl_processes_test -d yes"),
    # Benchmarks.
    Step("gpu-bench", 75, "./gpu_bench --rounds 3 --data {data} --json {json}"),
    Step(
        "trainers",
        150,
        "{python} bench/trainers/compare.py --device cuda --works chess cifar --steps 1500 --rounds 1 --json {json}",
        ("torch", "numpy", "feedline"),
        needs_gpu=True,
    ),
    Step("train-chess", 60, "{python} train_gpu_test.py ./train_chess ./train_chess . {gpus}", needs_gpu=True),
    Step("tables", 40, f"./device_feed_test -d yes -w NoTests '{TABLES[0]},{TABLES[1]}'"),
    Step("thousand-feeders", 60, f"./device_feed_test -w NoTests '{THOUSAND}'"),
    # compute-sanitizer, on small sets of cases.
    sanitized("memcheck-unpack", 60, "./unpack_gpu_check --cases 60"),
    sanitized("memcheck-copy", 40, "./copy_gpu_check"),
    sanitized("racecheck-unpack", 60, "./unpack_gpu_check --cases 20"),
    sanitized("initcheck-unpack", 60, "./unpack_gpu_check --cases 20"),
    sanitized("synccheck-unpack", 60, "./unpack_gpu_check --cases 20"),
    # Profiles of the kernels that write most of the data for trainers.
    profiled("ncu-bits", "chess board FLOAT32"),
    profiled("ncu-planes", "image 256x256 HWC to CHW normalized BFLOAT16"),
    profiled("ncu-bytes", "image 256x256 HWC to HWC normalized FLOAT32"),
    profiled("ncu-casts", "vector FLOAT32 to BFLOAT16"),
    # Feeds to the host, on more cores than other measurements had.
    Step("cores", 150, "./feed_bench --rounds 1 --threads {powers} --data {data} --json {json}"),
    # With fewer hardware queues (connections), which streams then share: 8 is CUDA's default, and some trainers set 1.
    Step("feed-8-connections", 110, f"./device_feed_test -d yes '~{THOUSAND}'", environment={"CUDA_DEVICE_MAX_CONNECTIONS": "8"}),
    Step(
        "gpu-bench-1-connection",
        75,
        "./gpu_bench --rounds 3 --data {data} --json {json}",
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    # Checks that take long.
    sanitized("memcheck-feed", 180, f"./device_feed_test '~{THOUSAND}' '{HELD}'"),
    sanitized("memcheck-data-parallel", 90, "./data_parallel_gpu_test", ours_alone=True),
    sanitized("memcheck-nccl-feed", 90, f"./nccl_feed_test '{HELD}'", ours_alone=True),
    sanitized("memcheck-nccl", 90, "./nccl_communicator_test", ours_alone=True),
    Step("unpack-rates", 60, "./unpack_gpu_check --bench 'normalized FLOAT32'", pattern=r"^(.+) \(ring.*\n +GPU +(.+)$"),
]
