#!/usr/bin/env python3
"""gpu_run_test.py SOURCE FAKE_DRIVER: what scripts/gpu/run.py makes of steps that are made up here. None needs a GPU."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE = pathlib.Path(sys.argv[1]).resolve() / "scripts" / "gpu"
FAKE_DRIVER = pathlib.Path(sys.argv[2]).resolve()
FOREVER = 1000  # seconds


class Kit:
    """A copy of the runner beside other steps. Each step adds its name to the file `ran`."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        (folder / "kit").mkdir()
        shutil.copy(SOURCE / "run.py", folder / "kit" / "run")
        self.step_class = (SOURCE / "steps.py").read_text(encoding="utf-8").partition("\n\n\n#")[0] + "\n\n\n"
        assert self.step_class.rstrip().splitlines()[-1].startswith("    always: bool"), "not the class only"

    def steps(self, **steps: dict) -> None:
        """Gives the runner steps: by name a command or a shell script, whose $1 is {json}, and what else a Step has."""
        lines = []
        for name, step in steps.items():
            more = {key: value for key, value in step.items() if key not in ("shell", "command", "seconds")}
            if "shell" in step:
                (self.folder / "kit" / f"{name}.sh").write_text(f"echo {name} >> ../ran\n{step['shell']}\n")
            command = step.get("command", f"sh {name}.sh {{json}}")
            lines.append(f"    Step({name!r}, {step.get('seconds', 60)}, {command!r}, **{more!r}),\n")
        text = self.step_class + "STEPS = [\n" + "".join(lines) + "]\n"
        (self.folder / "kit" / "steps.py").write_text(text, encoding="utf-8")

    def start(self, out: str, *arguments: str) -> subprocess.Popen:
        (self.folder / "ran").write_text("")
        command = [sys.executable, self.folder / "kit" / "run", "--out", out, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                env=self.environment)

    def run(self, out: str, *arguments: str, code: int = 0) -> dict[str, dict]:
        """Returns the entries of the results by their names."""
        process = self.start(out, *arguments)
        text, _ = process.communicate()
        assert process.returncode == code, f"{process.returncode}: {text}"
        assert sorted(path.name for path in (self.folder / out).iterdir()) == ["logs.tgz", "results.json", "summary.txt"]
        return self.results(out)

    def results(self, out: str) -> dict[str, dict]:
        content = json.loads((self.folder / out / "results.json").read_text(encoding="utf-8"))
        return {entry["name"]: entry for entry in content["steps"]}

    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().split()

    def log(self, out: str, name: str) -> str:
        with tarfile.open(self.folder / out / "logs.tgz") as logs:
            return logs.extractfile("logs/" + name).read().decode()


def lives(pid: int) -> bool:
    """Whether a process that was killed is still there, when the kernel has had time to end it."""
    with contextlib.suppress(OSError):
        for _ in range(6000):
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
            time.sleep(0.01)
        return True
    return False


