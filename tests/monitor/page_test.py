#!/usr/bin/env python3
"""The monitor's page in a browser: its numbers are the report's, it follows the feed, and everybody can use it.

  page_test.py FEED_FOR_MONITOR SOURCE_ROOT [FOLDER]

With FOLDER, screenshots are written there.
"""
import base64
import json
import os
import shutil
import socket
import struct
import sys
import tempfile
import time

from browser import Browser
from monitored import Feed, chess

PATIENCE = 60  # seconds


def wait_for(browser, script, what):
    """Waits until the script returns something true, and returns that."""
    end = time.monotonic() + PATIENCE
    while not (found := browser.run("return " + script)):
        assert time.monotonic() < end, f"the page has never shown {what}: {browser.run('return document.body.innerText')}"
        time.sleep(0.05)
    return found


def wait_for_steps(browser, steps):
    wait_for(browser, f"document.body?.dataset.steps === '{steps}'", f"{steps} steps")


def numbers(browser):
    """Returns {key: text} of the table of numbers."""
    return browser.run("return Object.fromEntries([...document.querySelectorAll('#numbers tr')].map("
                       "row => [row.dataset.key, row.cells[1].textContent]))")


def text(browser, selector):
    return browser.run("return document.querySelector(arguments[0]).textContent", selector)


def check_numbers(browser, feed):
    """Compares the page with the report of a feed of which nobody takes steps now. Returns the report."""
    end = time.monotonic() + PATIENCE
    while True:
        report = feed.report()
        try:
            compare(browser, report)
            return report
        except AssertionError:  # batches were still being made ahead when the page looked
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def compare(browser, report):
    shown = numbers(browser)
    for key in ("records", "steps", "dropped_samples", "filler_rows", "bad_records", "decode_warnings", "differing_epochs"):
        assert shown[key] == f"{report[key]:,}", (key, shown[key])
    ready = shown["data_readiness_ratio"]
    assert ready.startswith(f"{100 * report['data_readiness_ratio']:.1f}"[:2]), ready
    assert shown["backend"] == report["backend"]
    p50 = report["next_us"]["p50"]
    assert shown["next_us"].startswith("p50 " + (f"{p50:.1f} us" if p50 < 1000 else f"{p50 / 1000:.1f} ms")), shown
    for stage in report["waited_s"]:
        assert f"waited-{stage}" in shown, shown
    names = browser.run("return [...document.querySelectorAll('#stages li h3')].map(name => name.textContent)")
    assert names == [stage["name"] for stage in report["stages"]] + ["next()"], names
    for stage in report["stages"]:
        queue = browser.run("return document.querySelector(`#stages [data-stage='${arguments[0]}'] "
                            "[data-key=queue]`).textContent", stage["name"])
        assert queue == f"{stage['queue']:,}", (stage, queue)
    outputs = browser.run("return [...document.querySelectorAll('#outputs tr')].map(row => row.innerText.split('\\t'))")
    assert dict(outputs) == report["outputs"], outputs
    where = text(browser, "#where")
    assert where.startswith(f"epoch {report['epoch']}, step {report['step']} of {report['epoch_steps']}"), where


