"""The monitor of a loader."""

import base64
import json
import pickle
import urllib.error
import urllib.request

import pytest

import feedline


def get(address, path, token=None):
    request = urllib.request.Request(address + path)
    if token:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"feedline:{token}".encode()).decode())
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def test_it_shows_the_loader(numbers):
    loader = feedline.Loader(numbers, monitor="127.0.0.1:0")
    address = loader.monitor_address
    assert address.startswith("http://127.0.0.1:")
    batches = iter(loader)
    next(batches)
    shown, said = json.loads(get(address, "report.json")), loader.report()
    for key in ("records", "steps", "step", "epoch", "epoch_steps", "outputs", "next_us"):
        assert shown[key] == said[key]
    assert "\nfeedline_steps_total 1\n" in get(address, "metrics")
    assert get(address, "plan.txt") == loader.plan()
    assert get(address, "healthz").startswith("ok: epoch 0, step 1")
    copy = pickle.loads(pickle.dumps(loader))  # takes a free port of its own
    assert copy.monitor_address.startswith("http://127.0.0.1:") and copy.monitor_address != address
    copy.close()
    loader.close()
    with pytest.raises(urllib.error.URLError):
        get(address, "healthz")


def test_none_unless_it_is_asked_for(numbers):
    with feedline.Loader(numbers) as loader:
        assert loader.monitor_address == ""
        assert loader.report()["verdict"] == "next() has not been called yet."


def test_a_token(numbers):
    with feedline.Loader(numbers, monitor="0.0.0.0:0", monitor_token="secret") as loader:
        address = loader.monitor_address.replace("0.0.0.0", "127.0.0.1")
        assert get(address, "healthz", "secret").startswith("ok")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(address, "healthz")


def test_a_socket(numbers, tmp_path):
    path = tmp_path / "feed.sock"
    with feedline.Loader(numbers, monitor=f"unix:{path}") as loader:
        assert loader.monitor_address == f"unix:{path}"
        assert path.is_socket()
    assert not path.exists()


def test_wrong_addresses(numbers):
    for options, message in [
        ({"monitor": "here"}, "'here' is not an address"),
        ({"monitor": "0.0.0.0:0"}, "give the monitor a token"),
        ({"monitor": 9400}, "9400 is not a string"),
        ({"monitor": "127.0.0.1:0", "monitor_token": 7}, "monitor_token: the value is of type int; give a string"),
    ]:
        with pytest.raises(feedline.Error, match=message):
            feedline.Loader(numbers, **options)
