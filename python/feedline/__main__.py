"""`python -m feedline` is the tool."""

import signal
import sys

from . import _feedline


def main():
    """Runs the tool with the arguments of this process, and returns its exit code."""
    _feedline.log_to_stderr()
    for number in (signal.SIGINT, signal.SIGPIPE):  # as of a program that is not Python
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    return _feedline.run_tool(["feedline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
