"""feedline's log lines go to the logger "feedline" of Python's logging, on a thread of Python's own."""

import atexit
import logging
import os
import threading
import traceback

from . import _feedline

_logger = logging.getLogger("feedline")
_levels = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_lock = threading.RLock()  # reentrant: a handler of the program may close a loader, which calls flush()
_ended = False


def flush():
    """Logs the lines that have come so far. If a handler of the program raises an exception, prints it to standard
    error, as the package logging does with exceptions of its handlers."""
    with _lock:
        for level, line in _feedline.take_log():
            try:
                _logger.log(_levels[level], line)
            except Exception:
                traceback.print_exc()


def _run():
    while not _ended:
        if _feedline.wait_for_log(200):
            flush()


def _end():
    global _ended
    _ended = True
    _thread.join()
    flush()


def _begin():
    global _lock, _thread
    _lock = threading.RLock()
    _feedline.begin_log()
    _thread = threading.Thread(target=_run, name="feedline-log", daemon=True)
    _thread.start()


def start():
    _begin()
    atexit.register(_end)
    os.register_at_fork(after_in_child=_begin)