def test_verdicts(kit: Kit) -> None:
    one, two = {"name": "one", "verdict": "passed"}, {"name": "two", "verdict": "failed", "why": "two is odd"}
    # The last line was being written when the program ended.
    (kit.folder / "parts").write_text(f'{json.dumps(one)}\n{json.dumps(two)}\n{{"name": "thr')
    kit.steps(
        passes={"shell": "echo all is well"},
        skips={"shell": "echo skipped: no GPU; exit 77"},
        fails={"shell": "echo before; echo the check FAILED here; echo after; exit 3"},
        dies={"shell": "kill -SEGV $$"},
        measures={"shell": """echo '{"rate": 5}' > $1; exit 1"""},
        counts={"shell": "echo Duration 5 us; echo nothing else", "pattern": r"^(\w+) (\d+ us)$"},
        counts_not={"shell": "echo nothing", "pattern": r"^(\w+) (\d+ us)$"},
        parts={"shell": f"cat {kit.folder}/parts > $1", "has_parts": True},
        lacks_tool={"command": "no-such-tool ./program"},
        lacks_program={"command": "./program"},
        lacks_module={"shell": "exit 1", "modules": ("no_such_module",)},
    )
    results = kit.run("out", code=1)
    assert list(results).index("parts: two") == list(results).index("parts") + 2
    verdicts = {name: entry["verdict"] for name, entry in results.items()}
    assert verdicts == {
        "passes": "passed", "skips": "skipped", "fails": "failed", "dies": "failed", "measures": "failed", "counts": "passed",
        "counts_not": "failed", "parts": "passed", "parts: one": "passed", "parts: two": "failed", "lacks_tool": "skipped",
        "lacks_program": "skipped", "lacks_module": "skipped"}, verdicts
    assert kit.ran() == ["passes", "skips", "fails", "dies", "measures", "counts", "counts_not", "parts"], kit.ran()
    assert results["passes"]["why"] == "all is well" and results["passes"]["exit"] == 0 and results["passes"]["seconds"] >= 0
    assert results["skips"]["why"] == "skipped: no GPU"
    assert results["fails"]["why"] == "the check FAILED here" and results["fails"]["exit"] == 3
    assert results["dies"]["why"].startswith("ended by SIGSEGV")
    assert results["measures"]["figures"] == {"rate": 5} and results["counts"]["figures"] == {"Duration": "5 us"}
    assert results["parts: two"]["why"] == "two is odd" and results["parts: two"]["of"] == "parts"
    assert results["lacks_tool"]["why"] == "there is no no-such-tool"
    assert results["lacks_program"]["why"].startswith("./program does not start: ")
    assert results["lacks_module"]["why"] == "Python has no no_such_module"
    assert kit.log("out", "fails.log") == "before\nthe check FAILED here\nafter\n"
    summary = (kit.folder / "out" / "summary.txt").read_text().splitlines()
    assert [line.split()[0] for line in summary[:6]] == ["failed"] * 5 + ["passed"] and len(summary) == 13, summary


def test_hang(kit: Kit) -> None:
    """What hangs is ended with all its processes, says where it was, and keeps nothing else from running."""
    (kit.folder / "kit" / "wait.py").write_text(f"import time\n\ndef wait_here():\n    time.sleep({FOREVER})\n\nwait_here()\n")
    kit.steps(
        shell={"shell": f"sleep {FOREVER} & echo $! > ../child; echo begun; wait", "seconds": 1},
        python={"command": "{python} wait.py", "seconds": 2},
        after={"shell": "true"},
    )
    results = kit.run("out", code=1)
    assert [entry["verdict"] for entry in results.values()] == ["hung", "hung", "passed"], results
    assert results["shell"]["why"] == "it took more than 1 s; begun", results["shell"]
    child = int((kit.folder / "child").read_text())
    assert not lives(child), "a process of a step that hung still runs"
    stacks = kit.log("out", "shell.stacks")
    assert f"==== process {child}" in stacks and "wchan" in stacks and "State:" in stacks, stacks
    assert "in wait_here" in kit.log("out", "python.log"), kit.log("out", "python.log")


