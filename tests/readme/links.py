#!/usr/bin/env python3
"""links.py ROOT: checks that the target of every relative link in the Markdown files below ROOT exists, headings included.
Exits with 1, and names those that do not."""

import os
import re
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"^(build.*|subprojects|\..*)$")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def anchors(path):
    """Returns what GitHub calls the headings of a file."""
    text = re.sub(r"^```.*?^```$", "", read(path), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}


def faults(root):
    found, links = [], 0
    for folder, folders, names in os.walk(root):
        if folder == root:
            folders[:] = [name for name in folders if not LEFT_OUT.match(name)]
        for name in names:
            if not name.endswith(".md"):
                continue
            path = os.path.join(folder, name)
            for link in LINK.findall(CODE.sub("", read(path))):
                if re.match(r"\w+:", link):
                    continue
                links += 1
                target, _, anchor = link.partition("#")
                there = os.path.join(folder, target) if target else path
                if not os.path.exists(there):
                    found.append(f"{path}: there is no {link}")
                elif anchor and anchor not in anchors(there):
                    found.append(f"{path}: there is no heading {link}")
    return found, links


def main():
    found, links = faults(sys.argv[1])
    if found:
        sys.exit("\n".join(found))
    if links == 0:
        sys.exit("there is no link")
    print(f"{links} links")


if __name__ == "__main__":
    main()
