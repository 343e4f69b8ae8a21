#!/usr/bin/env python3
"""Runs the steps of steps.py on a machine with a GPU, the most telling first, within the minutes that there are.

  ./run --minutes 8 --out DIR
  ./run --minutes 6 --out OTHER --from DIR/results.json   goes on: what passed is kept, what is left or was skipped is
                                                          run, and what failed or hung is run again at the end
  ./run --out OTHER --only NAME...                        these steps, whatever came of them before
  ./run --list                                            the steps, each with the seconds that it may take

DIR gets results.json, which is whole at any time and written anew whenever a step ends, and when all have ended, or at
SIGTERM, summary.txt and logs.tgz, a log of each step. A step that takes longer than its budget is ended, with all
processes of its group, and leaves their stacks. Exits with 1 if a step failed or hung.
"""

import argparse
import contextlib
import datetime
import glob
import importlib.util
import json
import os
import pathlib
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

KIT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(KIT))
from steps import STEPS

TELLING = re.compile(r"\bFAILED|\bMISSED|[Ee]rror\b|^skipped: |not found|cannot ")
MOST_LOG = 1 << 20  # bytes of a log's beginning, and of its end, that are packed

# Prints the names of the GPUs that programs see, the last one first, and an empty line. Then keeps a context on the
# first GPU until standard input ends. Without this, and without persistence mode, each process would wait seconds for
# the driver.
HOLD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
count, device, name, context = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_void_p()
if cuda.cuInit(0) == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
for number in reversed(range(count.value)):
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetName(name, len(name), device)
    print(name.value.decode())
print(flush=True)
if count.value:
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
sys.stdin.read()
"""


class Stopped(BaseException):
    """SIGTERM or SIGINT."""


def stop(number, frame):
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)


class Gpus:
    """The GPUs that programs see, whose driver is kept awake."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL,
                                       start_new_session=True, text=True)
        self.names = []
        if select.select([self.holder.stdout], [], [], 60)[0]:  # a driver that hangs prints nothing
            while name := self.holder.stdout.readline().strip():
                self.names.insert(0, name)

    def __str__(self) -> str:
        if not self.names:
            return "no GPU"
        driver = ""
        with contextlib.suppress(OSError):
            found = re.search(r"Module.*? (\d+\.[\d.]+)", pathlib.Path("/proc/driver/nvidia/version").read_text())
            driver = f", driver {found[1]}" if found else ""
        return self.names[0] + driver

    def close(self) -> None:
        self.holder.stdin.close()
        end_group(self.holder)


