#!/usr/bin/env python3
"""What Prometheus makes of the metrics: its linter on both formats, and a server that scrapes a feed with a password.

  metrics_test.py FEED_FOR_MONITOR SOURCE_ROOT
"""
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import monitored
from monitored import Feed, chess

PATIENCE = 120  # seconds


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def query(port, expression):
    """Returns {labels without job and instance: value}."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=30) as response:
        found = json.load(response)["data"]["result"]
    return {tuple(v for k, v in sorted(one["metric"].items()) if k not in ("__name__", "job", "instance")):
            float(one["value"][1]) for one in found}


def wait_for(what):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if result := what():
                return result
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit("Prometheus has not scraped the feed")
        time.sleep(0.1)


def check_lint(feed):
    promtool = monitored.tool("promtool")
    status, kind, text = feed.get("metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4"), (status, kind)
    lint = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
    assert lint.returncode == 0 and not lint.stdout and not lint.stderr, lint
    planted = subprocess.run([promtool, "check", "metrics"], input=text.replace("_total", "_sum_of"), text=True,
                             capture_output=True)
    assert planted.returncode != 0, "promtool finds nothing in wrong names"


def check_scrape(feed):
    prometheus = monitored.tool("prometheus")
    feed.take(20)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "prometheus.yml")
        config.write_text(f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: feedline
    basic_auth: {{username: feedline, password: {feed.token}}}
    static_configs: [{{targets: ["{re.search('//(.*)/', feed.address)[1]}"]}}]
""")
        server = subprocess.Popen(
            [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"])
        try:
            wait_for(lambda: query(port, "feedline_steps_total") == {(): 20})
            report = feed.report()
            assert query(port, "up") == {(): 1}
            assert query(port, "feedline_records_total") == {(): report["records"]}
            assert query(port, "feedline_failed") == {(): 0}
            assert query(port, "feedline_step") == {(): report["step"]}
            assert query(port, "feedline_next_duration_seconds_count") == {(): 19}
            assert query(port, 'feedline_next_duration_seconds_bucket{le="+Inf"}') == {("+Inf",): 19}
            stages = {(stage["name"],) for stage in report["stages"]}
            assert query(port, "feedline_stage_busy_seconds_total").keys() == stages
            quantile = query(port, "histogram_quantile(0.5, feedline_next_duration_seconds_bucket)")
            assert 0 <= quantile[()] <= 10, quantile
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/metadata?metric=feedline_read_bytes") as response:
                told = json.load(response)["data"]["feedline_read_bytes"][0]
            assert (told["type"], told["unit"]) == ("counter", "bytes"), told  # so it has read OpenMetrics
        finally:
            server.terminate()
            server.wait()


def main():
    Feed.program, root = sys.argv[1:]
    with Feed(chess(root), token="secret") as feed:
        assert feed.get("healthz")[::2] == (200, "ok: epoch 0, step 0\n")
        check_lint(feed)
        check_scrape(feed)


main()
