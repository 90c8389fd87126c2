"""The report on the same runs, as a page in the same browser."""

import pytest

from lightning_rollout_is.report.command import main

pytestmark = pytest.mark.timeout(120)


def test_the_report_tells_the_sick_run_from_the_sound_one(page, logdir, tmp_path):
    report = tmp_path / "report.html"
    main(["report", str(logdir), "--out", str(report)])
    page.open(report.as_uri())
    page.until(lambda: page.elements("svg"), "a figure")
    assert len(page.elements(".card.healthy")) == 1
    assert len(page.elements(".card.watch, .card.unhealthy")) == 1
    # Of a long curve that never moves matplotlib keeps the two ends.
    assert all(page.lines(figure, points=1) for figure in page.elements("svg"))
    page.picture("report")
