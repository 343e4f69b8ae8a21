"""A headless Chromium, driven by chromedriver over the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""
import base64
import json
import re
import subprocess
import urllib.error
import urllib.request

import monitored

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's reference in the protocol


class Browser:
    def __init__(self):
        chromium = monitored.tool("chromium")
        self.driver = subprocess.Popen([monitored.tool("chromedriver"), "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            if started := re.search(r"on port (\d+)\.", line):
                break
        self.url = f"http://127.0.0.1:{started[1]}/session"
        options = {"binary": chromium, "args": ["--headless=new", "--no-sandbox", "--disable-gpu",
                                                "--disable-dev-shm-usage", "--window-size=1200,900"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            session = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        except RuntimeError as error:
            self.driver.terminate()
            monitored.skip(f"chromium does not start: {str(error).splitlines()[0]}")
        self.url += "/" + session["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call("DELETE", "")
        self.driver.terminate()
        self.driver.wait()

    def _call(self, method, path, body=None):
        request = urllib.request.Request(
            self.url + path, method=method, data=json.dumps(body or {}).encode() if method == "POST" else None)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def go(self, url):
        self._call("POST", "/url", {"url": url})

    def reload(self):
        self._call("POST", "/refresh")

    def run(self, script, *arguments):
        """Returns what the script returns: the body of a function."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press_tab(self):
        actions = [{"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def press_enter(self):
        actions = [{"type": "keyDown", "value": "\ue007"}, {"type": "keyUp", "value": "\ue007"}]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def elements(self, selector):
        found = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        return [one[ELEMENT] for one in found]

    def role_and_label(self, element):
        """Returns what a screen reader says of an element."""
        return tuple(self._call("GET", f"/element/{element}/computed{what}") for what in ("role", "label"))

    def resize(self, width, height, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def set_scheme(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def log(self):
        return self._call("POST", "/se/log", {"type": "browser"})

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("GET", "/screenshot")))
