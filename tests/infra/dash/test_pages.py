"""The pages as a client gets them: complete, escaped, and a sentence where something is not there."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from infra.dash.pages import SAMPLES_PER_PAGE, Dash
from infra.dash.results import Sample
from tests.infra.dash.results import InMemory
from tests.infra.dash.scene import HOSTILE, scene

SCENE = scene()
GSM8K = next(one for one in SCENE.found if one.benchmark == "gsm8k" and one.is_valid)


class Reader(HTMLParser):
    """What a browser would make of a page: its tags with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self) -> list[str]:
        return [str(attributes["href"]) for tag, attributes in self.tags if tag == "a"]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Dash(SCENE, "/labs/<autumn>").application()) as made:
        yield made


def read(client: TestClient, url: str, status: int = 200) -> Reader:
    reply = client.get(url)
    assert reply.status_code == status
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    return Reader(reply.text)


def test_the_board_has_every_model_in_the_order_of_its_lower_bound(client: TestClient) -> None:
    html = client.get("/?sort=arc_easy").text
    models = re.findall(r'<th class="model" scope="row"><bdi>([^<]+)', html)
    assert models == ["release-7b", "cooldown-3b", "hero-3b", "ablation-norm-gate", "baseline-1b"]
    page = Reader(html)
    assert "18% missing" in page.text
    assert "newer run suspect" in page.text
    assert "infra failed" in page.text
    assert "Panel mean" not in page.text


def test_a_chosen_panel_has_means_and_the_filters_stay_in_the_links(client: TestClient) -> None:
    page = read(client, "/?benchmark=arc_easy&benchmark=gsm8k&model=3b&scored=0.9")
    assert "Panel mean" in page.text
    assert "baseline-1b" not in page.text
    assert "/?benchmark=arc_easy&benchmark=gsm8k&model=3b&scored=0.9&sort=gsm8k" in page.links()


def test_a_run_shows_its_cohort_its_errors_and_a_page_of_samples(client: TestClient) -> None:
    page = read(client, f"/run?run={GSM8K.run}")
    assert GSM8K.cohort in page.text
    assert GSM8K.version in page.text
    assert sum("/sample?" in link for link in page.links()) == SAMPLES_PER_PAGE
    lost = read(client, "/run?run=lost.2026-11-30-night")
    assert "ConnectionResetError: [Errno 104]" in lost.text
    assert "This run left no samples." in lost.text


def test_pages_of_samples_follow_each_other_to_the_end(client: TestClient) -> None:
    url, seen = f"/run?run={GSM8K.run}&verdict=failed", list[str]()
    while url:
        page = read(client, url)
        seen += re.findall(r"gsm8k / (\d+)", page.text)
        url = next((link for link in page.links() if "after=" in link), "")
    assert seen == [str(one.key[1]) for one in SCENE.samples if one.verdict == "failed"]


def test_a_sample_says_why_it_counts_as_it_does(client: TestClient) -> None:
    page = read(client, f"/sample?run={GSM8K.run}&key=%5B%22gsm8k%22%2C%220004%22%5D")
    assert "Graded by exact_match: exact_match is 0." in " ".join(page.text.split())
    assert '"expected": "56"' in page.text
    assert "#### 15" in page.text
    choices = read(client, f"/sample?run={GSM8K.run}&key=%5B%22gsm8k%22%2C%220005%22%5D")
    marked = [str(attributes["class"]).split() for tag, attributes in choices.tags if tag == "li"]
    assert marked == [[], ["gold"], ["chosen"], []]


def test_a_list_of_samples_says_what_was_answered_and_what_would_have_been_right(client: TestClient) -> None:
    row = client.get(f"/run?run={GSM8K.run}").text.partition("gsm8k / 0005")[2].partition("</tr>")[0]
    assert "the rain" in row, "the choice that the model made"
    assert "loglik: right is the moon" in row


