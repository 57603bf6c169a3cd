"""The board in a browser, light and dark. Screenshots are build outputs under `build/screenshots/`, for a person to look at."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from infra.dash.pages import Dash
from tests.infra.dash.scene import scene
from tests.infra.dispatch.builders import wait_for

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE_MS = 120_000
WIDE, NARROW = {"width": 1440, "height": 1000}, {"width": 420, "height": 900}

pytestmark = pytest.mark.browser

if CHROMIUM is None:
    if os.environ.get("CI") == "true":
        pytest.fail("chromium is missing; install the Debian package of that name", pytrace=False)
    pytest.skip("chromium is missing; install the Debian package of that name", allow_module_level=True)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    application = Dash(scene(), "/labs/autumn").application()
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    wait_for(lambda: server.started, "the server starts")
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(60)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Any, url: str) -> Iterator[Any]:
    """A page on the board, and everything it complained of or asked others for."""
    opened = browser.new_page(viewport=WIDE, color_scheme=request.param)
    opened.set_default_timeout(PATIENCE_MS)
    opened.scheme, opened.complaints = request.param, []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("request", lambda asked: None if asked.url.startswith((url, "data:")) else opened.complaints.append(asked.url))
    opened.goto(url)
    yield opened
    assert opened.complaints == []
    opened.close()


def photograph(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SCREENSHOTS / f"dash-{name}-{page.scheme}.png"), full_page=True)


def test_a_person_goes_from_the_board_to_the_reason_of_one_sample(page: Any) -> None:
    photograph(page, "board")
    page.get_by_role("link", name="release-7b, gsm8k").click()
    page.get_by_role("heading", name="gsm8k").wait_for()
    photograph(page, "run")
    page.get_by_role("navigation", name="Verdict").get_by_role("link", name="failed").click()
    page.get_by_role("link", name="Next page").wait_for(state="hidden")
    page.get_by_role("link", name="gsm8k / 0005").click()
    page.get_by_role("heading", name="gsm8k / 0005").wait_for()
    page.get_by_text("the moon").first.wait_for()
    assert page.title().startswith("gsm8k / 0005")
    photograph(page, "sample")


def test_the_board_is_filtered_by_a_form(page: Any) -> None:
    for name in ("arc_easy", "gsm8k"):
        page.get_by_text(name, exact=True).first.click()
    page.get_by_label("Items graded").select_option("0.9")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Panel mean").wait_for()
    assert page.locator("tbody tr").count() == 5
    assert page.get_by_text("only 82% graded").count() == 2
    photograph(page, "panel")


def test_predictions_are_drawn(page: Any) -> None:
    page.get_by_role("link", name="Predictions").click()
    page.get_by_text("within").first.wait_for()
    assert page.locator("svg.error").count() == 3
    photograph(page, "predictions")


def test_a_run_that_failed_says_why(page: Any) -> None:
    page.get_by_role("link", name="see why").first.click()
    page.get_by_text("Connection reset by peer").wait_for()
    photograph(page, "failed")


def test_nothing_sticks_out_on_a_narrow_screen(page: Any, url: str) -> None:
    page.set_viewport_size(NARROW)
    run = page.get_by_role("link", name="release-7b, gsm8k").get_attribute("href")
    for path in ("/predictions", run, "/"):
        page.goto(url + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        heights = page.locator(".verdict").evaluate_all("found => found.map(one => one.offsetHeight)")
        assert len(set(heights)) <= 1, "a verdict is one word on one line"
    photograph(page, "narrow")
