"""What a loader does to the process that it lives in: signals, forks, pickles, logs, ends."""

import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import python

import feedline


def test_errors_have_their_place(tmp_path):
    file = tmp_path / "x.tfrecord"
    feedline.write(file, [{"n": 1}, {"n": "text"}])
    loader = feedline.Loader(feedline.tfrecords(file).feature("n", int).batch(1))
    with pytest.raises(feedline.Error) as raised:
        list(loader)
    error = raised.value
    assert (error.category, error.file, error.record, error.feature) == ("wrong_dtype", str(file), 1, "n")
    assert str(error).startswith(str(file)) and error.message in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.offset == error.offset


def test_wrong_options(numbers):
    for options, message in [
        ({"devices": "gpu"}, "is not a device"),
        ({"devices": ["cuda:0", "cuda:1"]}, "GPU"),
        ({"backend": "mmap"}, "backend"),
        ({"rank": 1}, "rank and world_size"),
        ({"communicator": "mpi"}, "'mpi' is not a communicator"),
        ({"devices": 3}, "devices: '3' is not a device; write host"),
        ({"devices": [1, 2]}, "is not a device"),
        ({"threads": "x"}, "threads: 'x' is not an integer from 0 to 2147483647; 0 chooses a number by the CPUs"),
        ({"threads": -1}, "threads: -1 is not an integer"),
        ({"threads": 1.0}, "threads: 1.0 is not an integer"),
        ({"rank": "a", "world_size": 2}, "rank: 'a' is not an integer"),
        ({"rank": 0, "world_size": 2**40}, "world_size: 1099511627776 is not an integer from 1 to 2147483647"),
        ({"rank": 2, "world_size": 2}, "numbered from 0 to world_size - 1"),
        ({"start_epoch": 1.5}, "start_epoch: 1.5 is not an integer .* counted from 0"),
        ({"start_epoch": True}, "start_epoch: True is not an integer"),
        ({"data_parallel_rank": "a"}, "data_parallel_rank: 'a' is not an integer from -1"),
        ({"data_parallel_size": None}, "data_parallel_size: None is not an integer from 0"),
        ({"direct": 1}, "direct: 1 is not True, False or None"),
        ({"deliver_before_error": "no"}, "deliver_before_error: 'no' is neither True nor False"),
        ({"progress": "no"}, "progress: 'no' is not True, False or None"),
        ({"backend": 5}, "backend: 5 is not one of 'auto', 'uring', 'pread'"),
        ({"as_tuple": "n"}, "as_tuple: 'n' is not a tuple of names"),
        ({"as_tuple": 5}, "as_tuple: 5 is not a tuple of names"),
    ]:
        with pytest.raises(feedline.Error, match=message):
            feedline.Loader(numbers, **options)
    with pytest.raises(feedline.Error, match="Pipeline has no field 'batchsize'"):
        feedline.Loader(numbers, batchsize=3)


def test_wrong_arguments_of_methods(numbers):
    loader = feedline.Loader(numbers)
    for call, message in [
        (lambda: loader.set_weights("x"), "set_weights: 'x' is not a number; give a list with one number for each source"),
        (lambda: loader.set_weights(["1"]), "set_weights: '1' is not a number"),
        (lambda: loader.set_weights(5), "set_weights: 5 is not a list"),
        (lambda: loader.state_dict(step="a"), "step: 'a' is not an integer"),
        (lambda: loader[0], "a loader cannot be indexed.*write `for batch in loader`"),
        (lambda: loader.set_epoch("a"), "set_epoch: 'a' is not an integer"),
        (lambda: loader.set_epoch(2**70), "set_epoch: 1180591620717411303424 is not an integer"),
        (lambda: loader.load_state_dict({"feedline": 5}), "is not a state of a feedline.Loader"),
        (lambda: loader.load_state_dict(loader.state_dict(), accept_changes="x"), "accept_changes: 'x' is neither"),
    ]:
        with pytest.raises(feedline.Error, match=message):
            call()
    loader.set_epoch(np.int64(3))
    assert {batch.epoch for batch in loader} == {3}


