#!/usr/bin/env python3
"""Checks the includes of the program against the list of rooms below.

  rooms.py ROOT

A room is a folder. A file may include files of its own room and of the rooms that are listed for its room. It may also
include public headers (NAME/include/feedline) of its own top folder and of those below. Two more things are refused:
units (NAME.h with NAME.cc) that include each other, directly or through others, and rooms of more than 40 files.
"""
import os
import re
import sys

MOST_FILES = 40

# Each room, and the rooms that it may include. docs/architecture.md has the picture.
ARROWS = """
base:
base/net:              base
io:                    base
io/records:            io/read io base
io/read:               io base
io/index:              io/records io/read io base
io/cache:              io/records io base
unpack:                base
gpu/reduce:            unpack
gpu/device:            gpu/reduce unpack base
gpu/cuda:              gpu/device gpu/reduce unpack base
ranks:                 gpu/device gpu/reduce base
ranks/process:         ranks gpu/reduce base
ranks/tcp:             ranks/process ranks base/net base
ranks/mpi:             ranks/process ranks base
ranks/nccl:            ranks gpu/cuda gpu/device base
training:              ranks gpu/device base
pictures/decode:       base
pictures/shape:        pictures/decode unpack base
flowgraph/formula:     base
flowgraph/table:       gpu/device io/read io base
flowgraph/rows:        flowgraph/table pictures/shape pictures/decode unpack io/cache base
flowgraph/pipeline:    flowgraph/rows flowgraph/table flowgraph/formula pictures/shape pictures/decode unpack io/index io/read io/cache base
flowgraph/data:        flowgraph/pipeline flowgraph/table ranks io/index io/records io/read io base
flowgraph/parse:       flowgraph/pipeline flowgraph/rows unpack io/records base
flowgraph/order:       flowgraph/data flowgraph/pipeline io/records io/read base
flowgraph/plan:        flowgraph/order flowgraph/parse flowgraph/data flowgraph/pipeline flowgraph/rows flowgraph/table io/index io/records io/read io/cache base
flowgraph/chunk:       flowgraph/plan flowgraph/order flowgraph/parse flowgraph/data gpu/device io/index io/records io/read io/cache base
flowgraph/batch:       flowgraph/chunk flowgraph/plan flowgraph/order flowgraph/parse flowgraph/pipeline flowgraph/table io/cache gpu/device unpack base
flowgraph/feed:        flowgraph/batch flowgraph/chunk flowgraph/plan flowgraph/parse flowgraph/data flowgraph/pipeline flowgraph/rows flowgraph/table ranks gpu/device unpack io/index io/records io/read io/cache io base
trainer_bridge/monitor: base/net gpu/device base
trainer_bridge:        trainer_bridge/monitor flowgraph/feed flowgraph/batch flowgraph/plan flowgraph/data flowgraph/pipeline flowgraph/table ranks gpu/device unpack io/cache base
tool/common:           pictures/decode io/index io/records io/read io base
tool/inspect:          tool/common flowgraph/pipeline io/read base
tool/convert:          tool/common pictures/shape pictures/decode io/index io/records io base
tool/reshard:          tool/common io/records io base
tool/feeding:          tool/common trainer_bridge/monitor trainer_bridge ranks unpack io base
tool/stats:            tool/feeding tool/common trainer_bridge flowgraph/pipeline unpack base
python/src:            tool/commands tool/convert tool/common trainer_bridge gpu/device base
tool/commands:         tool/stats tool/inspect tool/convert tool/reshard tool/feeding tool/common trainer_bridge/monitor trainer_bridge io/index io/read io base
"""

SOURCE = re.compile(r"\.(h|cc|cu|cuh|inc)$")
MADE = re.compile(r"(\.pb|/page_text|/stats_page_head)\.h$")  # by the build
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def parse_arrows(text):
    lines = [line.split(":") for line in text.strip().splitlines()]
    return {room.strip(): set(known.split()) for room, known in lines}


def top_of(path):
    return path.split("/")[0]