def check_following(browser, root):
    with Feed(chess(root), replicas=2) as feed:
        browser.go(feed.address)
        wait_for_steps(browser, 0)
        assert text(browser, "#verdict") == "next() has not been called yet."
        assert feed.take(7) == "epoch 0 step 7"
        wait_for_steps(browser, 7)
        report = check_numbers(browser, feed)
        assert text(browser, "#state") == "live"
        assert "every sample" not in numbers(browser)["epoch_audit"]

        feed.take(report["epoch_steps"])  # through the end of the epoch
        wait_for_steps(browser, 7 + report["epoch_steps"])
        report = check_numbers(browser, feed)
        assert report["epoch"] == 1 and report["epoch_audit"]["holds"] is True, report
        assert numbers(browser)["epoch_audit"] == "epoch 0: every sample came once"

        # The verdict is that of the report, whose share of time becomes smaller while nobody takes steps.
        words = text(browser, "#verdict").split()
        assert words[:3] == feed.report()["verdict"].split()[:3], words

        # The charts have what was before the page was loaded.
        wait_for(browser, "intervals.length >= 3", "three seconds of history")
        rows = browser.run("return intervals.map(row => row[0])")
        browser.reload()
        wait_for(browser, "document.body?.dataset.steps && intervals.length >= 3", "the history after a reload")
        assert browser.run("return intervals.map(row => row[0])")[:len(rows)] == rows
        samples = browser.run("return intervals.reduce((sum, row) => sum + row[2], 0)")
        assert samples == report["records"], samples
        assert browser.run("return document.querySelector('#charts polyline').getAttribute('points')")

        browser.run("document.getElementById('plan').open = true")
        wait_for(browser, "document.querySelector('#plan pre').textContent.includes('memory')", "the plan")

        others = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)"
                             ".filter(name => !name.startsWith(location.origin))")
        assert others == [], others
        feed.process.kill()
        wait_for(browser, "document.getElementById('state').textContent.startsWith('no connection')", "that the feed is gone")
        assert numbers(browser)["records"] == f"{report['records']:,}"  # the last numbers stay
        gone = ("ERR_", "Failed to fetch")  # how Chromium says that nobody answers
        wrong = [entry for entry in browser.log() if entry["level"] == "SEVERE" and not any(word in entry["message"] for word in gone)]
        assert wrong == [], wrong


def damaged_copy(root, folder):
    """Copies a file, with a flipped bit in its record 5, under a name that is no HTML. Returns its path."""
    path = os.path.join(folder, "<img src=x onerror=alert(1)>.tfrecord")
    shutil.copy(f"{root}/tests/golden/chess/main-00000-of-00003.tfrecord", path)
    with open(path, "r+b") as file:
        for _ in range(5):
            file.seek(struct.unpack("<Q", file.read(8))[0] + 8, os.SEEK_CUR)
        file.seek(12 + 20, os.SEEK_CUR)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return path


def check_errors(browser, root):
    with tempfile.TemporaryDirectory() as folder:
        path = damaged_copy(root, folder)
        one_file = chess(root).replace(f"{root}/tests/golden/chess/main-*.tfrecord", path)
        with Feed(one_file + "errors { on_error: SKIP_RECORD }") as feed:
            browser.go(feed.address)
            feed.take(3)
            wait_for_steps(browser, 3)
            report = feed.report()
            assert report["bad_records"] == 1
            cells = browser.run("return [...document.querySelectorAll('#errors tbody td')].map(cell => cell.textContent)")
            assert cells[:3] == ["bad_data_crc", path, "5"], cells
            assert cells[4] == report["errors"][0]["message"]
            assert browser.elements("img") == [] and numbers(browser)["bad_records"] == "1"
            check_numbers(browser, feed)
        with Feed(one_file.replace("shuffle { mode: BLOCK buffer_size: 1000 }", "").replace("DROP", "PARTIAL")) as feed:
            browser.go(feed.address)
            said = feed.take(1000)
            assert said.startswith("error: "), said
            wait_for(browser, "document.getElementById('state').textContent === 'ended'", "that the feed has ended")
            failure = browser.elements("#failure")[0]
            assert browser.role_and_label(failure)[0] == "alert"
            assert text(browser, "#failure") == f"{path}: {feed.report()['error']['message']}"
            assert feed.get("healthz")[0] == 503


def check_ranks(browser, root):
    """8 ranks are given one address, and each has a page."""
    for _ in range(10):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        feeds = []
        try:
            for rank in range(8):
                feeds.append(Feed(chess(root), rank=rank, ranks=8, address=f"127.0.0.1:{port}"))
            break
        except AssertionError:  # a port is in use
            for feed in feeds:
                feed.end()
    for rank, feed in enumerate(feeds):
        assert feed.address == f"http://127.0.0.1:{port + rank}/", feed.address
        feed.take(rank + 1)
        browser.go(feed.address)
        wait_for_steps(browser, rank + 1)
        assert f"rank {rank} of 8" in text(browser, "#where")
        assert browser.run("return document.title") == f"feedline rank {rank}: step {rank + 1}"
        check_numbers(browser, feed)
    for feed in feeds:
        feed.end()