def test_a_trajectory_is_shown_from_its_blob_and_a_lost_one_hides_nothing_else() -> None:
    uri = "archive://blobs/trajectories/17.json"
    item = Sample(("gsm8k", "17"), "failed", "agentic", method="unit_tests", metric="resolved", score=0.0, output="gave up", trajectory=uri)
    url = f"/sample?run={GSM8K.run}&key=%5B%22gsm8k%22%2C%2217%22%5D"
    for blobs, sentence in (({uri: f"step 1: {HOSTILE}"}, "step 1: <script>"), ({}, f"{uri} can't be read: it is not in this archive")):
        with TestClient(Dash(InMemory([GSM8K], [item], blobs=blobs), "here").application()) as client:
            page = read(client, url)
        assert sentence in page.text
        assert "gave up" in page.text
        assert not [tag for tag, _ in page.tags if tag in ("script", "img")]


def test_hostile_texts_are_text_and_nothing_in_them_is_lost_or_obeyed(client: TestClient) -> None:
    page = read(client, f"/sample?run={GSM8K.run}&key=%5B%22gsm8k%22%2C%220003%22%5D")
    assert not [tag for tag, attributes in page.tags if tag in ("script", "img") or any(name.startswith("on") for name in attributes)]
    shown = HOSTILE.replace("\u202e", "[U+202E]").replace("\u2028", "[U+2028]").replace("\x00", "[U+0000]")
    assert page.text.count(shown) == 3
    assert "/labs/<autumn>" in page.text
    for url in (f"/run?run={GSM8K.run}", "/?model=%3Cscript%3E", "/run?run=%3Cscript%3E", "/%3Cscript%3E"):
        assert "<script" not in client.get(url).text


def test_a_long_text_is_cut_and_whole_on_demand() -> None:
    long = SCENE.samples[0].__class__(("gsm8k", "long"), "passed", "generation", output="x" * 50_000, method="m", metric="m", score=1.0)
    with TestClient(Dash(InMemory([GSM8K], [long]), "here").application()) as client:
        url = f"/sample?run={GSM8K.run}&key=%5B%22gsm8k%22%2C%22long%22%5D"
        page = read(client, url)
        assert page.text.count("x" * 20_000) == 1
        assert "30,000 characters more" in page.text
        (whole,) = [link for link in page.links() if "whole" in link]
        assert "x" * 50_000 in read(client, f"/sample{whole}").text


def test_predictions_stand_beside_results(client: TestClient) -> None:
    page = read(client, "/predictions")
    verdicts = re.findall(r'class="tag[^"]*">([^<]+)', client.get("/predictions").text)
    assert verdicts == ["within", "not scored", "outside", "waiting"]
    assert "this is a branch that left its parent at step 30000" in page.text


@pytest.mark.parametrize("page", ["/", "/predictions"])
def test_an_empty_store_says_what_to_do(page: str) -> None:
    with TestClient(Dash(InMemory(), "here").application()) as client:
        assert "yet" in read(client, page).text


@pytest.mark.parametrize(
    ("url", "status", "sentence"),
    [
        ("/run?run=nothing", 404, "No result has the id 'nothing'"),
        ("/nowhere", 404, "Nothing is at /nowhere."),
        (f"/run?run={GSM8K.run}&verdict=maybe", 400, "choose one of passed, failed, ungraded"),
        (f"/run?run={GSM8K.run}&after=x", 400, "after must be a JSON list"),
        (f"/run?run={GSM8K.run}&after=[1]", 400, "is no key of table"),
        (f"/sample?run={GSM8K.run}", 400, "No sample is named"),
        (f"/sample?run={GSM8K.run}&key=[%22gsm8k%22,%229999%22]", 404, "has no sample gsm8k / 9999"),
        ("/?scored=2", 400, "scored is '2'; give a number from 0 to 1"),
    ],
)
def test_what_can_not_be_shown_is_a_sentence_with_its_status(client: TestClient, url: str, status: int, sentence: str) -> None:
    assert sentence in read(client, url, status).text


def test_a_source_that_is_away_is_a_page_and_not_a_crash() -> None:
    with TestClient(Dash(InMemory(is_away=True), "here").application()) as client:
        assert "the network is away; try again" in read(client, "/", 503).text
        assert client.get("/health").text == "ok"
