"""`python -m feedline` is the tool."""

import sys

from . import _feedline


def main():
    """Runs the tool with the arguments of this process, and returns its exit code."""
    _feedline.set_log_sink(None)
    sys.stdout.flush()
    return _feedline.run_tool(["feedline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
