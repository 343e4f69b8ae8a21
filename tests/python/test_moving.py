"""docs/moving.md: the programs before and after train on the same samples."""

import io
import os
import re
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from conftest import QUIET, ROOT, TOOL, need, python

import feedline

with open(os.path.join(ROOT, "docs/moving.md"), encoding="utf-8") as document:
    SECTIONS = {
        title: re.findall(r"(?ms)^```py ([\w.]+)\n(.*?)^```$", text)
        for title, text in re.findall(r"(?ms)^## (From .*?)\n(.*?)(?=^## )", document.read())
    }

SEEN = """
import sys
import numpy
images, labels = [], []
def train(image, label):
    images.append(numpy.array(image))
    labels.append(numpy.array(label))
def columns(step):
    return (step["image"], step["label"]) if isinstance(step, dict) else step
def seen(steps):
    class Seen(type(steps)):
        def __getitem__(self, number):
            step = super().__getitem__(number)
            train(*columns(step))
            return step
        def __iter__(self):
            for step in super().__iter__():
                train(*columns(step))
                yield step
    steps.__class__ = Seen
    return steps
"""
SAVE = "\nnumpy.savez(sys.argv[1], image=numpy.concatenate(images), label=numpy.concatenate(labels))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the data that the programs name."""
    folder = tmp_path_factory.mktemp("data")
    images = os.path.join(ROOT, "tests/golden/images")
    shutil.copy(os.path.join(images, "digits_raw.tfrecord"), folder / "digits.tfrecord")
    shutil.copy(os.path.join(images, "photos_jpeg.tfrecord"), folder / "photos.tfrecord")
    examples = [feedline.parse_example(record) for record in feedline.records(folder / "digits.tfrecord")]
    pixels = np.array([np.frombuffer(example["image"][0], np.uint8) for example in examples])
    np.savez(folder / "digits.npz", image=pixels, label=np.array([example["label"][0] for example in examples]))
    with tarfile.open(folder / "photos-0.tar", "w") as tar:
        for number, record in enumerate(feedline.records(folder / "photos.tfrecord")):
            example = feedline.parse_example(record)
            for extension, content in [("jpg", example["image"][0]), ("cls", str(example["label"][0]).encode())]:
                entry = tarfile.TarInfo(f"{number:06}.{extension}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    with open(folder / "photos.index", "w", encoding="ascii") as index:  # as DALI's tfrecord2idx writes it
        at = 0
        for record in feedline.records(folder / "photos.tfrecord"):
            print(at, len(record) + 16, file=index)
            at += len(record) + 16
    return folder


def samples(code, folder, framework):
    """Runs a program, and returns the different samples that it has trained on, in the order of their bytes."""
    need(framework)
    out = folder / "seen.npz"
    done = python(f"import os\nos.chdir({str(folder)!r})\n{SEEN}{code}{SAVE}", out, **QUIET, KERAS_BACKEND="tensorflow")
    assert done.returncode == 0, done.stderr[-3000:]
    found = np.load(out)
    # Frameworks take some steps more than they train on, so each sample counts once.
    samples = {(label, image.round(1).tobytes()): image for label, image in zip(found["label"], found["image"])}
    order = sorted(samples)
    return np.array([samples[one] for one in order]), np.array([label for label, _ in order])


@pytest.mark.parametrize("title", SECTIONS)
def test_both_programs_train_on_the_same_samples(folder, title):
    (framework, before), (name, after) = SECTIONS[title]
    if framework == "webdataset":
        convert = [os.path.abspath(TOOL), "convert", "webdataset", "photos-0.tar", "--out", "photos"]
        done = subprocess.run(convert, cwd=folder, capture_output=True, text=True)
        if "without libarchive" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
    assert name == "feedline"
    old, new = samples(before, folder, framework), samples(after, folder, framework)
    assert old[0].shape == new[0].shape and len(old[0]) >= 6
    assert old[1].tolist() == new[1].tolist()
    # DALI's decoder and its resize round in other ways.
    assert np.abs(old[0] - new[0]).mean() < (0.02 if framework == "nvidia.dali" else 1e-6)