def test_a_closed_loader_says_so(numbers):
    with feedline.Loader(numbers) as loader:
        iterator = iter(loader)
        next(iterator)
    for again in (lambda: next(iterator), lambda: next(iter(loader))):
        with pytest.raises(feedline.Error, match="the loader was closed"):
            again()
    loader.close()


def test_interrupt_inside_next(numbers):
    """Ctrl-C ends a wait for a batch: here of a replica that is too far ahead of another, which another thread served
    once and serves no more. bench/python_step.py measures how soon; the bound here is for a machine with other work."""
    code = """
import sys, threading, time, feedline
feeder = feedline.Loader(feedline.Pipeline(sys.argv[1]), devices="host:2", batch={"global_batch_size": 2})._feeder
other = threading.Thread(target=feeder.next, args=(1,))
other.start()
other.join()
print("begins", flush=True)
try:
    while True:
        feeder.next(0)
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(numbers)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begins\n"
    while open(f"/proc/{process.pid}/stat").read().split(")")[1].split()[0] != "S":  # until it sleeps, in next()
        pass
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    took = float(process.stdout.readline()) - sent
    print(f"KeyboardInterrupt {1e3 * took:.1f} ms after the signal")
    assert 0 < took < 2
    assert process.wait(timeout=60) == 0


def test_close_while_next_waits(numbers):
    """close() comes in a signal's handler, and from another thread."""
    code = """
import signal, sys, threading, feedline
loader = feedline.Loader(feedline.Pipeline(sys.argv[1]), devices="host:2", batch={"global_batch_size": 2})
other = threading.Thread(target=loader._feeder.next, args=(1,))
other.start()
other.join()
if sys.argv[2] == "signal":
    signal.signal(signal.SIGALRM, lambda *_: loader.close())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
else:
    threading.Timer(0.2, loader.close).start()
try:
    while True:
        loader._feeder.next(0)
except feedline.Error as error:
    print(error.category, repr(loader))
"""
    for way in ("signal", "thread"):
        done = python(code, numbers, way)
        assert (done.returncode, done.stdout) == (0, "stalled feedline.Loader(closed)\n"), done.stderr


def test_a_slow_log_handler_holds_nobody_up(tmp_path):
    """A handler that gives the interpreter's lock away, and drops the last reference to the loader."""
    feedline.write(tmp_path / "x.tfrecord", [{"n": i} for i in range(20)])
    code = """
import logging, sys, time, feedline
class Slow(logging.Handler):
    def emit(self, record):
        time.sleep(0.2)
        kept.clear()
        print(record.levelname, flush=True)
logging.getLogger("feedline").addHandler(Slow())
kept = [feedline.Loader(feedline.tfrecords(sys.argv[1]).feature("m", int, default=1).batch(2))]
for batch in kept[0]:
    pass
feedline.Loader(feedline.tfrecords(sys.argv[1]).feature("n", int).batch(2), devices="auto")
"""
    done = python(code, tmp_path / "x.tfrecord")
    assert done.returncode == 0 and "WARNING" in done.stdout, done.stderr


def test_a_fork_refuses_clearly(numbers):
    loader = feedline.Loader(numbers)
    next(iter(loader))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(iter(loader))
        except feedline.Error as error:
            code = 0 if "fork" in str(error) else 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(loader)) == 5


def steps_of(loader):
    return [np.asarray(batch["n"]).tolist() for batch in loader]


def test_pickle_and_spawn(numbers):
    loader = feedline.Loader(numbers, shuffle={"buffer_size": 50})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(steps_of, (loader,)) == steps_of(loader)


class Named(feedline.Loader):
    def __init__(self, name, pipeline, **options):
        self.name = name
        super().__init__(pipeline, **options)
        self.scale = [2]


