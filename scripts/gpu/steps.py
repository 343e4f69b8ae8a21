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
    modules: tuple = ()  # of Python, without which it is skipped
    needs_gpu: bool = False  # it is skipped without one; compiled programs say so themselves
    environment: dict = {}
    pattern: str = ""  # finds figures in its log, each a name and a value, instead of in {json}
    has_parts: bool = False  # {json} has a line for each of its parts, with a name and a verdict
    always: bool = False  # it is run in each call


# What compute-sanitizer finds is an error; a call of CUDA that fails is none, because feedline and NCCL ask for what a GPU
# may not have, and go on without it.
SANITIZER = "compute-sanitizer --print-limit 10 --error-exitcode 9 --report-api-errors no --tool "
# Cases that hold a stream until another one has gone on: under memcheck streams may wait for one another.
HELD = "~[holds]"
THOUSAND = "a thousand feeders*"
TABLES = ("rows of a table that lies on each GPU*", "a table on GPUs*")
NCU = (
    "ncu --clock-control none --kernel-name unpack --launch-skip 2 --launch-count 1 --section SpeedOfLight "
    "--section LaunchStats --section Occupancy --section WarpStateStats ./unpack_gpu_check --bench "
)
NCU_FIGURES = r"^ +(Duration|DRAM Throughput|Compute \(SM\) Throughput|Registers Per Thread|Achieved Occupancy) +(\S+ +[\d.,]+)$"

STEPS = [
    Step("facts", 30, "{python} facts.py", always=True),
    # Kernels, bit for bit.
    Step("unpack", 60, "./unpack_gpu_check"),
    Step("copy", 30, "./copy_gpu_check -d yes"),
    Step("copy-after-host-function", 20, "./host_function_copy_test", pattern=r"^(.+ bytes): (.+)$"),
    # Feeds, byte for byte what the host is given.
    Step("feed", 110, f"./device_feed_test -d yes '~{THOUSAND}' '~{TABLES[0]}' '~{TABLES[1]}'"),
    Step("python", 240, "{python} checks_python.py . --device cuda:0 --json {json}", ("numpy", "feedline"), needs_gpu=True, has_parts=True),
    # Training and NCCL, as far as one GPU goes.
    Step("data-parallel", 60, "./data_parallel_gpu_test -d yes"),
    Step("nccl", 40, "./nccl_communicator_test -d yes"),
    Step("nccl-feed", 60, "./nccl_feed_test -d yes"),
    Step("nccl-processes", 40, "./nccl_processes_test -d yes"),
    # What it costs.
    Step("gpu-bench", 75, "./gpu_bench --rounds 3 --data {data} --json {json}"),
    Step(
        "trainers",
        150,
        "{python} bench/trainers/compare.py --device cuda --works chess cifar --steps 3000 --rounds 1 --json {json}",
        ("torch", "numpy", "feedline"),
        needs_gpu=True,
    ),
    Step("train-chess", 60, "{python} train_gpu_test.py ./train_chess ./train_chess . {gpus}", needs_gpu=True),
    Step("tables", 40, f"./device_feed_test -d yes '{TABLES[0]},{TABLES[1]}'"),
    Step("thousand-feeders", 60, f"./device_feed_test '{THOUSAND}'"),
    # compute-sanitizer over small sets.
    Step("memcheck-unpack", 60, SANITIZER + "memcheck ./unpack_gpu_check --cases 60"),
    Step("memcheck-copy", 40, SANITIZER + "memcheck ./copy_gpu_check"),
    Step("racecheck-unpack", 60, SANITIZER + "racecheck ./unpack_gpu_check --cases 20"),
    Step("initcheck-unpack", 60, SANITIZER + "initcheck ./unpack_gpu_check --cases 20"),
    Step("synccheck-unpack", 60, SANITIZER + "synccheck ./unpack_gpu_check --cases 20"),
    # The kernels that write most of what trainers are fed.
    Step("ncu-bits", 40, NCU + "'chess board FLOAT32'", pattern=NCU_FIGURES),
    Step("ncu-planes", 40, NCU + "'image 256x256 HWC to CHW normalized BFLOAT16'", pattern=NCU_FIGURES),
    Step("ncu-bytes", 40, NCU + "'image 256x256 HWC to HWC normalized FLOAT32'", pattern=NCU_FIGURES),
    Step("ncu-casts", 40, NCU + "'vector FLOAT32 to BFLOAT16'", pattern=NCU_FIGURES),
    # The host's part, on more cores than were measured elsewhere.
    Step("cores", 150, "./feed_bench --rounds 1 --threads {powers} --data {data} --json {json}"),
    # Streams that share the hardware's queues, as with the default number of connections, and with a trainer's.
    Step("feed-8-connections", 110, f"./device_feed_test -d yes '~{THOUSAND}'", environment={"CUDA_DEVICE_MAX_CONNECTIONS": "8"}),
    Step(
        "gpu-bench-1-connection",
        75,
        "./gpu_bench --rounds 3 --data {data} --json {json}",
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    # What takes long.
    Step("memcheck-feed", 180, SANITIZER + f"memcheck ./device_feed_test '~{THOUSAND}' '{HELD}'"),
    Step("memcheck-data-parallel", 90, SANITIZER + "memcheck --kernel-name kernel_substring=feedline ./data_parallel_gpu_test"),
    Step("memcheck-nccl-feed", 90, SANITIZER + f"memcheck --kernel-name kernel_substring=feedline ./nccl_feed_test '{HELD}'"),
    Step("memcheck-nccl", 90, SANITIZER + "memcheck --kernel-name kernel_substring=feedline ./nccl_communicator_test"),
    Step("unpack-rates", 60, "./unpack_gpu_check --bench 'normalized FLOAT32'", pattern=r"^(.+) \(ring.*\n +GPU +(.+)$"),
]
