"""The page of a server in a real browser, without a window."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 30
# Clears what another test stored, records the bodies of requests, and answers some paths in place of the server.
FETCH = """
window.sent = [];
if (sessionStorage.getItem("page") !== "%s") {
  localStorage.clear();
  sessionStorage.setItem("page", "%s");
}
const real = window.fetch;
window.fetch = (path, options = {}) => {
  window.sent.push([options.method ?? "GET", path, typeof options.body === "string" ? JSON.parse(options.body) : null]);
  const answers = %s;
  const found = Object.keys(answers).find((start) => String(path).startsWith(start));
  if (found === undefined) return real(path, options);
  return Promise.resolve(new Response(JSON.stringify(answers[found]), { status: answers[found] === null ? 404 : 200 }));
};
"""


def start_browser(profile: Path) -> Iterator[Any]:
    """Start chromium, and end it afterwards."""
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("there is no browser: install chromium and chromedriver (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--no-proxy-server", f"--user-data-dir={profile}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The page of a server in the browser."""

    def __init__(self, driver: Any, url: str, answers: dict[str, Any] | None = None) -> None:
        self.driver = driver
        driver.get_log("browser")
        driver.set_window_size(1300, 900)
        if added := getattr(driver, "added_script", None):
            driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
        token = secrets.token_hex(8)
        script = {"source": FETCH % (token, token, json.dumps(answers or {}))}
        driver.added_script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
        driver.get(url)

    def __getitem__(self, name: str) -> Any:
        return self.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition: Callable[[], Any], what: str) -> Any:

        waiting = WebDriverWait(self.driver, SECONDS, 0.05, (StaleElementReferenceException,))
        return waiting.until(lambda _: condition(), what)

    def write(self, text: str) -> None:
        self["source"].clear()
        self["source"].send_keys(text)

    def wait_for_start(self) -> None:
        self.wait(lambda: self["document-formats"].get_attribute("textContent"), "the start of the page")

    def wait_for_translation(self, text: str) -> None:
        self.wait(lambda: self["translation"].text == text, f"the translation {text!r}")

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def press_with_control(self, key: str) -> None:
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait_until_idle(self) -> None:
        busy = "return document.querySelectorAll('[aria-busy=true], .pending').length"
        self.wait(lambda: not self.run(busy), "the end of the translation")

    def paste(self, text: str) -> None:
        """Write a long text at once, and wait for its translation."""
        before = len(self.sent("/segments"))
        self.put(text)
        self.wait(lambda: len(self.sent("/segments")) > before, "the start")
        self.wait_until_idle()

    def put(self, text: str) -> None:
        """Put a text into the source field at once."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.run(script, self["source"], text)

    def sent(self, path: str) -> list[Any]:
        """The bodies of requests to a path."""
        return [body for _, sent, body in self.run("return window.sent") if sent == path]

    def button(self, label: str) -> Any:
        """The button with a name for screen readers, or with a text."""
        found = [one for one in self.all("button") if label in (one.get_attribute("aria-label"), one.text)]
        assert found, label
        return found[0]

    def is_in_view(self, element: Any) -> bool:
        script = "const box = arguments[0].getBoundingClientRect(); return box.top >= 0 && box.top < innerHeight - 20"
        return bool(self.run(script, element))

    def point_at(self, element: Any) -> None:
        ActionChains(self.driver).move_to_element(element).perform()

    def touch(self, element: Any) -> None:
        """Touch the centre of an element with a finger, with all events of a real touch."""
        box = self.run("return arguments[0].getBoundingClientRect()", element)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
            self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def show_in(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def has_no_browser_errors(self) -> bool:
        """Check that the browser logged no error, such as a script that violates the content policy."""
        # The browser also logs responses of status 40x, which some tests cause.
        found = [entry for entry in self.driver.get_log("browser") if "status of 40" not in entry["message"]]
        assert not found
        return True