def read_sources(root, tops):
    """Returns {path: text} of all sources in these top folders, without precompiled headers, which are no units."""
    sources = {}
    for top in tops:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if SOURCE.search(name) and "/pch/" not in path:
                    with open(os.path.join(root, path)) as file:
                        sources[path] = file.read()
    return sources


def find_circle(units):
    """Returns units of which each includes the next and the last includes the first; or None."""
    finished, path = set(), []

    def visit(unit):
        if unit in finished:
            return None
        if unit in path:
            return path[path.index(unit):]
        path.append(unit)
        for other in sorted(units.get(unit, ())):
            circle = visit(other)
            if circle:
                return circle
        path.pop()
        finished.add(unit)
        return None

    for unit in sorted(units):
        circle = visit(unit)
        if circle:
            return circle
    return None


def tops_below(arrows):
    """Returns {top folder: top folders that it may include, directly or through others}, itself included."""
    below = {top_of(room): {top_of(room)} for room in arrows}
    for _ in below:
        for room, known in arrows.items():
            for other in known:
                below[top_of(room)] |= below[top_of(other)]
    return below


def faults(sources, arrows):
    """Returns what is wrong with the sources, as lines of text for people."""
    public = {path.split("/include/")[1]: path for path in sources if "/include/" in path}
    below = tops_below(arrows)
    found, units, files = [], {}, {}
    for path, text in sorted(sources.items()):
        is_public = "/include/" in path
        room = top_of(path) if is_public else os.path.dirname(path)
        if not is_public:
            files[room] = files.get(room, 0) + 1
            if room not in arrows:
                found.append(f"{path}: {room} is no room of the list in tests/architecture/rooms.py")
                continue
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = public.get(match[2], match[2])
            if target not in sources:
                if match[1] == '"' and not MADE.search(target):
                    found.append(f"{path}:{number}: no file of the tree has this path: {line}")
                continue
            units.setdefault(path.rsplit(".", 1)[0], set()).add(target.rsplit(".", 1)[0])
            other = top_of(target) if "/include/" in target else os.path.dirname(target)
            if "/include/" in target:
                allowed = other in below[top_of(path)]
            else:
                allowed = not is_public and (other == room or other in arrows[room])
            if not allowed:
                found.append(f"{path}:{number}: {room} may not know {other}: {line}")
    for unit in units:
        units[unit].discard(unit)
    circle = find_circle(units)
    if circle:
        found.append("units include each other in a circle: " + " -> ".join(circle + circle[:1]))
    for room, count in sorted(files.items()):
        if count > MOST_FILES:
            found.append(f"{room} holds {count} files, {MOST_FILES} are the most")
    return found


def check_the_check(sources, arrows):
    """Plants one fault of each kind and exits if it is not found."""
    header = "flowgraph/order/order.h"
    planted = {
        "an arrow up": {"base/log.h": sources["base/log.h"] + '#include "flowgraph/feed/graph.h"\n'},
        "a public header that knows a room": {
            "io/include/feedline/records.h": '#include "io/records/record_scanner.h"\n'},
        "an arrow up, as a relative path": {"base/log.h": sources["base/log.h"] + ' # include "../flowgraph/feed/graph.h"\n'},
        "a circle": {header: sources[header] + '#include "flowgraph/order/block_stream.h"\n'},
        "a new room": {"flowgraph/attic/old.cc": ""},
        "a crowded room": {f"base/file_{i}.h": "" for i in range(MOST_FILES)},
    }
    for what, files in planted.items():
        if not faults({**sources, **files}, arrows):
            sys.exit(f"planted: {what}; it was not found")


def main():
    arrows = parse_arrows(ARROWS)
    for room, known in arrows.items():
        for other in known - set(arrows):
            sys.exit(f"{room} knows {other}, which is no room")
    sources = read_sources(sys.argv[1], sorted({top_of(room) for room in arrows}))
    found = faults(sources, arrows)
    if found:
        sys.exit("\n".join(found))
    check_the_check(sources, arrows)
    print(f"{len(sources)} files in {len(arrows)} rooms")


if __name__ == "__main__":
    main()
