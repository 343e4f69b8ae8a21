#!/usr/bin/env python3
"""The files of examples/operating, as far as their programs are installed: alerts, dashboard, unit, scripts.

  operating_test.py FEED_FOR_MONITOR SOURCE_ROOT
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import monitored
from monitored import Feed, chess

FOLDER = pathlib.Path(sys.argv[2], "examples/operating")


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def check_names(served):
    """Every metric that a file names is one that a feed serves."""
    for file in ("feedline-alerts.yml", "grafana.json"):
        named = set(re.findall(r"\bfeedline_\w+", (FOLDER / file).read_text()))
        assert named and named <= served, (file, named - served)


def check_dashboard(promtool):
    """Prometheus can parse each expression of the dashboard."""
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    variables = {"$instance": ".*", "$__rate_interval": "1m"}
    rules = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in variables.items():
                expression = expression.replace(name, value)
            rules.append({"record": f"panel:{panel['id']}:{target['refId']}", "expr": expression})
    assert len(rules) >= len(dashboard["panels"])
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)
        file.flush()
        run(promtool, "check", "rules", file.name)


def check_alerts(promtool):
    """Each alert comes when it should, and not before."""
    def case(series, minutes, alert, comes):
        found = [{"exp_labels": {"alertname": alert, "instance": "a", "job": "f"}}] if comes else []
        return {"interval": "1m",
                "input_series": [{"series": name + '{instance="a",job="f"' + more + "}", "values": values}
                                 for name, more, values in series],
                "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": found}]}

    replicas = ("feedline_replicas", "", "2x60")
    waits = lambda per_minute: ("feedline_next_wait_seconds_total", ',stage="read"', f"0+{per_minute}x60")
    steps = ("feedline_steps_total", "", "0+100x10 1000x50")
    cases = [
        case([waits(6), replicas], 20, "FeedIsSlow", True),  # 6 s a minute of 2 replicas: 5 %
        case([waits(0.6), replicas], 20, "FeedIsSlow", False),
        case([waits(6), replicas], 3, "FeedIsSlow", False),
        case([("feedline_failed", "", "0 0 1")], 2, "FeedHasEnded", True),
        case([("feedline_failed", "", "0x9")], 2, "FeedHasEnded", False),
        case([steps, ("feedline_failed", "", "0x60")], 40, "FeedStandsStill", True),
        case([steps, ("feedline_failed", "", "1x60")], 40, "FeedStandsStill", False),
        case([steps, ("feedline_failed", "", "0x60")], 15, "FeedStandsStill", False),
        case([("feedline_bad_records_total", "", "0 0 3 3 3")], 4, "RecordsAreBad", True),
        case([("feedline_bad_records_total", "", "3 3 3 3 3")], 4, "RecordsAreBad", False),
        case([("feedline_differing_epochs_total", "", "0 1")], 1, "EpochWasNotItsData", True),
    ]
    alerts = FOLDER / "feedline-alerts.yml"
    run(promtool, "check", "rules", alerts)
    for each in cases:
        # promtool compares annotations, too, which are for people; so the rules are tried without them.
        with tempfile.TemporaryDirectory() as folder:
            rules = re.sub(r"\n +annotations:\n +summary:.*", "", alerts.read_text())
            pathlib.Path(folder, "rules.yml").write_text(rules)
            pathlib.Path(folder, "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [each]}))
            run(promtool, "test", "rules", "test.yml", cwd=folder)


def main():
    Feed.program = sys.argv[1]
    root = sys.argv[2]
    with Feed(chess(root)) as feed:
        feed.take(3)
        metrics = feed.get("metrics")[2]
    check_names(set(re.findall(r"\bfeedline_\w+", metrics)))
    run("bash", "-n", FOLDER / "train.sbatch")
    if analyze := shutil.which("systemd-analyze"):
        with tempfile.TemporaryDirectory() as folder:
            run(analyze, "verify", "--user", "--recursive-errors=no", FOLDER / "feedline.service",
                env=os.environ | {"XDG_RUNTIME_DIR": folder})
    promtool = monitored.tool("promtool")
    check_dashboard(promtool)
    check_alerts(promtool)


main()
