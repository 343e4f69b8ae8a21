"""The PyTorch trainer of the chess network: it learns, and a run that was killed goes on as if it had not been."""

import json
import time

import pytest
from conftest import kill_tree, need, trainer

EPOCHS = 4


def start(processes, folder):
    """Starts the trainer on a number of processes, by torchrun."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    files = ["--losses", folder / "losses", "--checkpoint", folder / "checkpoint"]
    return trainer("chess_torch.py", "--epochs", EPOCHS, *files, launcher=launcher)


def finish(started):
    out, err = started.communicate(timeout=240)
    assert started.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


def losses(folder):
    """Returns {(epoch, step): loss}. Of a step that was computed twice, it must be the same both times, to 0.1 %."""
    found = {}
    for line in (folder / "losses").read_text().splitlines():
        one = json.loads(line)
        place = one["epoch"], one["step"]
        assert found.get(place, one["loss"]) == pytest.approx(one["loss"], rel=1e-3)
        found[place] = one["loss"]
    return found


def kill_after(steps, started, folder):
    """Kills the trainer with all its processes once it has done so many steps."""
    deadline = time.monotonic() + 120
    while not (folder / "losses").exists() or len((folder / "losses").read_text().splitlines()) < steps:
        assert started.poll() is None and time.monotonic() < deadline, started.communicate()
        time.sleep(0.01)
    kill_tree(started)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    need("torch", "psutil")
    folder = tmp_path_factory.mktemp("unbroken")
    result = finish(start(2, folder))
    assert result["exactly_once"]
    return losses(folder)


def test_it_learns(unbroken):
    assert len(unbroken) == EPOCHS * 11
    last = [loss for (epoch, _), loss in unbroken.items() if epoch == EPOCHS - 1]
    assert sum(last) / len(last) < unbroken[0, 0] / 2


@pytest.mark.parametrize("processes", [2, 1, 4])
def test_a_killed_run_goes_on(unbroken, tmp_path, processes):
    kill_after(17, start(2, tmp_path), tmp_path)
    assert (tmp_path / "checkpoint").exists()
    result = finish(start(processes, tmp_path))
    assert result["exactly_once"]
    together = losses(tmp_path)
    assert together.keys() == unbroken.keys()
    if processes == 2:
        assert together == unbroken
    else:  # gradients are summed in another order
        assert together == {place: pytest.approx(loss, rel=1e-3) for place, loss in unbroken.items()}
