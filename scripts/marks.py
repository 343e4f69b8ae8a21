"""What scripts write into documents, between two lines that mark it."""

import pathlib

END = "<!-- until here -->"


def between_marks(path: str, command: str, lines: list[str]) -> str:
    """Returns the text of a document with these lines where `./dev COMMAND` writes. Throws ValueError if it has no marks."""
    begin = f"<!-- ./dev {command} writes what follows -->"
    before, _, rest = pathlib.Path(path).read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{path} lacks the marks {begin} and {END}")
    return "\n".join([before + begin, "", *lines, END]) + after


def table(header: list[str], rows: list[list]) -> list[str]:
    """Returns the lines of a table, and an empty one; nothing if it has no rows."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows] + [""] if rows else []


def cell(text) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