def check_machine_and_sample(browser, root):
    """The memory, the GPUs that NVML tells of, and what is being fed."""
    with open(f"{root}/examples/digits.textproto") as file:
        digits = file.read().replace("../tests", f"{root}/tests")
    with Feed(digits, preload=os.environ["FAKE_NVML"]) as feed:
        browser.go(feed.address)
        wait_for_steps(browser, 0)
        assert browser.run("return document.getElementById('sample').hidden")
        wait_for(browser, "document.querySelectorAll('#gpus tbody tr').length === 2", "two GPUs")
        rows = browser.run("return [...document.querySelectorAll('#gpus tbody tr')].map(row => row.innerText.split('\\t'))")
        assert rows == [["0: Fake GPU 0", "63 %", "20.0 GiB of 80.0 GiB", "PCIe 5, 4 of 16 lanes"],
                        ["1: Fake GPU 1", "not known", "20.0 GiB of 80.0 GiB", "not known"]], rows
        shown = numbers(browser)
        assert shown["memory"].endswith("iB") and shown["planned_bytes"].endswith("iB"), shown
        assert feed.report()["planned_bytes"] > 0

        feed.take(1)
        wait_for(browser, "document.querySelectorAll('#sample canvas').length === 8", "pictures of a batch")
        sample = json.loads(feed.get("sample.json")[2])
        assert (sample["epoch"], sample["step"]) == (0, 0)
        assert text(browser, "#sample h2 span") == "epoch 0, step 0, replica 0"
        for i, picture in enumerate(sample["outputs"][0]["pictures"]):
            drawn = browser.run("const canvas = document.querySelectorAll('#sample canvas')[arguments[0]];"
                                "return [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]", i)
            assert bytes(drawn[at] for at in range(len(drawn)) if at % 4 < 3) == base64.b64decode(picture["rgb"])
        labels = next(output for output in sample["outputs"] if output["name"] == "label")["numbers"]
        assert len(labels) == 32
        caption = text(browser, "#sample [data-output=label] figcaption")
        assert caption == f"label: 32 from {min(labels):g} to {max(labels):g}, mean {sum(labels) / 32:.4g}", caption
        bars = browser.run("return [...document.querySelectorAll('#sample [data-output=label] rect')].map(bar => +bar.dataset.count)")
        assert sum(bars) == 32 and bars[0] == labels.count(min(labels)) and bars[-1] == labels.count(max(labels)), bars
        roles = [browser.role_and_label(element) for element in browser.elements("#sample canvas, #sample svg")]
        assert all(role in ("image", "img") and label for role, label in roles), roles
        feed.take(1)
        wait_for(browser, "document.querySelector('#sample h2 span').textContent === 'epoch 0, step 1, replica 0'", "the next sample")


def rank_rows(browser):
    return browser.run("return [...document.querySelectorAll('#ranks tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")


def compare_ranks(browser, feeds):
    """Compares the table of ranks with the feeds, each of which has done as many steps as its number and one. Rank 6 has no
    monitor."""
    for rank, row in enumerate(rank_rows(browser)):
        assert row[0] == str(rank), row
        if rank == 6:
            assert row[1] == "" and row[5] == "this rank has no monitor; give every rank a monitor", row
            continue
        report = feeds[rank].report()
        assert row[1] == f"epoch 0, step {rank + 1}" and row[4] == "0", row
        assert row[5].split()[:3] == report["verdict"].split()[:3], (row, report["verdict"])


