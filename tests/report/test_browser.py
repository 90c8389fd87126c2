"""The page in a real browser; skipped where there is none."""

import shutil
import subprocess

import pytest

from lightning_rollout_is.report.command import main
from tests.report.written import DETAILS, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")


def browse(folder, *options):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    page = (folder / "report.html").as_uri()
    return subprocess.run([*command, *options, page], capture_output=True, timeout=120, check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    write_run(folder / "runs" / "sick", mismatch_kl=0.2, mismatch_k3_kl=0.3, **DETAILS)
    write_run(folder / "runs" / "sound")
    assert main(["report", str(folder / "runs"), "--out", str(folder / "report.html")]) == 1
    return folder


def test_what_the_browser_makes_of_it_is_what_was_written(folder):
    read = browse(folder, "--dump-dom").decode()
    assert read.count("<svg") == 7 + 6
    assert "Mismatch along the response" in read
    assert read.count('class="card unhealthy"') == read.count('class="card healthy"') == 1


def test_a_picture_of_it_is_not_empty(folder):
    picture = folder / "page.png"
    browse(folder, f"--screenshot={picture}", "--window-size=1300,900")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 30_000