def test_stopped_and_gone_on(kit: Kit) -> None:
    steps = {
        "facts": {"shell": "true", "always": True},
        "good": {"shell": "true"},
        "lacking": {"shell": "exit 77"},
        "bad": {"shell": "exit 1"},
        "long": {"shell": f"sleep {FOREVER} & echo $! > ../new; mv ../new ../begun; wait"},
        "last": {"shell": "true"},
    }
    kit.steps(**steps)
    process = kit.start("first")
    while not (kit.folder / "begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    verdicts = {name: entry["verdict"] for name, entry in kit.results("first").items()}
    wanted = {"facts": "passed", "good": "passed", "lacking": "skipped", "bad": "failed", "long": "not run", "last": "not run"}
    assert verdicts == wanted, verdicts
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, text
    assert not lives(int((kit.folder / "begun").read_text()))
    results = kit.results("first")
    assert {name: entry["verdict"] for name, entry in results.items()} == wanted
    assert results["long"]["why"].startswith("the call was ended after "), results["long"]
    assert results["last"]["why"] == "its turn did not come"
    assert kit.log("first", "long.log") == ""

    steps["long"] = {"shell": "true"}
    kit.steps(**steps)
    results = kit.run("second", "--from", "first/results.json", code=1)
    assert kit.ran() == ["facts", "lacking", "long", "last", "bad"], kit.ran()
    assert [entry["verdict"] for entry in results.values()] == ["passed", "passed", "skipped", "failed", "passed", "passed"]

    kit.run("third", "--from", "second/results.json", "--only", "good", code=1)
    assert kit.ran() == ["good"], kit.ran()


def test_time_is_up(kit: Kit) -> None:
    """When the minutes are over, what runs is ended and is not called hung, and nothing else begins."""
    kit.steps(long={"shell": f"sleep {FOREVER}", "seconds": 8}, other={"shell": "true", "seconds": 8})
    results = kit.run("out", "--minutes", "0.04")
    assert [entry["verdict"] for entry in results.values()] == ["not run", "not run"], results
    assert results["long"].get("seconds", 0) < 8, results["long"]
    assert results["other"]["why"].endswith("s were left, and it may take 8 s"), results["other"]
    assert "other" not in kit.ran()


def test_gpus(kit: Kit) -> None:
    """Each result has the GPU on which it was got. What keeps the GPU awake ends with the run."""
    kit.steps(on_gpu={"shell": "true", "needs_gpu": True}, count={"command": "sh -c 'echo {gpus}'"})
    results = kit.run("without")
    (kit.folder / "before.json").write_text(json.dumps({"steps": [{"name": "on_gpu", "verdict": "failed", "gpu": "a GPU"}]}))
    kept = kit.run("kept", "--from", "before.json", code=1)
    assert kept["on_gpu"] == {"name": "on_gpu", "verdict": "failed", "gpu": "a GPU"}, "a result was lost where there is no GPU"
    assert results["on_gpu"] == {**results["on_gpu"], "verdict": "skipped", "why": "there is no GPU", "gpu": "no GPU"}
    assert results["count"]["why"] == "0"
    (kit.folder / "libcuda.so.1").symlink_to(FAKE_DRIVER)
    kit.environment["LD_LIBRARY_PATH"] = str(kit.folder)
    holders = "for child in $(cat /proc/$PPID/task/$PPID/children); do grep -l cuDevicePrimaryCtxRetain /proc/$child/cmdline; done"
    kit.steps(on_gpu={"shell": "true", "needs_gpu": True}, count={"command": f"sh -c 'echo {{gpus}}; {holders}'"})
    results = kit.run("with")
    assert results["on_gpu"]["verdict"] == "passed" and results["on_gpu"]["gpu"].startswith("Fake GPU 0")
    count, *holders = kit.log("with", "count.log").splitlines()
    assert count == "2" and holders and not any(lives(int(path.split("/")[2])) for path in holders), holders


def test_what_it_refuses(kit: Kit) -> None:
    kit.steps(one={"shell": "true"})
    kit.run("out")
    for arguments, wanted in (
        (["--only", "two"], "there is no step two"),
        ([], "has the results of another call"),
        (["--minutes", "0"], "--minutes must be more than 0, not 0"),
        (["--out", "new", "--from", "no"], "--from: no is no results.json of another call"),
        (["--out", "new", "--from", "kit/run"], "--from: kit/run is no results.json of another call"),
        (["--out", "kit/run"], "--out: "),
    ):
        process = kit.start("out", *arguments)
        text, _ = process.communicate()
        assert process.returncode == 2 and wanted in text, text
    process = kit.start("out", "--list")
    assert process.communicate()[0].startswith("one ") and kit.ran() == []


def main() -> None:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(Kit(pathlib.Path(folder)))


if __name__ == "__main__":
    main()