def test_a_subclass_is_pickled_with_what_it_added(numbers):
    loader = Named("validation", numbers, batch={"global_batch_size": 5})
    loader.scale.append(3)
    next(iter(loader))
    for again in (pickle.loads(pickle.dumps(loader)), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(loader))))):
        assert type(again) is Named and (again.name, again.scale) == ("validation", [2, 3])
        assert [batch.step for batch in again] == list(range(10))


def test_log_lines_go_to_logging(tmp_path, caplog):
    feedline.write(tmp_path / "x.tfrecord", [{"n": i} for i in range(20)])
    with caplog.at_level(logging.WARNING, "feedline"):
        pipeline = feedline.tfrecords(tmp_path / "x.tfrecord").feature("m", int, default=1).batch(2)
        list(feedline.Loader(pipeline))
    assert any("'m'" in record.message and record.name == "feedline" for record in caplog.records)


def test_report_elements_and_plan(numbers):
    loader = feedline.Loader(numbers)
    list(loader)
    report = loader.report()
    assert report["records"] == 50 and report["batches_copied"] == 0
    assert report["epoch_audit"]["holds"] is True
    assert "MiB" in loader.plan() or "KiB" in loader.plan()
    assert loader.samples_per_epoch == 50 and len(loader.files) == 2
    assert repr(loader) == "feedline.Loader(n; 5 steps an epoch)"


def test_progress_of_counting(numbers, capsys):
    feedline.Loader(numbers, progress=True)  # with or without tqdm
    assert "counting records" in capsys.readouterr().err


def test_the_interpreter_ends_with_tensors_held(numbers):
    code = """
import sys, numpy as np, feedline
loader = feedline.Loader(feedline.Pipeline(sys.argv[1]))
kept = [np.from_dlpack(batch["n"]) for batch in loader]
again = iter(loader)
held = next(again)
print(len(kept))
"""
    done = python(code, numbers)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


def test_python_m_feedline_is_the_tool(tool):
    for arguments in [["--version"], ["check", "nothing.textproto", "--json"]]:
        mine = subprocess.run([sys.executable, "-m", "feedline", *arguments], capture_output=True, text=True)
        its = subprocess.run([tool, *arguments], capture_output=True, text=True)
        assert (mine.returncode, mine.stdout, mine.stderr) == (its.returncode, its.stdout, its.stderr)


def test_one_thread_at_a_time(numbers):
    """A second user of a loader is told so, and does no harm."""
    loader = feedline.Loader(numbers, devices="host:2", epoch={"repeat": -1})

    def run():
        with pytest.raises(feedline.Error, match="closed|stopped"):
            while True:
                loader._feeder.next(1)  # waits for ever once replica 0 is too far behind

    thread = threading.Thread(target=run)
    thread.start()
    while not loader.report()["waited_s"].get("another replica"):
        pass
    for call in (lambda: loader._feeder.next(0), lambda: loader.set_epoch(3), lambda: loader.load_state_dict(state)):
        state = loader.state_dict(step=0)
        with pytest.raises(feedline.Error, match="another call of the loader has not ended"):
            call()
    loader.close()
    thread.join()


def test_handlers_of_the_log(numbers):
    """One that fails loses no other line; one that closes a loader does not wait for itself."""
    code = """
import logging, sys, feedline
pipeline = feedline.Pipeline(sys.argv[1]).feature("missing", int, default=1)
other = feedline.Loader(pipeline)
class Handler(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append("missing" in record.getMessage())
        other.close()
        raise RuntimeError("a handler that fails")
logging.getLogger("feedline").addHandler(Handler())
for _ in range(2):
    loader = feedline.Loader(pipeline)
    for batch in loader:
        pass
    loader.close()
feedline._log.flush()
print(len(Handler.lines) >= 2 and all(Handler.lines))
"""
    done = python(code, numbers)
    assert done.stdout == "True\n", done.stderr
