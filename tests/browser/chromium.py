"""Debian's Chromium without a window, and what it has drawn: TensorBoard keeps its elements in nested shadow trees."""

import os
import shutil
import time

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
PATIENCE = 30
"""Seconds within which a page must show what is asked for."""

FOUND = """
    const found = [];
    const walk = root => {
        for (const element of root.querySelectorAll('*')) {
            if (element.matches(arguments[0])) found.push(element);
            if (element.shadowRoot) walk(element.shadowRoot);
        }
    };
    walk(arguments[1] && arguments[1].shadowRoot || arguments[1] || document);
"""
TEXTS = f"{FOUND} return found.map(element => element.textContent.trim());"
ELEMENTS = f"{FOUND} return found;"
LINES = f"""{FOUND}
    const isLine = path => {{
        const style = getComputedStyle(path), points = (path.getAttribute('d') || '').split(/[LlCc]/).length;
        return points > arguments[2] && path.getBBox().width > 50 && style.visibility !== 'hidden';
    }};
    return found.filter(isLine).length;
"""


def start(width=1600, height=2000):
    """A browser; without one the test is skipped, and fails where CI has promised one."""
    missing = [name for name, path in (("chromium", BROWSER), ("chromium-driver", DRIVER)) if path is None]
    try:
        from selenium import webdriver
    except ImportError:
        missing.append("selenium")
    if missing:
        said = f"no {', no '.join(missing)}: apt-get install chromium chromium-driver; pip install selenium"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(said)
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{option}")
    options.add_argument(f"--window-size={width},{height}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(PATIENCE)
    return driver


class Page:
    """What a browser shows of a page."""

    def __init__(self, driver, picture_of):
        self.driver = driver
        self._picture_of = picture_of

    def open(self, url):
        # A change of what follows the # alone would leave the old page there.
        self.driver.get("about:blank")
        self.driver.get(url)
        return self

    def texts(self, selector):
        return self.driver.execute_script(TEXTS, selector, None)

    def elements(self, selector):
        return self.driver.execute_script(ELEMENTS, selector, None)

    def lines(self, element, points=5):
        """Curves in an element that have more points than that and are not squeezed into nothing."""
        return self.driver.execute_script(LINES, "path", element, points)

    def until(self, shown, of_what):
        """What ``shown()`` gives as soon as it is not empty."""
        end = time.monotonic() + PATIENCE
        while not (found := shown()):
            assert time.monotonic() < end, f"not shown within {PATIENCE} s: {of_what}"
            time.sleep(0.2)
        return found

    def picture(self, name, height=1300):
        """Keep the upper part of what is shown as a picture; how large it is in bytes."""
        path, (width, whole) = self._picture_of(name), self.driver.get_window_size().values()
        self.driver.set_window_size(width, height)
        assert self.driver.save_screenshot(str(path))
        self.driver.set_window_size(width, whole)
        return path.stat().st_size
