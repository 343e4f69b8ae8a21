#!/usr/bin/env python3
"""times_test.py SOURCE: what scripts/times.py says of a build and a run of tests that are made up here."""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
TIMES = SOURCE / "scripts" / "times.py"


def said(copy: pathlib.Path, *arguments: str) -> str:
    return subprocess.run([sys.executable, copy, *arguments], check=True, capture_output=True, text=True).stdout


def build(folder: pathlib.Path, seconds: dict[str, float]) -> None:
    """A build folder whose steps took so long, and one test that took two seconds."""
    (folder / "meson-info").mkdir(exist_ok=True)
    (folder / "meson-logs").mkdir(exist_ok=True)
    lines = ["# ninja log v5\n"]
    for number, (name, value) in enumerate(seconds.items()):
        lines.append(f"0\t{int(value * 1000)}\t0\t{name}\t{number:x}\n")
    (folder / ".ninja_log").write_text("".join(lines), encoding="utf-8")
    command = ["/somewhere/a_test", "[part]"]
    tests = [{"name": "a test, on a disk", "cmd": command}, {"name": "a test", "cmd": command}]
    (folder / "meson-info" / "intro-tests.json").write_text(json.dumps(tests), encoding="utf-8")
    log = {"name": "feedline:unit+commit / a test", "duration": 2.5, "result": "OK"}
    (folder / "meson-logs" / "testlog-count_cpu.sh.json").write_text(json.dumps(log) + "\n", encoding="utf-8")


def count_cpu(folder: pathlib.Path) -> None:
    """Runs a program by that name for a while, as `meson test` does."""
    (folder / "cpu-times").mkdir(exist_ok=True)
    program = folder / "a_test"
    program.write_text(f"#!{sys.executable}\nimport time\nwhile time.process_time() < 0.3: pass\nraise SystemExit(7)\n")
    program.chmod(0o755)
    counted = [SOURCE / "scripts" / "count_cpu.sh", program, "[part]"]
    done = subprocess.run(counted, env={"FEEDLINE_CPU_TIMES": str(folder / "cpu-times"), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == 7, done


def end_what_prints_without_end(folder: pathlib.Path) -> None:
    for stream in ("stdout", "stderr"):
        command = [SOURCE / "scripts" / "count_cpu.sh", "sh", "-c", "yes" if stream == "stdout" else "exec yes >&2"]
        environment = {"FEEDLINE_CPU_TIMES": str(folder), "PATH": "/usr/bin:/bin"}
        with open(folder / "printed", "wb") as printed:
            done = subprocess.run(command, env=environment, check=False, **{stream: printed})
        assert done.returncode == 128 + signal.SIGPIPE, done
        assert (folder / "printed").stat().st_size == 32 << 20


def cpu_of_tests(copy: pathlib.Path, folder: str) -> dict[str, float]:
    spec = importlib.util.spec_from_file_location("times_copy", copy)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cpu_of_tests(folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        # Beside a copy of the program lies the budget of this test.
        copy = folder / "times.py"
        copy.write_text(TIMES.read_text(encoding="utf-8"), encoding="utf-8")
        usual = {f"lib{number}.a.p/unit{number}.cc.o": 3.0 + number for number in range(6)}
        build(folder, {**usual, "small.o": 0.5})
        count_cpu(folder)
        end_what_prints_without_end(pathlib.Path(tempfile.mkdtemp(dir=work)))
        said(copy, "budget", work)
        budget = json.loads((folder / "budget.json").read_text(encoding="utf-8"))
        assert budget["compiling"]["lib0.a.p/unit0.cc.o"] == 3.0 and "small.o" not in budget["compiling"], budget
        assert budget["rest"]["compiling"] == 0.5 and 0.25 < budget["rest"]["testing"] < 2, budget

        text = said(copy, "compiled", work, "--seconds", "75")
        assert "building took 1 min 15 s; longest: unit5.cc.o 8.0 s; unit4.cc.o 7.0 s" in text, text
        assert "compiling: 34 s of CPU; the budget is 34 s" in text and "grown" not in text, text

        # A machine that is half as fast, where one unit has grown, and one is new.
        build(folder, {name: 2 * seconds for name, seconds in usual.items()} | {"lib2.a.p/unit2.cc.o": 30, "new.o": 9})
        text = said(copy, "compiled", work, "--seconds", "5")
        assert "this machine takes 2.00 times as long" in text, text
        grown = [line for line in text.splitlines() if "grown" in line]
        assert grown == ["  grown: unit2.cc.o: 30.0 s, budget 5.0 s", "  grown: new.o: 9.0 s, budget less than 2 s"], text

        # What ninja did before is not told again.
        lines = (folder / ".ninja_log").read_text(encoding="utf-8").splitlines()
        before = folder / "before"
        before.write_text("\n".join(sorted(lines)), encoding="utf-8")
        assert "unit" not in said(copy, "compiled", work, "--before", before, "--seconds", "0")
        before.write_text("\n".join(sorted(lines[:-1])), encoding="utf-8")
        assert "longest: new.o 9.0 s\n" in said(copy, "compiled", work, "--before", before, "--seconds", "0")

        text = said(copy, "tested", work, "--seconds", "3")
        assert "running the tests took 3 s; longest: a test 2.5 s" in text and "testing: 0 s of CPU" in text, text
        assert list(cpu_of_tests(copy, work)) == ["a test"]


if __name__ == "__main__":
    main()
