#!/usr/bin/env python3
"""proto_comments.py FILE: checks that each message, enum, oneof, value and field of a .proto file stands on a line of its
own, below a comment with at least one sentence. Exits with 1, and names those that do not."""

import re
import sys

OPENS = re.compile(r"(message|enum|oneof) (\w+) \{")
FIELD = re.compile(r"(?:(?:repeated|optional) )?(?:[\w.]+|map<\w+, \w+>) (\w+) = \d+;")
VALUE = re.compile(r"(\w+) = \d+;")
IGNORED = re.compile(r"(syntax|package) ")
SENTENCE = re.compile(r"^[A-Z(].*[.:]$", re.DOTALL)


def faults(text):
    """Returns what is wrong with the text of a .proto file, as lines for people."""
    found, inside, comment = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        opens, declares = OPENS.fullmatch(line), FIELD.fullmatch(line) or VALUE.fullmatch(line)
        if opens or declares:
            name = ".".join(inside + [opens[2] if opens else declares[1]])
            if not comment:
                found.append(f"{name} has no comment")
            elif not SENTENCE.match(" ".join(comment)):
                found.append(f"{name}: its comment is no sentence: {' '.join(comment)}")
        elif line == "}" and inside:
            inside.pop()
        elif line and not IGNORED.match(line):
            found.append(f"line {number}: one field a line, with its comment above it: {line}")
        if opens:
            inside.append(opens[2])
        comment = []
    return found


def check_the_check(text):
    """Takes the comment of some fields away, and joins two lines, which has to be found."""
    for name, declaration in {
            "Pipeline.filter": "  string filter = 3;",
            "Source.Compression.GZIP": "    GZIP = 2;",
            "Batch.size.global_batch_size": "    int64 global_batch_size = 1;",
            "Expression.constants": "  map<string, double> constants = 2;",
            "Window": "message Window {"}.items():
        lines = text.splitlines()
        at = lines.index(declaration)
        first = at
        while lines[first - 1].strip().startswith("//"):
            first -= 1
        if f"{name} has no comment" not in faults("\n".join(lines[:first] + lines[at:])):
            sys.exit(f"{name} was left without a comment; it was not found")
    joined = text.replace("  string filter = 3;\n", "  string filter = 3;  // no place for it\n")
    if joined == text or not any(fault.startswith("line ") for fault in faults(joined)):
        sys.exit("a comment behind a field was not found")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    found = faults(text)
    if found:
        sys.exit("\n".join(f"{sys.argv[1]}: {fault}" for fault in found))
    check_the_check(text)


if __name__ == "__main__":
    main()
