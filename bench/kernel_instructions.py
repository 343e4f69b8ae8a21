#!/usr/bin/env python3
"""Counts the instructions of the GPU kernels that unpack, as nvcc compiled them. It needs no GPU.

  bench/kernel_instructions.py [--arch sm_90] [--object build/gpu/unpack_kernels.o] [WORD]

For each kernel with WORD in its name: the registers of a thread; the fewest instructions that a thread executes before
its loop over rows, and once through it, for one row or several; and those per 16 bytes written. Fewest: on the shortest path, on which rows
are aligned, have no numbers, and belong to the type that is loaded most easily. What a called function does (a division
of an unusual number) is not counted. `cuobjdump` comes with CUDA, or as the Python package nvidia-cuda-cuobjdump with
nvidia-cuda-nvdisasm.
"""

import argparse
import heapq
import re
import subprocess


def functions(text):
    """Yields the name and the instructions [(address, text)] of each function."""
    for part in text.split("Function : ")[1:]:
        name, _, body = part.partition("\n")
        found = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", body, re.MULTILINE)
        yield name.strip(), [(int(address, 16), code) for address, code in found]


def next_of(code, i, number):
    """Returns the numbers of the instructions that may follow the i-th one."""
    text = code[i][1]
    predicated = text.startswith("@")
    following = [i + 1] if i + 1 < len(code) else []
    if re.search(r"\b(EXIT|RET)\b", text):
        return following if predicated else []
    branch = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)
    if not branch:
        return following
    target = [number[int(branch[1], 16)]]
    return target + following if predicated or re.search(r"BRA\S* U?!?U?P\d", text) else target


def shortest(code, number, begin, end):
    """Returns the shortest path from one instruction to the next time that another one is reached, without that one."""
    reached, heap = {}, [(0, begin, None)]
    while heap:
        cost, i, before = heapq.heappop(heap)
        if i in reached and not (i == end == begin and before is not None):
            continue
        if i != begin or before is None:
            reached[i] = before
        if i == end and before is not None:
            path, at = [], before
            while at is not None:
                path.append(at)
                at = reached[at]
            return path
        for following in next_of(code, i, number):
            heapq.heappush(heap, (cost + 1, following, i))
    return []


def bytes_stored(text):
    if not re.search(r"\bSTG\b", text.replace(".", " ")):
        return 0
    width = re.search(r"\.(?:[US])?(8|16|64|128)\b", text)
    return int(width[1]) // 8 if width else 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--object", default="build/gpu/unpack_kernels.o")
    parser.add_argument("--arch", default="sm_90")
    args = parser.parse_args()

    def dump(*what):
        return subprocess.run(["cuobjdump", *what, "-arch", args.arch, args.object], check=True, capture_output=True,
                              text=True).stdout

    registers = dict(re.findall(r"Function (\S+):\s+REG:(\d+)", dump("-res-usage")))
    print(f"{'kernel':<34} {'registers':>9} {'once':>6} {'loop':>8} {'per 16 bytes':>13}")
    rows = []
    for name, code in functions(dump("-sass")):
        full = subprocess.run(["c++filt", name], check=True, capture_output=True, text=True).stdout
        found = re.search(r"\w+Op<[^>]*>", full.replace("feedline::gpu::", ""))
        if not found or args.word not in (readable := found[0]):
            continue
        number = {address: i for i, (address, _) in enumerate(code)}
        # The loops over rows, a few at a time or one: each way to load has its own. The cheapest counts.
        ways = [(i, number[int(target[1], 16)]) for i, (_, text) in enumerate(code)
                if (target := re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)) and number[int(target[1], 16)] < i]
        ways = [(i, head) for i, head in ways if any(bytes_stored(text) for _, text in code[head:i])]
        if not ways:
            continue
        loops = []
        for head in {head for _, head in ways}:
            path = shortest(code, number, head, head)
            if stored := sum(bytes_stored(code[i][1]) for i in path):
                loops.append((len(path) * 16 / stored, len(path), len(shortest(code, number, 0, head))))
        if loops:
            per_vector, loop, once = min(loops)
            rows.append((readable, registers.get(name, "?"), once, loop, per_vector))
    for readable, count, once, loop, per_vector in sorted(rows):
        print(f"{readable:<34} {count:>9} {once:>6} {loop:>8} {per_vector:>13.0f}")


if __name__ == "__main__":
    main()
