"""The report in a real browser, full of hostile texts: nothing runs, nothing is asked for, nothing hangs over the edge."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ops.attrition import Attrition
from ops.report.funnel import SourceFunnel
from ops.report.page import RejectExample, page_of
from ops.report.passages import Mark, Passage
from ops.report.samples import Beside, Sample
from tests.ops.report.test_markup import HOSTILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.browser

if CHROMIUM is None:
    if os.environ.get("CI") == "true":
        pytest.fail("chromium is missing; install the Debian package of that name", pytrace=False)
    pytest.skip("chromium is missing; install the Debian package of that name", allow_module_level=True)

EVIL = " ".join([*HOSTILE, "<img src=http://127.0.0.1:1/x onerror=hacked=1>", "<svg onload=hacked=1>", "\u202e\x00\x1b[2J", "x" * 3000])
OUTCOMES = {"contaminated": 1, "fuzzy": 1, "exact": 0, "language": 0, "quality": 0, "held_out_duplicate": 0, "held_out": 0, "out": 2}


def hostile_page() -> str:
    counts = Attrition(read=4, **OUTCOMES)
    funnel = SourceFunnel(
        source=EVIL,
        domain=EVIL,
        fetched=9,
        records=9,
        rejected={EVIL: 4},
        fetch_errors={EVIL: 2},
        extracted=5,
        blank=0,
        copies=1,
        distinct=4,
        documents=counts,
        tokens=counts,
    )
    passage = Passage(EVIL, 0, len(EVIL) + 5, (Mark(3, 40, "reason"), Mark(50, 60, "only")))
    beside = Beside("kept in its place", EVIL, EVIL, EVIL, passage)
    samples = [
        Sample(EVIL, outcome, EVIL, EVIL, EVIL, passage, None if outcome == "out" else beside)
        for outcome in ("fuzzy", "contaminated", "out")
    ]
    examples = {EVIL: [RejectExample(EVIL, EVIL, EVIL)]}
    return page_of([funnel], samples, examples, examples)


def test_a_report_of_hostile_texts_is_harmless_and_fits_the_window(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    report = tmp_path / "report.html"
    report.write_text(hostile_page())
    asked: list[str] = []
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page: Any = browser.new_page(viewport={"width": 1280, "height": 900})
            page.on("request", lambda request: asked.append(request.url))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(report.as_uri())
            assert page.evaluate("typeof hacked") == "undefined"
            assert (
                page.evaluate("document.querySelectorAll('script,img,svg,a,link,iframe,form,[onerror],[onload],[onmouseover]').length") == 0
            )
            assert "<script>alert(1)</script>" in page.inner_text(".passage")
            assert page.evaluate("getComputedStyle(document.querySelector('mark.reason')).backgroundColor") != "rgba(0, 0, 0, 0)"
            for width in (1280, 480):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width
        finally:
            browser.close()
    assert asked == [report.as_uri()]
    assert said == []
