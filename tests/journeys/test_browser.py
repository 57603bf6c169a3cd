"""A person in a browser: the graph, an asset's plots and checks, a materialization by a click, a re-execution from failure.

Screenshots are build outputs under `build/screenshots/`, for a person to look at.
"""

import json
import os
import shutil
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.journeys.lab import REPOSITORY, Lab

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = REPOSITORY / "build" / "screenshots"
# No look-ups, no component downloads: nothing that leaves the machine.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
VIEWPORT = {"width": 1600, "height": 1000}
PATIENCE_S = 180

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

if CHROMIUM is None:
    if os.environ.get("CI") == "true":
        pytest.fail("chromium is missing; install the Debian package of that name", pytrace=False)
    pytest.skip("chromium is missing; install the Debian package of that name", allow_module_level=True)


class Ui:
    """A running `seaway ui`, and a browser page on it."""

    def __init__(self, lab: Lab, port: int, page: Any) -> None:
        self.lab = lab
        self.url = f"http://127.0.0.1:{port}"
        self.page = page

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        assert "errors" not in answer, answer
        return answer["data"]  # type: ignore[no-any-return]

    def runs(self) -> dict[str, str]:
        """Run id -> status, newest first."""
        found = self.query("{ runsOrError { ... on Runs { results { runId status } } } }")["runsOrError"]["results"]
        return {run["runId"]: run["status"] for run in found}

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}", timeout=PATIENCE_S * 1000)

    def see(self, text: str) -> Any:
        found = self.page.get_by_text(text).first
        found.wait_for(timeout=PATIENCE_S * 1000)
        return found

    def screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))


def wait_until[T](what: str, find: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if found := find():
                return found
        except OSError:
            pass  # the server is not up yet
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen in {PATIENCE_S} s")


@pytest.fixture(scope="module")
def ui(finished_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """The finished lab's UI, in a browser."""
    from playwright.sync_api import sync_playwright

    log = tmp_path_factory.mktemp("ui") / "ui.log"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = finished_lab.start("seaway", "ui", "--port", str(port), log=log)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
            page = browser.new_page(viewport=VIEWPORT)
            opened = Ui(finished_lab, port, page)
            wait_until("the code location loads", lambda: "seaway" in _locations(opened))
            yield opened
            browser.close()
    finally:
        end(server)


def _locations(ui: Ui) -> list[str]:
    found = ui.query(
        "{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } } }"
    )["workspaceOrError"]["locationEntries"]  # fmt: skip
    return [entry["name"] for entry in found if (entry["locationOrLoadError"] or {}).get("__typename") == "RepositoryLocation"]


def end(server: psutil.Popen) -> None:
    """End the UI and all that it started, by their ids."""
    family = [server, *server.children(recursive=True)]
    server.terminate()
    _, left = psutil.wait_procs(family, timeout=30)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=10)


def test_the_graph_shows_the_whole_lineage(ui: Ui):
    ui.page.set_viewport_size({"width": 1700, "height": 2300})  # what lies outside is not drawn
    ui.open("/asset-groups")
    ui.see("Materialize all")
    ui.see("documents")
    ui.page.keyboard.press("Alt+E")
    for asset in ("raw", "fuzzy_duplicates", "hero", "cooldown", "release"):
        ui.see(asset)
    ui.screenshot("lineage")
    ui.page.set_viewport_size(VIEWPORT)


def test_an_asset_shows_its_plots_and_checks(ui: Ui):
    ui.open("/assets/hero")
    row = ui.page.locator("tr", has_text="loss_curve").first
    row.wait_for(timeout=PATIENCE_S * 1000)
    row.get_by_text("Show Markdown").click()
    plot = ui.page.locator("img[alt='Loss']").first
    plot.wait_for(timeout=PATIENCE_S * 1000)
    assert plot.evaluate("image => image.complete && image.naturalWidth > 300")
    ui.screenshot("hero-loss")
    ui.open("/assets/hero?view=checks")
    ui.see("loss_is_finite")
    ui.see("Succeeded")
    ui.screenshot("hero-checks")


def test_a_click_materializes_an_asset(ui: Ui):
    before = ui.runs()
    ui.open("/assets/tokenizer")
    ui.page.get_by_role("button", name="Materialize").first.click(timeout=PATIENCE_S * 1000)
    (run,) = wait_until("a run starts", lambda: ui.runs().keys() - before.keys())
    assert wait_until("the run ends", lambda: (status := ui.runs()[run]) in ("SUCCESS", "FAILURE") and status) == "SUCCESS"
    ui.open(f"/runs/{run}")
    ui.see("tokenizer")
    ui.screenshot("launched-by-a-click")


LAUNCH = """
mutation ($partition: String!) {
  launchRun(executionParams: {
    selector: {repositoryLocationName: "seaway", repositoryName: "__repository__", jobName: "__ASSET_JOB",
               assetSelection: [{path: ["raw"]}, {path: ["extracted"]}]},
    runConfigData: {},
    executionMetadata: {tags: [{key: "dagster/partition", value: $partition}]}
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}
"""


def test_a_failed_run_is_re_executed_from_its_failure(ui: Ui):
    """The source's folder is away, and comes back."""
    texts, away = ui.lab.texts, ui.lab.texts.with_name("away")
    texts.rename(away)
    try:
        launched = ui.query(LAUNCH, partition="texts")["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        run = launched["run"]["runId"]
        wait_until("the run fails", lambda: ui.runs()[run] == "FAILURE")
    finally:
        away.rename(texts)
    ui.open(f"/runs/{run}")
    ui.see("does not exist; point the source's `root`")
    ui.screenshot("failed-run")

    before = ui.runs()
    choices = ui.page.get_by_role("button", name="Re-execute").first.locator("xpath=following::button[1]")
    choices.click(timeout=PATIENCE_S * 1000)
    ui.page.get_by_text("From failure", exact=True).first.click(timeout=PATIENCE_S * 1000)
    (again,) = wait_until("a run starts", lambda: ui.runs().keys() - before.keys())
    assert wait_until("the run ends", lambda: (status := ui.runs()[again]) in ("SUCCESS", "FAILURE") and status) == "SUCCESS"
    tags = ui.query("query ($id: ID!) { runOrError(runId: $id) { ... on Run { parentRunId tags { key value } } } }", id=again)["runOrError"]
    assert tags["parentRunId"] == run
    assert {"key": "dagster/is_resume_retry", "value": "true"} in tags["tags"], "from the failure, not from the start"
    ui.open(f"/runs/{again}")
    ui.see("Success")
    ui.screenshot("re-executed")
