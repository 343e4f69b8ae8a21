"""`python -m feedline` is the tool. `convert parquet`, which needs pyarrow, is only here."""

import signal
import sys

from . import _feedline, _parquet


def main():
    """Runs the tool with the arguments of this process, and returns its exit code."""
    if sys.argv[1:3] == ["convert", "parquet"]:
        return _parquet.main(sys.argv[3:])
    _feedline.log_to_stderr()
    for number in (signal.SIGINT, signal.SIGPIPE):  # end the process, as in other programs
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    code = _feedline.run_tool(["feedline", *sys.argv[1:]])
    if code == 0 and sys.argv[1:] in (["convert", "--help"], ["convert", "-h"]):
        print("\nOnly in Python:\n  parquet                     Parquet files (python -m feedline convert parquet --help)")
    return code


if __name__ == "__main__":
    sys.exit(main())
