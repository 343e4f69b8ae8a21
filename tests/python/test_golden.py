"""What Python is given equals what the tool dumps and what TensorFlow parses: examples and golden cases."""

import collections
import hashlib
import json
import os
import subprocess

import numpy as np
import pytest

import feedline

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden")
with open(os.path.join(GOLDEN, "cases.json"), encoding="utf-8") as manifest:
    CASES = json.load(manifest)["cases"]
PARSED = ("example", "sequence_example")
# The golden names of the splits of two levels are TensorFlow's.
TWO_LEVELS = {".row_splits": ".row_splits0", ".step_splits": ".row_splits1"}
KINDS = {"fixed": "FIXED", "var": "VARIABLE", "ragged": "RAGGED", "fixed_sequence": "FIXED_SEQUENCE"}


def dumped(tool, pipeline, folder):
    """Returns what the tool writes: {name of a tensor: array}."""
    done = subprocess.run([tool, "dump", pipeline, "--out", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {f[:-4]: np.load(os.path.join(folder, f)) for f in os.listdir(folder) if f.endswith(".npy")}


def tensors_of(batch):
    """Returns the tensors of a batch by the names that the tool has for them."""
    tensors = {}
    for name, value in batch.items():
        values = value
        if isinstance(values, feedline.Ragged):
            values, tensors[name + ".row_splits"] = values
        if isinstance(values, feedline.Ragged):
            values, tensors[name + ".step_splits"] = values
        if isinstance(values, feedline.Strings):
            tensors[name + ".bytes"], tensors[name + ".offsets"] = values
        else:
            tensors[name if values is value else name + ".values"] = values
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["chess", "digits", "cifar", "photos", "tabular", "train"])
def test_batches_equal_the_dump(root, tool, tmp_path, name):
    pipeline = os.path.join(root, "examples", name + ".textproto")
    wanted = dumped(tool, pipeline, tmp_path)
    seen = collections.defaultdict(list)
    for batch in feedline.Loader(pipeline):
        for key, value in tensors_of(batch).items():
            if key in batch:
                seen[key].append(value[np.asarray(batch.valid_mask)])  # the dump leaves filler out
    assert seen
    for key, parts in seen.items():
        assert np.concatenate(parts).tobytes() == wanted[key].tobytes(), key


def of_golden(case):
    """Returns the pipeline of a golden case, with all records in one batch, and the file of its first record."""
    files = [os.path.join(GOLDEN, f) for f in case["files"]]
    record_type = "SEQUENCE_EXAMPLE" if case["parse"] == "sequence_example" else "EXAMPLE"
    pipeline = feedline.tfrecords(*files, compression=case["compression"], record_type=record_type)
    for number, feature in enumerate(case["features"]):
        default = feature.get("default")
        if default is not None and feature["dtype"] == "bytes":
            default = [bytes.fromhex(value) for value in default]
        where = {"where": "FEATURE_LIST"} if feature.get("where") == "feature_list" else {}
        if where and feature["kind"] == "fixed_sequence":
            where["required"] = not feature["allow_missing"]
        key = bytes.fromhex(feature["name_hex"]) if "name_hex" in feature else feature["name"]
        pipeline = pipeline.feature(
            f"f{number}",
            feature["dtype"],
            key=key,
            kind=KINDS[feature["kind"]],
            shape=feature.get("shape"),
            default=default,
            **where,
        )
    return pipeline.batch(max(1, case["expect"]["records"]), last_batch_policy="PARTIAL").epoch(allow_empty=True)


def keys_of(case):
    return [feature.get("name", feature.get("name_hex")) for feature in case["features"]]


def test_golden_cases_equal_tensorflow():
    done = 0
    for case in CASES:
        if case["parse"] not in PARSED or "oddity" in case or len(set(keys_of(case))) < len(case["features"]):
            continue  # parse_golden_test has these
        done += 1
        error = case["expect"].get("error")
        loader = feedline.Loader(of_golden(case), deliver_before_error=True)
        if error and error["stage"] == "parse":
            with pytest.raises(feedline.Error) as raised:
                list(loader)
            assert raised.value.category == error["category"], case["name"]
            assert raised.value.record == error["failing_records"][0], case["name"]
            continue
        batches = list(loader)
        assert len(batches) == (case["expect"]["records"] > 0), case["name"]
        for batch in batches:
            tensors = tensors_of(batch)
            for name, tensor in tensors.items():
                feature, part = (name.split(".") + [""])[:2]
                if feature + ".step_splits" in tensors:
                    name = feature + TWO_LEVELS.get("." + part, "." + part)
                wanted = case["expect"]["arrays"].get(name if "." in name else name + ".dense")
                if wanted:
                    assert list(tensor.shape) == wanted["shape"], (case["name"], name)
                    assert hashlib.sha256(tensor.tobytes()).hexdigest() == wanted["sha256"], (case["name"], name)
    assert done > 170


def test_golden_cases_equal_the_dump(tool, tmp_path):
    groups = collections.Counter()
    for case in CASES:
        group = case["name"].split("/")[0]
        if case["parse"] not in PARSED or case["expect"].get("error") or groups[group] == 5:
            continue
        if "oddity" in case or len(set(keys_of(case))) < len(case["features"]) or case["expect"]["records"] == 0:
            continue
        groups[group] += 1
        pipeline = of_golden(case)
        file = tmp_path / "golden.textproto"
        file.write_text(str(pipeline))
        wanted = dumped(tool, file, tmp_path / case["name"].replace("/", "-"))
        (batch,) = feedline.Loader(pipeline)
        tensors = tensors_of(batch)
        assert tensors.keys() == wanted.keys(), case["name"]
        for name, tensor in tensors.items():
            assert tensor.tobytes() == wanted[name].tobytes(), (case["name"], name)
    assert len(groups) >= 5
