"""bench/peers: a trial with the peers that `./dev merge` installs, and what is said of one that does not deliver all."""

import importlib.util
import json
import os
import subprocess
import sys
import types

import pytest

PEERS = os.path.join(os.environ["FEEDLINE_ROOT"], "bench", "peers")


def missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:
        return True


@pytest.mark.skipif(missing("tensorflow") or missing("nvidia.dali"), reason="needs TensorFlow and DALI")
def test_trial(tmp_path):
    only = ["--only", "chess", "--only", "tfdata", "--only", "dali"]
    command = [sys.executable, os.path.join(PEERS, "compare.py"), "--trial", "--tool", os.environ["FEEDLINE_TOOL"], *only]
    done = subprocess.run([*command, "--data", tmp_path, "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "trial" / "peers.json").read_text())
    loaders = {"feedline", "tf.data", "DALI"}
    assert result["rows"][0]["cpus"] == len(os.sched_getaffinity(0)) and result["rows"][-1]["cpus"] == 1
    for row in result["rows"]:
        assert row["work"] == "chess" and set(row["loaders"]) == loaders
        assert all(line["rec_s"] > 0 for line in row["loaders"].values())
    assert set(result["pace"]["loaders"]) == loaders
    assert result["sizes"]["sets"]["chess"]["TFRecord"] > 194


@pytest.mark.parametrize(
    "work, answer, wanted",
    [
        ("full", {"records": 500_000, "sums": [0.5, 13.0, 3.0]}, None),
        ("full", {"records": 499_999, "sums": [0.5, 13.0, 3.0]}, "of 500000 records dali one delivers 499999"),
        ("full", {"records": 500_000, "sums": [0.5, 14.0, 3.0]}, "sum up to 14.0 in tensor 1, not 13.0"),
        ("augment", {"records": 500_000, "sums": [0.5, 14.0, 3.0]}, None),
    ],
)
def test_who_delivers_less_is_found(monkeypatch, work, answer, wanted):
    monkeypatch.syspath_prepend(PEERS)
    import compare

    answers = {"feedline": {"records": 500_000, "sums": [0.5, 13.0, 3.0], "values": [6.0, 26.0, 1.0]}, "dali": answer}
    monkeypatch.setattr(compare, "sums_of", lambda args, peer, *rest: answers[peer])
    args = types.SimpleNamespace()
    if wanted is None:
        assert compare.compare_sums(args, "floats", work, [("dali", "one")], ()) is None
    else:
        with pytest.raises(ValueError, match=wanted):
            compare.compare_sums(args, "floats", work, [("dali", "one")], ())


def test_an_interrupted_run_goes_on(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(PEERS)
    import compare

    (tmp_path / "tool").write_bytes(b"a program")
    args = types.SimpleNamespace(
        tool=tmp_path / "tool", out=tmp_path, rounds=5, seconds=2.0, steps=10, trial=False, peers=frozenset())
    assert compare.Kept(args).of("chess, 2") is None
    compare.Kept(args).keep("chess, 2", {"work": "chess"})
    assert compare.Kept(args).of("chess, 2") == {"work": "chess"}
    args.rounds = 3
    assert compare.Kept(args).of("chess, 2") is None
    args.rounds = 5
    (tmp_path / "tool").write_bytes(b"another program")
    assert compare.Kept(args).of("chess, 2") is None


def test_results_are_replaced(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(PEERS)
    import compare

    before = [{"work": "chess", "cpus": 2, "date": "old"}, {"work": "chess", "cpus": 1, "date": "old"}]
    (tmp_path / "peers.json").write_text(json.dumps({"rows": before, "pace": {"date": "old"}, "sizes": {}}))
    rows = [{"work": "chess", "cpus": 2, "date": "new"}, {"work": "click log", "cpus": 2, "date": "new"}]
    whole = dict.fromkeys(compare.FORMATS, 1.0)
    sizes = {"date": "new", "versions": {}, "sets": {"chess": whole, "jpeg": {"TFRecord": 1.0}}}
    compare.write_results(tmp_path / "peers.json", rows, None, sizes)
    result = json.loads((tmp_path / "peers.json").read_text())
    assert result["rows"] == [rows[0], before[1], rows[1]] and result["pace"] == {"date": "old"}
    assert result["sizes"] == {"date": "new", "versions": {}, "sets": {"chess": whole}}
