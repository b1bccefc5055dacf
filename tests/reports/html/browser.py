"""A headless Chromium for tests, on an empty profile; none of its own traffic counts."""

import base64
import json
import shutil
from contextlib import contextmanager

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip


@contextmanager
def chromium(profile):
    """A driver; the test is skipped where there is no Chromium or no driver for it."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver on the path")
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Page(made)
    finally:
        made.quit()


class Page:
    """What tests do with a page."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path):
        """Load a file afresh, with nothing in the logs of what was before."""
        self.driver.get("about:blank")
        self.complaints(), self.requests()
        self.driver.get(path.as_uri())

    def complaints(self):
        """What the console holds: errors and warnings alike."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """The addresses that were asked for since the last call."""
        events = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.one(selector).get_attribute("textContent").strip()

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def width(self, pixels):
        """A screen of that width; a phone's below 700 pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": pixels < 700},
        )

    def medium(self, name):
        """``print`` or ``screen``."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": name})

    def pdf(self):
        return base64.b64decode(self.driver.print_page())
