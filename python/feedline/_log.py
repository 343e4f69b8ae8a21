"""feedline's log lines go to the logger "feedline" of Python's logging."""

import atexit
import logging

from . import _feedline

_logger = logging.getLogger("feedline")
_levels = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def start():
    _feedline.set_log_sink(lambda level, line: _logger.log(_levels[level], line))
    # No thread of the library may want the interpreter while it ends.
    atexit.register(_feedline.set_log_sink, None)
