import io
import re
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from fastwarc import ArchiveIterator
from fastwarc.warc import WarcRecordType

from infra.artifacts.artifact import Artifact
from ops.crawl.config import PydocSource, RawConfig
from ops.crawl.pydoc_site import serving_pydoc
from ops.crawl.raw import raw
from ops.observe import observe
from tests.builders import run_program

SOURCE = PydocSource(
    domain="docs",
    licence="PSF-2.0",
    snapshot="2026-01-01T00:00:00Z",
    max_pages=14,
    seeds=("/argparse.html", "/dataclasses.html", "/index.html"),
)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    config = RawConfig(source=SOURCE, observed=observe(SOURCE))
    root = tmp_path_factory.mktemp("pydoc")
    return run_program(raw, config, root / "1"), run_program(raw, config, root / "2")


def pages_of(artifact: Artifact) -> dict[str, str]:
    with artifact.open("warc/00000.warc.gz") as stream:
        records = ArchiveIterator(io.BytesIO(stream.read()), record_types=WarcRecordType.response, verify_digests=True)
        return {record.headers["WARC-Target-URI"]: record.reader.read().decode() for record in records}


def test_the_documentation_of_python_is_crawled_into_a_warc(crawled: tuple[Artifact, Artifact]) -> None:
    pages = pages_of(crawled[0])
    assert len(pages) == SOURCE.max_pages == crawled[0].stats["records"]
    assert "class <strong>ArgumentParser</strong>" in pages["http://pydoc.localhost/argparse.html"]


def test_crawling_again_gives_the_same_bytes(crawled: tuple[Artifact, Artifact]) -> None:
    assert crawled[0].digest == crawled[1].digest


def test_no_page_holds_the_address_of_an_object_or_the_port(crawled: tuple[Artifact, Artifact]) -> None:
    for url, page in pages_of(crawled[0]).items():
        assert not re.search(r"at(?:\s|&nbsp;)0x[0-9a-f]{6}|127\.0\.0\.1:\d", page), url


def test_the_server_shows_nothing_of_our_environment_and_guards_modules_with_side_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWAY_TEST_SECRET", "do-not-leak")
    with serving_pydoc() as (host, port), httpx.Client(base_url=f"http://{host}:{port}", trust_env=False) as client:
        environment = client.get("/os.html")
        interpreter = client.get("/sys.html").text
        rules = client.get("/robots.txt").text
        missing = client.get("/no_such_module.html")
    assert environment.status_code == 200
    assert "PYTHONHASHSEED" in environment.text
    assert "do-not-leak" not in environment.text
    assert "orig_argv" in interpreter
    assert str(Path(__file__).parents[3]) not in interpreter
    assert "Disallow: /antigravity." in rules
    assert missing.status_code == 404


def test_the_server_leaves_when_its_crawler_is_killed() -> None:
    script = (
        "import subprocess, time, ops.crawl.pydoc_site as site\n"
        "start = subprocess.Popen\n"
        "def starting(*args, **options):\n"
        "    server = start(*args, **options)\n"
        "    print(server.pid, flush=True)\n"
        "    return server\n"
        "site.subprocess.Popen = starting\n"
        "with site.serving_pydoc():\n"
        "    print('serving', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as crawler:
        assert crawler.stdout is not None
        server = psutil.Process(int(crawler.stdout.readline()))
        assert crawler.stdout.readline() == "serving\n"
        crawler.kill()
    gone, _ = psutil.wait_procs([server], timeout=20)
    assert gone
