#!/usr/bin/env python3
"""Shows that the tests watch every bound: moves each by one, and removes it, and runs the tests that reach it.

  tests/mutation/move_bounds.py prepare DIR          copies the sources to DIR, changes them there and builds the tests
  tests/mutation/move_bounds.py run DIR [--only RE]  tries each bound whose "FILE:LINE: CODE" the expression finds
  tests/mutation/move_bounds.py report DIR           the bounds that no test watches

A bound is a comparison (< <= > >=) of integers or pointers in FOLDERS, but no invariant, which only a fault of feedline's
own could break. All are changed in one build (mutant.h); the variable MUTANT says which one to get wrong, so nothing is
compiled again for it. It may be wrong in four ways: `equal` moves it by one, so that equal sides are answered otherwise;
`farther` by one in the other direction; `never` and `always` remove it. A comment in the same line or the line before
says why no test can notice: `// Any bound: REASON`, or `// Bound may be equal, never: REASON`. `run` can be stopped and
goes on where it was; the report exits with 1 if a bound is not watched, or was not tried. Needs libclang (PyPI), of the version of the
clang that is installed.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = (
    *(f"flowgraph/{room}/" for room in ("parse", "chunk", "rows", "batch", "table")),
    *("io/cache/", "ranks/"),
)
# What a bound bounds. Other comparisons order things, or choose between ways that give the same.
BOUND = re.compile(r"size|count|capacity|limit|max|length|steps|rows|bytes|end|room|left|number|elements|values|world", re.I)
OPERATORS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
CHANGES = ("equal", "farther", "never", "always")
SUITES = ("unit", "golden", "fuzz", "feeder")
EXCUSE = re.compile(r"// (?:(Any) bound|Bound may be ([a-z, ]+)): \S")


# --- Where bounds are.


def comparisons(source, build):
    """Yields (file, line, start, operator's start and end, end, whether a loop's condition), as offsets in bytes."""
    from clang import cindex

    commands = json.loads((build / "compile_commands.json").read_text())
    index, seen = cindex.Index.create(), set()
    headers = subprocess.run(["clang", "-print-resource-dir"], capture_output=True, text=True, check=True).stdout.strip()
    for command in commands:
        file = pathlib.Path(os.path.normpath(build / command["file"]))
        name = file.relative_to(source).as_posix() if file.is_relative_to(source) else ""
        if not name.startswith(FOLDERS) or not name.endswith(".cc"):
            continue
        words = command["command"].split()[1:] if "command" in command else command["arguments"][1:]
        arguments = [word for word in words if re.match(r"-(I|D|isystem|std)", word)]
        arguments = [re.sub(r"^(-I|-isystem)(?!/)", lambda m: f"{m[1]}{build}/", word) for word in arguments]
        arguments += ["-resource-dir", headers]
        unit = index.parse(str(file), arguments)
        for problem in unit.diagnostics:
            if problem.severity >= cindex.Diagnostic.Error:
                sys.exit(f"{file}: {problem}")
        yield from comparisons_below(unit.cursor, source, seen, False)


def comparisons_below(cursor, source, seen, loops):
    from clang.cindex import CursorKind

    for child in cursor.get_children():
        location = child.location.file
        if cursor.kind == CursorKind.TRANSLATION_UNIT:
            path = os.path.normpath(location.name) if location else ""
            if not path.startswith(tuple(str(source / folder) for folder in FOLDERS)):
                continue
        if child.kind == CursorKind.STATIC_ASSERT or child.spelling == "check_invariant":
            continue
        if child.kind == CursorKind.VAR_DECL and any(token.spelling == "constexpr" for token in itertools.islice(child.get_tokens(), 3)):
            continue  # the compiler computes it
        # Of a loop only the last step may be wrong: without its condition it never ends.
        loop = cursor.kind in (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT)
        inside = loop and child.kind != CursorKind.COMPOUND_STMT or loops and child.kind != CursorKind.LAMBDA_EXPR
        if child.kind == CursorKind.BINARY_OPERATOR:
            found = comparison(child)
            if found and (found[0], found[2]) not in seen:
                seen.add((found[0], found[2]))
                yield (*found, inside)
        yield from comparisons_below(child, source, seen, inside)


def comparison(cursor):
    """Returns (file, line, start, operator's start, operator's end, end), or None if it is no bound."""
    from clang.cindex import TypeKind

    left, right = cursor.get_children()
    start, end = cursor.extent.start, cursor.extent.end
    between = (left.extent.end.offset, right.extent.start.offset)
    text = pathlib.Path(start.file.name).read_bytes()
    operator = text[between[0] : between[1]].decode().strip()
    if operator not in OPERATORS or not BOUND.search(text[start.offset : end.offset].decode()):
        return None
    for side in (left, right):
        kind = side.type.get_canonical().kind
        if kind in (TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.LONGDOUBLE, TypeKind.RECORD):
            return None
    at = between[0] + text[between[0] : between[1]].decode().index(operator)
    return os.path.normpath(start.file.name), start.line, start.offset, at, at + len(operator), end.offset


# --- The build in which any of them can be wrong.


def change(text, bounds):
    """Returns the text with each of the bounds [(number, start, operator's start, its end, end)] replaced."""
    edits = []  # (offset, order among edits of one offset, length, new text)
    for number, start, operator, operator_end, end in bounds:
        name = OPERATORS[text[operator:operator_end].decode()]
        what = f"feedline::mutant::is<{number}, feedline::mutant::Compare::{name}>(("
        edits += [(start, -end, 0, what), (operator, 0, operator_end - operator, "), ("), (end, -start, 0, "))")]
    for offset, _, length, new in sorted(edits, reverse=True):
        text = text[:offset] + new.encode() + text[offset + length :]
    return text


def prepare(folder):
    source, build = folder / "source", folder / "build"
    if folder.exists():
        shutil.rmtree(folder)
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0"):
        if name:
            target = source / os.fsdecode(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / os.fsdecode(name), target)
    setup = ["meson", "setup", "-Dbench=false", "-Dpython=disabled", "-Dcuda=disabled"]
    # libclang is told how each file is compiled, so none of them may be joined with others here.
    separate = folder / "separate"
    subprocess.run([*setup, "-Dunity=off", "-Db_pch=false", separate, source], check=True)
    targets = subprocess.run(["ninja", "-C", separate, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    subprocess.run(["ninja", "-C", separate, *re.findall(r"^(\S+\.pb\.h):", targets, re.M)], check=True)
    by_file, listed = collections.defaultdict(list), []
    for number, (file, line, *offsets, loop) in enumerate(comparisons(source, separate), 1):
        by_file[file].append((number, *offsets))
        text = pathlib.Path(file).read_bytes()
        excuses = [EXCUSE.search(above) for above in text.decode().splitlines()[max(0, line - 2) : line]]
        excused = {name for one in excuses if one for name in (CHANGES if one[1] else one[2].split(", "))}
        code = " ".join(text[offsets[0] : offsets[3]].decode().split())
        name = pathlib.Path(file).relative_to(source).as_posix()
        ways = CHANGES[:2] if loop else CHANGES
        changes = [way for way in ways if way not in excused]
        listed.append({"number": number, "file": name, "line": line, "code": code, "changes": changes,
                       "excused": len(ways) - len(changes)})  # fmt: skip
    for file, bounds in by_file.items():
        target = pathlib.Path(file)
        target.write_bytes(change(target.read_bytes(), bounds))
    (folder / "bounds.json").write_text(json.dumps(listed))
    print(f"{len(listed)} bounds, {sum(len(one['changes']) for one in listed)} changes")
    # AddressSanitizer sees what is read or written beyond a bound. What the comparisons are made of is included everywhere.
    setup += ["-Dbuildtype=debugoptimized", "-Db_ndebug=false", "-Db_pch=false", "-Db_sanitize=address", "-Db_lundef=false"]
    subprocess.run([*setup, f"-Dcpp_args=-g1 -include{source}/tests/mutation/mutant.h", build, source], check=True)
    tiers = [subprocess.run([ROOT / "scripts/targets_of.py", build, tier], capture_output=True, text=True, check=True).stdout
             for tier in ("commit", "merge")]  # fmt: skip
    wanted = {program for _, program, _ in tests(folder)}
    wanted |= {name for name in "".join(tiers).split() if not name.endswith(".py")}  # what the tests start
    subprocess.run(["ninja", "-C", build, *sorted(wanted)], check=True)


def tests(folder):
    """Returns [(suite, program relative to the build, arguments)] of the programs that Meson runs alone."""
    listed = subprocess.run(["meson", "introspect", "--tests", folder / "build"], capture_output=True, check=True).stdout
    found = []
    for test in json.loads(listed):
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        suite = next((one for one in SUITES if one in suites), None)
        program = pathlib.Path(test["cmd"][0])
        alone = program.is_relative_to(folder / "build") and not any("build/" in word for word in test["cmd"][1:])
        if suite and alone and "commit" in suites:
            found.append((suite, program.relative_to(folder / "build").as_posix(), test["cmd"][1:]))
    return found


# --- Running.


def run_one(folder, program, arguments, limit, **variables):
    """Returns in words how the program failed; None if it passed."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as scratch:
        environment = dict(os.environ, TMPDIR=scratch, ASAN_OPTIONS="detect_leaks=0:alloc_dealloc_mismatch=0", **variables)
        command = [folder / "build" / program, *arguments]
        if "corpus" not in " ".join(map(str, arguments)):
            command.append("--abort")
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   cwd=scratch, start_new_session=True)  # fmt: skip
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = "does not end"
        finally:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()
    return None if code in (0, 77) else f"{program}: {code}"


def reach(folder, suites, jobs):
    """Returns {test: (seconds, numbers reached)} of the suites' tests, which is measured once."""
    file, known = folder / "reach.json", {}
    if file.exists():
        known = json.loads(file.read_text())

    def measure(test):
        with tempfile.NamedTemporaryFile("r") as seen:
            begun = time.monotonic()
            failure = run_one(folder, *test[1:], 1800, MUTANTS_SEEN=seen.name)
            if failure:
                print(f"left out, because it fails with all bounds right: {failure}", flush=True)
            numbers = [] if failure else sorted({int(line) for line in seen.read().split()})
            known[json.dumps(test)] = (time.monotonic() - begun, numbers)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(measure, [test for test in tests(folder) if test[0] in suites and json.dumps(test) not in known]))
    file.write_text(json.dumps(known))
    return {tuple(map(tuple_of, json.loads(key))): value for key, value in known.items()}


def tuple_of(value):
    return tuple(value) if isinstance(value, list) else value


def try_change(folder, bound, change_index, programs):
    number = bound["number"] * 4 + change_index
    for (_, program, arguments), seconds in programs:
        failure = run_one(folder, program, arguments, 10 + 2 * seconds, MUTANT=str(number))
        if failure:
            return failure
    return None


def run(folder, only, suites, jobs):
    bounds = json.loads((folder / "bounds.json").read_text())
    results_file = folder / "results.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    reached = reach(folder, suites, jobs)
    work = []
    for bound in bounds:
        if not re.search(only, f"{bound['file']}:{bound['line']}: {bound['code']}"):
            continue
        programs = sorted(
            ((test, seconds) for test, (seconds, seen) in reached.items() if bound["number"] in seen and test[0] in suites),
            key=lambda one: one[1],
        )
        for name in bound["changes"]:
            key = f"{bound['number']} {name}"
            tried = results.get(key, {}).get("suites", [])
            fresh = [one for one in programs if one[0][0] not in tried]
            if results.get(key, {}).get("found") or not fresh and key in results:
                continue
            work.append((key, bound, CHANGES.index(name), fresh))
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(try_change, folder, bound, index, programs): key for key, bound, index, programs in work}
        for done, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            key = waiting[future]
            tried = sorted({*results.get(key, {}).get("suites", []), *suites})
            results[key] = {"found": future.result(), "suites": tried}
            results_file.write_text(json.dumps(results))
            if done % 20 == 0 or done == len(work):
                left = (time.monotonic() - begun) / done * (len(work) - done)
                print(f"{done} of {len(work)}; {left / 60:.0f} min left", flush=True)


def report(folder):
    bounds = json.loads((folder / "bounds.json").read_text())
    results = json.loads((folder / "results.json").read_text())
    totals = collections.Counter()
    for bound in bounds:
        totals["with a reason"] += bound["excused"]
        unseen = []
        for name in bound["changes"]:
            result = results.get(f"{bound['number']} {name}")
            totals["not tried" if result is None else "noticed" if result["found"] else "not noticed"] += 1
            if result and not result["found"]:
                unseen.append(name)
        if unseen:
            print(f"{bound['file']}:{bound['line']}: {bound['code']}    {' '.join(unseen)}")
    print("; ".join(f"{count} {what}" for what, count in sorted(totals.items())))
    return totals["not tried"] + totals["not noticed"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run", "report"])
    parser.add_argument("dir", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--only", default="")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.dir)
    elif arguments.what == "run":
        run(arguments.dir, arguments.only, arguments.suites, arguments.jobs)
    return report(arguments.dir) if arguments.what == "report" else 0


if __name__ == "__main__":
    sys.exit(main())
