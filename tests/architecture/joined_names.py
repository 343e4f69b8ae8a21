#!/usr/bin/env python3
"""Files that are compiled as one must not have functions of one name: a call in one of them could choose the other's.

  tests/architecture/joined_names.py BUILD

Reads the units that Meson has joined in a build directory, and the anonymous namespaces of their files. Exits with 1 and
names the functions that two files of a unit have.
"""

import collections
import pathlib
import re
import sys

BEGINS = r"^(?=\S)(?!return|else|throw|using|struct|class|enum|#|//|typedef)"
FUNCTION = re.compile(BEGINS + r"(?:template <[^\n]*>\n)?(?:\[\[\w+\]\] )?(?:[\w:<>,&*]+[ \n])*[\w:<>,&* ]+[ &*](\w+)\(", re.M)
ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.M | re.S)


def functions(text):
    """Returns the names of the functions in the anonymous namespaces of a file."""
    return {name for part in ANONYMOUS.findall(text) for name in FUNCTION.findall(part)}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    example = "namespace {\n[[noreturn]] void refuse(int rank) {\n  told(rank);\n}\ntemplate <typename T>\nT* made(T t);\n}  // namespace\n"
    assert functions(example) == {"refuse", "made"}, functions(example)
    units = [unit for unit in build.rglob("*-unity*.cpp") if unit.relative_to(build).parts[0] != "subprojects"]
    doubled = 0
    for unit in units:
        files = collections.defaultdict(list)
        for name in re.findall(r"#include\s*<(.*?)>", unit.read_text()):
            for function in functions((build / name).read_text()):
                files[function].append(pathlib.Path(name).name)
        for function, names in sorted(files.items()):
            if len(names) > 1:
                print(f"{unit.name}: {function}() is in {', '.join(names)}; give them names of their own")
                doubled += 1
    print(f"{len(units)} units, {doubled} names in two files of one")
    return 1 if doubled or not units else 0


if __name__ == "__main__":
    sys.exit(main())
