#!/usr/bin/env python3
"""peers_results_test.py SOURCE: the documents have the figures of bench/results/peers.json; other figures are found, and
written; a new row and a new peer come into the tables."""

import json
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
RESULTS, DOCUMENTS = "bench/results/peers.json", ("README.md", "bench/results/peers.md")


def run(root: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SOURCE / "scripts/peers_results.py", *arguments], cwd=root, capture_output=True, text=True)


def test(root: pathlib.Path) -> None:
    texts = {}
    for name in (RESULTS, *DOCUMENTS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        texts[name] = (SOURCE / name).read_text(encoding="utf-8")
        (root / name).write_text(texts[name], encoding="utf-8")
    assert run(root, "--check").returncode == 0
    assert run(root, "--chekc").returncode != 0

    result = json.loads(texts[RESULTS])
    chess = next(row for row in result["rows"] if row["work"] == "chess")
    chess["loaders"]["Lance"] = {"rec_s": 1_234_567, "cpu_us": 1.23, "ratio": [4.06, 3.5, 5]}
    for name, line in chess["loaders"].items():
        line["cpu_us"] = 0.25 if name == "feedline" else 1.234
    result["sizes"] = {"date": "2027-01-02", "versions": {"Lance": "pylance 1.2"}, "sets": {"chess": {"TFRecord": 245.2, "Lance": 1202}}}
    (root / RESULTS).write_text(json.dumps(result), encoding="utf-8")
    found = run(root, "--check")
    assert found.returncode == 1 and all(f"{name} has other figures than {RESULTS}" in found.stderr for name in DOCUMENTS), found.stderr
    for name in DOCUMENTS:
        assert (root / name).read_text(encoding="utf-8") == texts[name]

    assert run(root).returncode == 0
    assert run(root, "--check").returncode == 0
    for name, wanted in (
        ("README.md", ("| work | feedline | tf.data | DALI | Grain | Lance | tfrecord |",
                       "| chess boards, 245 B | **5.17 M** | 300 k | 31 k | 217 k | 1.23 M | 92 k |", "Not measured yet: litData.")),
        ("bench/results/peers.md", ("| 23.8 (22.3..24.3) | 4.1 (3.5..5.0) | 56.2 (52.4..58.4) |",
                                    "| chess | 0.25 | 1.23 | 1.23 | 1.23 | 1.23 | 1.23 |", "Bytes a record, 2027-01-02, pylance 1.2:",
                                    "| chess | 245 | 1,202 |")),
    ):  # fmt: skip
        text = (root / name).read_text(encoding="utf-8")
        for line in wanted:
            assert line in text, (line, text)

    (root / "README.md").write_text(texts["README.md"].replace("<!-- until here -->", ""), encoding="utf-8")
    cut = run(root)
    assert cut.returncode != 0 and "README.md lacks the marks" in cut.stderr, cut.stderr


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        test(pathlib.Path(folder))


if __name__ == "__main__":
    main()