def add_tools_to_path() -> None:
    """compute-sanitizer, ncu and cuda-gdb are often installed beside the PATH."""
    folders = [os.environ.get("PATH", "")]
    for pattern in ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*", "/opt/nvidia/*/*"):
        folders += [path for path in sorted(glob.glob(pattern), reverse=True) if os.path.isdir(path)]
    os.environ["PATH"] = ":".join(folders)


def library_path() -> str:
    """Returns the LD_LIBRARY_PATH of the kit's programs. NCCL and cuBLAS are the system's, or those of Python's wheels."""
    try:
        import nvidia

        wheels = [folder for path in nvidia.__path__ for folder in glob.glob(path + "/*/lib")]
    except ImportError:
        wheels = []
    folders = [str(KIT / "lib"), *wheels, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    # No program starts if the machine's C++ library is older than the compiler's. Then the compiler's is used.
    program = next(filter(None, map(program_of, STEPS)), "")
    if re.search(r"GLIBCXX|libstdc\+\+|libgcc_s", " ".join(missing(program, ":".join(folders)))):
        folders.append(str(KIT / "lib-of-compiler"))
    return ":".join(folders)


def program_of(step) -> str:
    """Returns the compiled program of a step; an empty text if it has none."""
    words = [word for word in shlex.split(step.command) if word.startswith("./") and not word.endswith(".py")]
    return words[0] if words else ""


def missing(program: str, libraries: str) -> list[str]:
    """Returns what the loader says that the program lacks."""
    if not program:
        return []
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "LD_TRACE_LOADED_OBJECTS": "1"}
    try:
        done = subprocess.run([KIT / program], env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        return [str(error)]
    return [line.strip() for line in (done.stdout + done.stderr).splitlines() if "not found" in line]


def members(group: int) -> list[int]:
    """Returns the processes of a group."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as stat:
            pid, (_, _, its_group) = int(path.split("/")[2]), stat.read().rpartition(")")[2].split()[:3]
            if int(its_group) == group:
                found.append(pid)
    return sorted(found)


def write_stacks(group: int, path: pathlib.Path, seconds: float) -> None:
    """Writes where the threads of all processes of the group are: what the kernel says, and a debugger, if there is one."""
    debugger = shutil.which("cuda-gdb") or shutil.which("gdb")
    end = time.monotonic() + seconds
    with open(path, "w", encoding="utf-8") as out:
        for pid in members(group):
            out.write(f"==== process {pid}\n")
            for file in sorted(glob.glob(f"/proc/{pid}/task/*/*")):
                if file.rpartition("/")[2] in ("comm", "wchan", "stack", "status"):
                    with contextlib.suppress(OSError):
                        out.write(f"-- {file}\n{pathlib.Path(file).read_text(errors='replace')}\n")
            out.flush()
            if debugger and (left := end - time.monotonic()) > 0:
                command = [debugger, "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 20"]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
                    subprocess.run(command, timeout=left, check=False, **streams)


def end_group(process: subprocess.Popen) -> None:
    """Ends all processes of a group, also those that its first one has left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # if the kernel cannot end the process yet
        process.wait(10)


class Call:
    """One call of this program: its results so far, and what its steps need."""

    def __init__(self, flags: argparse.Namespace, before: list[dict]):
        self.out = flags.out.resolve()
        self.logs = self.out / "logs"
        self.begun = time.monotonic()
        self.end = self.begun + 60 * flags.minutes
        self.results = {entry["name"]: entry for entry in before}
        for step in STEPS:
            self.results.setdefault(step.name, {"name": step.name, "verdict": "not run", "why": "its turn did not come"})
        self.run_on = {"gpu": "not asked for yet", "date": datetime.date.today().isoformat()}
        self.write()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="feedline-gpu-"))
        self.gpus = Gpus()
        self.run_on["gpu"] = str(self.gpus)
        add_tools_to_path()
        self.libraries = library_path()
        for wheel in KIT.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(self.work / "site")
        sys.path.append(str(self.work / "site"))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a step that hangs is aborted, and must write no core file

    def order(self, only: list[str]) -> list:
        """Returns the steps to run."""
        if only:
            return [step for step in STEPS if step.name in only]
        verdicts = {step.name: self.results[step.name]["verdict"] for step in STEPS}
        new = [step for step in STEPS if step.always or verdicts[step.name] in ("not run", "skipped")]
        again = [step for step in STEPS if step not in new and verdicts[step.name] in ("failed", "hung")]
        return new + again

    def run(self, steps: list) -> None:
        for step in steps:
            left = self.end - time.monotonic()
            if left < step.seconds / 4:
                if self.results[step.name]["verdict"] == "not run":
                    self.note(step, "not run", why=f"{max(0, left):.0f} s were left, and it may take {step.seconds} s")
                continue
            if why := self.lacks(step):
                if self.results[step.name]["verdict"] not in ("passed", "failed", "hung"):
                    self.note(step, "skipped", why=why)
            else:
                self.run_step(step, left)

    def lacks(self, step) -> str:
        if step.needs_gpu and not self.gpus.names:
            return "there is no GPU"
        tool, program = shlex.split(step.command)[0], program_of(step)
        if not tool.startswith(("./", "{")) and not shutil.which(tool):
            return f"there is no {tool}"
        if lines := missing(program, self.libraries):
            return f"{program} does not start: " + "; ".join(lines[:3])
        if modules := [name for name in step.modules if importlib.util.find_spec(name) is None]:
            return f"Python has no {', '.join(modules)}"
        for wheel in KIT.glob("feedline-*.whl") if "feedline" in step.modules else ():
            major, minor = re.search(r"-cp(\d)(\d+)-", wheel.name).groups()
            if sys.version_info < (int(major), int(minor)):
                return f"{wheel.name} is not for this Python, {sys.version.split()[0]}"
        return ""

    def run_step(self, step, left: float) -> None:
        cpus = len(os.sched_getaffinity(0))
        json_file = self.logs / (step.name + ".json")
        places = {"python": sys.executable, "json": json_file, "data": self.work / "data", "gpus": len(self.gpus.names),
                  "powers": ",".join(str(1 << i) for i in range(cpus.bit_length()))}
        words = [word.format(**places) for word in shlex.split(step.command)]
        environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32", "FEEDLINE_SOURCE": str(KIT), "TMPDIR": str(self.work),
                       "PYTHONPATH": str(self.work / "site"), "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1",
                       "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **step.environment}
        if program_of(step):
            environment["LD_LIBRARY_PATH"] = self.libraries
            if shutil.which("stdbuf"):
                words = ["stdbuf", "-oL", *words]
        before, start, ended = self.results[step.name], time.monotonic(), None
        self.note(step, "not run", why="it had begun when the call was ended")
        log = self.logs / (step.name + ".log")
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen(words, cwd=KIT, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                process.wait(min(step.seconds, left))
            except subprocess.TimeoutExpired as late:
                ended = late
                if step.seconds <= left:
                    write_stacks(process.pid, self.logs / (step.name + ".stacks"), min(25, self.end - time.monotonic()))
                for pid in members(process.pid):  # Python then writes its threads' stacks into the log
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGABRT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(2)
            except Stopped as stopped:
                ended = stopped
            finally:
                end_group(process)
        seconds = round(time.monotonic() - start, 1)
        text = log.read_text(encoding="utf-8", errors="replace")
        code, why, found = process.returncode, last_words(text), figures(step, text, json_file)
        if ended is None:
            verdict = "passed" if code == 0 else "skipped" if code == 77 else "failed"
            if code < 0:
                why = f"ended by {signal.Signals(-code).name}; {why}"
            if verdict == "passed" and step.pattern and not found["figures"]:
                verdict, why = "failed", f"its log has no figures; {why}"
        elif isinstance(ended, subprocess.TimeoutExpired) and step.seconds <= left:
            verdict, why = "hung", f"it took more than {step.seconds} s; {why}"
        else:
            verdict, why = "not run", f"the call was ended after {seconds:.0f} s of its {step.seconds} s"
        if verdict == "not run" and before["verdict"] != "not run":
            self.results[step.name] = before  # keeps the result of an earlier call
        else:
            self.note(step, verdict, why=why, seconds=seconds, exit=code, **found)
        if verdict in ("failed", "hung"):
            print("".join(f"    {line}\n" for line in text.splitlines()[-25:]), end="", flush=True)
        if isinstance(ended, Stopped):
            raise ended

    def note(self, step, verdict: str, **more) -> None:
        """Writes what has come of a step, and of its parts."""
        parts = more.pop("parts", None)
        if parts is not None:
            self.results = {name: entry for name, entry in self.results.items() if entry.get("of") != step.name}
            for part in parts:
                name = f"{step.name}: {part['name']}"
                self.results[name] = {**self.run_on, **part, "name": name, "of": step.name}
        entry = {"name": step.name, "verdict": verdict, **self.run_on, **more}
        self.results[step.name] = entry
        if verdict != "not run":
            print(line_of(entry), flush=True)
        self.write()

    def write(self) -> None:
        new = self.out / "results.json.new"
        new.write_text(json.dumps({**self.run_on, "steps": self.entries()}, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self.out / "results.json")

    def entries(self) -> list[dict]:
        """Returns all results in the order of the steps, each before its parts."""
        places = {step.name: place for place, step in enumerate(STEPS)}
        place = lambda entry: places.get(entry.get("of", entry["name"]), len(places))
        return sorted(self.results.values(), key=lambda entry: (place(entry), "of" in entry))

    def close(self) -> None:
        """Packs the logs, and ends what runs beside the steps."""
        self.gpus.close()
        entries = sorted(self.entries(), key=lambda entry: entry["verdict"] not in ("failed", "hung"))
        (self.out / "summary.txt").write_text("".join(line_of(entry) + "\n" for entry in entries), encoding="utf-8")
        for path in self.logs.iterdir():
            shorten(path)
        with tarfile.open(self.out / "logs.tgz", "w:gz") as archive:
            archive.add(self.logs, "logs")
        shutil.rmtree(self.logs)
        shutil.rmtree(self.work, ignore_errors=True)


def last_words(text: str) -> str:
    """Returns in a line what a log tells: the lines that tell most, or its last one."""
    lines = list(dict.fromkeys(" ".join(line.split()) for line in text.splitlines() if line.strip()))
    return "; ".join(([line for line in lines if TELLING.search(line)] or lines[-1:])[-3:])[:400]


def figures(step, text: str, json_file: pathlib.Path) -> dict:
    """Returns what a step has left in its JSON, or in its log: its figures, or its parts, each a line of JSON."""
    if step.pattern:
        return {"figures": {name: " ".join(value.split()) for name, value in re.findall(step.pattern, text, re.MULTILINE)}}
    content = json_file.read_text(encoding="utf-8", errors="replace") if json_file.exists() else ""
    found = []
    for part in content.splitlines() if step.has_parts else [content]:
        with contextlib.suppress(ValueError):  # the last line may be cut if the step was ended
            found.append(json.loads(part))
    if step.has_parts:
        return {"parts": found}
    return {"figures": found[0]} if found else {}


def line_of(entry: dict) -> str:
    seconds = f"{entry['seconds']:.1f} s" if "seconds" in entry else ""
    return f"{entry['verdict']:<8} {entry['name']:<24} {seconds:>8}  {entry.get('why') or entry.get('figure') or ''}".rstrip()


def shorten(path: pathlib.Path) -> None:
    """Cuts the middle out of a log that is too large to be packed."""
    if path.stat().st_size > 2 * MOST_LOG:
        content = path.read_bytes()
        path.write_bytes(content[:MOST_LOG] + b"\n[...]\n" + content[-MOST_LOG:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8, help="for all steps together")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"), help="a folder for the results")
    parser.add_argument("--from", dest="before", type=pathlib.Path,
                        help="results.json of an earlier run to continue: its passed steps are kept, the others are run")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="steps")
    parser.add_argument("--list", action="store_true")
    flags = parser.parse_args()
    if unknown := set(flags.only) - {step.name for step in STEPS}:
        parser.error(f"there is no step {', '.join(sorted(unknown))}; ./run --list prints them")
    if flags.list:
        for step in STEPS:
            print(f"{step.name:<24} {step.seconds:>4} s  {step.command}")
        return 0
    if flags.minutes <= 0:
        parser.error(f"--minutes must be more than 0, not {flags.minutes:g}")
    if (flags.out / "results.json").exists():
        parser.error(f"{flags.out} has the results of another call; name a new folder")
    before = []
    if flags.before:
        try:
            before = json.loads(flags.before.read_text(encoding="utf-8"))["steps"]
            before = [{**entry, "name": entry["name"], "verdict": entry["verdict"]} for entry in before]
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"--from: {flags.before} is no results.json of another call: {error!r}")
    try:
        (flags.out / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {error}")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    call, code = None, 0
    try:
        call = Call(flags, before)
        call.run(call.order(flags.only))
    except Stopped as stopped:
        code = 128 + stopped.args[0]
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if call:
            call.close()
    counts = {}
    for entry in call.results.values() if call else ():
        counts[entry["verdict"]] = counts.get(entry["verdict"], 0) + 1
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return code or int("failed" in counts or "hung" in counts)


if __name__ == "__main__":
    sys.exit(main())
