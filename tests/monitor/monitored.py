"""Feeds with a monitor, for the tests of what it serves."""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def tool(name):
    return shutil.which(name) or skip(f"{name} is not installed")


def preloaded(library):
    """Returns the environment of a program with another library. AddressSanitizer wants to be told that it is meant."""
    return {"LD_PRELOAD": library, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


class Feed:
    """A process of feed_for_monitor, which takes steps when it is told."""

    program = None  # set by the test

    def __init__(self, pipeline, replicas=1, rank=0, ranks=1, address="127.0.0.1:0", token=None, meet=None, preload=None):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".textproto")
        self.file.write(pipeline)
        self.file.flush()
        arguments = [self.program, self.file.name, str(replicas), str(rank), str(ranks), address]
        self.token = token
        arguments += [token or "", str(meet)] if meet else [token] if token else []
        self.has_monitor = address != "-"
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(preloaded(preload) if preload else {})})
        if not meet:
            self.wait()

    def wait(self):
        """Waits until the feed has begun. Ranks that meet are all started before one of them is waited for."""
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://") or not self.has_monitor, self.address
        self.address = self.address.replace("//0.0.0.0", "//127.0.0.1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def take(self, steps):
        """Takes steps of all replicas. Returns what the feed then says."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def get(self, path, accept="*/*"):
        """Returns (status, content type, body) of a page."""
        request = urllib.request.Request(self.address + path, headers={"Accept": accept})
        if self.token:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"feedline:{self.token}".encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.headers["Content-Type"], response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    def report(self):
        return json.loads(self.get("report.json")[2])


def chess(root, more="", batch=64):
    """Returns a pipeline of 3,000 chess positions."""
    return f"""
source  {{ files: "{root}/tests/golden/chess/main-*.tfrecord" }}
feature {{ name: "d" dtype: BYTES length: 194 }}
feature {{ name: "s" dtype: INT64 }}
shuffle {{ mode: BLOCK buffer_size: 1000 }}
batch   {{ global_batch_size: {batch} last_batch_policy: DROP }}
output  {{ name: "board" dtype: FLOAT32 feature: "d" unpack_bits {{ shape: [8, 8, 24] }} }}
output  {{ name: "score" dtype: FLOAT32 expression {{ formula: "tanh(s / 600)" }} }}
{more}"""