def check_gathered_ranks(browser, root):
    """Rank 0 shows all ranks that have met. One of them has no monitor, and one listens everywhere, with its password."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meet = probe.getsockname()[1]
    addresses = ["127.0.0.1:0"] * 6 + ["-", "0.0.0.0:0"]
    feeds = [Feed(chess(root), rank=rank, ranks=8, address=address, token="secret", meet=meet)
             for rank, address in enumerate(addresses)]
    for feed in feeds:
        feed.wait()
    for rank, feed in enumerate(feeds):
        feed.take(rank + 1)
    browser.go(feeds[0].address.replace("//", "//feedline:secret@"))
    wait_for_steps(browser, 1)
    shown = "[...document.querySelectorAll('#ranks tbody tr')]"
    wait_for(browser, f"{shown}.length === 8 && {shown}.filter(row => row.cells[1].textContent).length === 7", "the reports of seven ranks")
    end = time.monotonic() + PATIENCE
    while True:
        try:
            compare_ranks(browser, feeds)
            break
        except AssertionError:  # a busy machine has not answered in time, or the report was newer
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    links = browser.run("return [...document.querySelectorAll('#ranks a')].map(link => link.getAttribute('href'))")
    assert links == [None] + [feed.address for feed in feeds[1:6]] + [None, feeds[7].address], links
    feeds[3].take(4)
    wait_for(browser, f"{shown}[3].cells[1].textContent === 'epoch 0, step 8'", "the new place of rank 3")
    feeds[3].process.kill()
    wait_for(browser, f"{shown}[3].cells[5].textContent.includes('Connection refused')", "that rank 3 is gone")
    assert browser.run(f"return {shown}[3].classList.contains('bad') && !{shown}[2].classList.contains('bad')")
    assert feeds[1].get("ranks.json")[2].strip() == "[]"
    for feed in feeds:
        feed.end()


def luminance(colour):
    channels = [int(value) / 255 for value in colour[colour.index("(") + 1:-1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(browser, selector):
    """Returns the contrast of a text with the page, as WCAG defines it."""
    ink, paper = browser.run("return [getComputedStyle(document.querySelector(arguments[0])).color, "
                             "getComputedStyle(document.body).backgroundColor]", selector)
    lighter, darker = sorted((luminance(ink), luminance(paper)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def check_use(browser, root):
    """Keyboard, screen reader, colours, and a phone."""
    with Feed(chess(root)) as feed:
        feed.take(10)
        browser.go(feed.address)
        wait_for_steps(browser, 10)
        wait_for(browser, "intervals.length > 0", "a second of history")
        labels = {}
        for selector, role in (("meter", "meter"), ("#progress", "progressbar"), ("#charts svg", ("image", "img"))):
            found = [browser.role_and_label(element) for element in browser.elements(selector)]
            assert found and all(one[0] in role and one[1] for one in found), (selector, found)
            labels[selector] = [label for _, label in found]
        assert "busy share of parse" in labels["meter"] and "share of the time that next() waited" in labels["meter"]
        assert labels["#charts svg"][0].startswith("samples: "), labels
        assert browser.role_and_label(browser.elements("#state")[0])[0] == "status"
        assert browser.run("return document.documentElement.lang") == "en"
        assert browser.run("return [...document.querySelectorAll('h1, h2')].map(h => h.tagName).join('')").startswith("H1H2")

        # The plan is reached and opened with only the keys.
        for _ in range(20):
            browser.press_tab()
            if browser.run("return document.activeElement.tagName") == "SUMMARY":
                break
        browser.press_enter()
        wait_for(browser, "document.getElementById('plan').open", "the plan, opened by a key")

        papers = set()
        for scheme in ("light", "dark"):
            browser.set_scheme(scheme)
            papers.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
            for selector in ("#verdict", ".faint", "#state", "th"):
                assert contrast(browser, selector) >= 4.5, (scheme, selector, contrast(browser, selector))
        assert len(papers) == 2
        browser.set_scheme("light")
        browser.resize(390, 844, phone=True)
        width, shown = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width <= shown == 390, (width, shown)
        browser.devtools("Emulation.clearDeviceMetricsOverride")


def check_token(browser, root):
    with Feed(chess(root), token="secret") as feed:
        feed.take(2)
        browser.go(feed.address.replace("//", "//feedline:secret@"))
        wait_for_steps(browser, 2)
        check_numbers(browser, feed)


def take_screenshots(browser, root, folder):
    with open(f"{root}/examples/imagenet_train.textproto") as file:
        pictures = file.read().replace("../tests", f"{root}/tests").replace("global_batch_size: 2", "global_batch_size: 6")
    with Feed(pictures) as feed:
        browser.go(feed.address)

        def go_on(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                feed.take(1)
                time.sleep(0.005)

        go_on(90)
        browser.resize(1000, 1340)
        browser.set_scheme("light")
        go_on(3)
        browser.screenshot(os.path.join(folder, "monitor.png"))
        browser.resize(390, 800, phone=True)
        browser.set_scheme("dark")
        go_on(3)
        browser.screenshot(os.path.join(folder, "monitor-phone.png"))


def main():
    Feed.program, root, *folder = sys.argv[1:]
    with Browser() as browser:
        if folder:
            return take_screenshots(browser, root, folder[0])
        for check in (check_following, check_errors, check_ranks, check_gathered_ranks, check_machine_and_sample, check_use, check_token):
            check(browser, root)


main()
