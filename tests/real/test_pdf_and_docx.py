"""Every PDF and DOCX file of the real data ends as a document or a typed reject; text is held against other extractors'."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from ops.config import NormalizeConfig
from ops.crawl.config import FilesSource, RawConfig
from ops.crawl.raw import raw
from ops.extract.config import DocxConfig, ExtractConfig, PdfConfig
from ops.extract.documents import extract
from ops.extract.docx.document import docx_text
from ops.extract.docx.errors import DocxError
from ops.extract.pdf.process import PdfReader, PdfRejectedError
from ops.extract.rejects import Reason
from ops.normalize import normalize
from ops.observe import observe
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.extract.fuzzing import mutated
from tests.real.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

FILES = FilesSource(
    domain="web",
    licence="see the data's README",
    label="real",
    root=str(REAL_DATA),
    include=("pdf/**/*.pdf", "docx/**/*.docx"),
)
# The README's passwords, and what its sources say needs one.
ENCRYPTED = {
    "2206.01062_pg3.pdf",
    "bug1782186.pdf",
    "issue15893_reduced.pdf",
    "issue3371.pdf",
    "issue6010_1.pdf",
    "issue6010_2.pdf",
    "libreoffice-writer-password.pdf",
    "password-example.pdf",
    "saslprep-r6.pdf",
}
DOCX_FUZZ_CASES, PDF_FUZZ_CASES = 600, 300


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    root = tmp_path_factory.mktemp("files")
    found = run_program(raw, RawConfig(source=FILES, observed=observe(FILES)), root / "raw")
    texts = run_program(extract, ExtractConfig(), root / "extracted", raw=found)
    return {"raw": found, "extracted": texts, "normalized": run_program(normalize, NormalizeConfig(), root / "normalized", extracted=texts)}


def rows_of(artifact: Artifact) -> list[dict[str, Any]]:
    return [row for name in shard_names(artifact) for row in read_table(artifact, name).to_pylist()]


def name_of(uri: str) -> str:
    return uri.rpartition("/")[2]


def test_every_file_ends_as_a_document_or_a_typed_reject(stages: dict[str, Artifact]) -> None:
    extracted = stages["extracted"]
    documents, rejects = rows_of(extracted), read_table(extracted, "rejects.parquet").to_pylist()
    stats = extracted.stats
    counts = Counter((Path(row["uri"]).suffix, row["reason"]) for row in rejects) + Counter(
        (Path(row["source_id"]).suffix, "document") for row in documents
    )
    print(f"\n{stats}\n{dict(sorted(counts.items()))}")
    assert stages["raw"].stats["records"] == stats["records"] == len(documents) + len(rejects) == 168 + 55
    assert {row["reason"] for row in rejects} <= set(Reason)
    assert counts[".docx", "document"] == 53  # one has no paragraph, one a picture alone
    assert counts[".docx", "empty-text"] == 2
    assert counts[".pdf", "document"] >= 105
    assert 30 <= counts[".pdf", "empty-text"] <= 45  # scans and drawings
    assert 5 <= counts[".pdf", "broken-file"] <= 10
    assert counts[".pdf", "timeout"] == counts[".pdf", "parser-crash"] == counts[".pdf", "extractor-error"] == 0


def test_files_that_need_a_password_say_so_and_an_empty_one_is_tried(stages: dict[str, Artifact]) -> None:
    rejects = read_table(stages["extracted"], "rejects.parquet").to_pylist()
    assert {name_of(row["uri"]) for row in rejects if row["reason"] == "encrypted"} >= ENCRYPTED
    opened = [row["source_id"] for row in rows_of(stages["extracted"]) if b"/Encrypt" in _bytes_of(row["source_id"])]
    print(f"\nencrypted, and open to everybody: {sorted(map(name_of, opened))}")
    assert opened


def _bytes_of(uri: str) -> bytes:
    return (REAL_DATA / uri.removeprefix("real:")).read_bytes()


def test_page_starts_lie_in_the_text_for_every_page(stages: dict[str, Artifact]) -> None:
    for stage in ("extracted", "normalized"):
        documents = [row for row in rows_of(stages[stage]) if row["media_type"] == "application/pdf"]
        for row in documents:
            starts = row["page_starts"]
            assert starts[0] == 0, row["source_id"]
            assert starts == sorted(starts), row["source_id"]
            assert starts[-1] <= len(row["text"]), row["source_id"]
        assert sum(len(row["page_starts"]) for row in documents) > 200


def test_nothing_unprintable_comes_out(stages: dict[str, Artifact]) -> None:
    for row in rows_of(stages["extracted"]):
        assert not re.search("[\0-\x08\x0e-\x1f\x7f\ufffe\ud800-\udfff]", row["text"]), row["source_id"]
        assert row["text"] == row["text"].strip()


def ngrams(text: str, size: int) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", re.sub(r"<!--.*?-->|[\\]", "", text))
    return Counter(tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1)))


def recall(found: str, wanted: str, size: int) -> float:
    expected = ngrams(wanted, size)
    return (ngrams(found, size) & expected).total() / expected.total()


def test_word_documents_hold_what_another_extractor_found(stages: dict[str, Artifact]) -> None:
    """docling's Markdown as the other voice. It repeats merged cells and draws charts, which we don't."""
    folder = REAL_DATA / "docx" / "docling"
    texts = {name_of(row["source_id"]): row["text"] for row in rows_of(stages["extracted"])}
    recalls = {
        path.name.removesuffix(".md"): recall(texts[path.name.removesuffix(".md")], path.read_text(), 1)
        for path in sorted((folder / "groundtruth").glob("*.md"))
    }
    mean = sum(recalls.values()) / len(recalls)
    print(f"\nwords of docling's found again: {mean:.3f} on {len(recalls)} files; least {sorted(recalls.items(), key=lambda r: r[1])[:4]}")
    assert len(recalls) == 31
    assert mean > 0.9


def test_pages_are_read_in_the_order_that_another_extractor_found(stages: dict[str, Artifact]) -> None:
    """Word 3-grams of docling's Markdown; its Arabic differs in how ligatures are spelt."""
    folder = REAL_DATA / "pdf" / "docling"
    texts = {name_of(row["source_id"]): row["text"] for row in rows_of(stages["extracted"])}
    recalls = {
        path.stem: recall(texts[f"{path.stem}.pdf"], path.read_text(), 3)
        for path in sorted((folder / "groundtruth").glob("*.md"))
        if (folder / f"{path.stem}.pdf").exists()
    }
    print(f"\n{ {name: round(share, 3) for name, share in recalls.items()} }")
    latin = [share for name, share in recalls.items() if not name.startswith("right_to_left")]
    assert len(latin) == 6
    assert sum(latin) / len(latin) > 0.9
    assert min(recalls.values()) > 0.6


def test_damaged_word_documents_never_crash() -> None:
    seeds = [path.read_bytes() for path in sorted((REAL_DATA / "docx").rglob("*.docx")) if path.stat().st_size < 64 << 10]
    outcomes = Counter[str]()
    for case in range(DOCX_FUZZ_CASES):
        try:
            docx_text(mutated(seeds, case), DocxConfig())
            outcomes["document"] += 1
        except DocxError as error:
            outcomes[error.reason] += 1
    print(f"\n{outcomes}")
    assert outcomes["broken-file"] > DOCX_FUZZ_CASES / 3


def test_damaged_pdfs_cost_themselves_alone() -> None:
    seeds = [path.read_bytes() for path in sorted((REAL_DATA / "pdf").rglob("*.pdf")) if path.stat().st_size < 128 << 10]
    outcomes = Counter[str]()
    with PdfReader(PdfConfig(open_cpu_s=3)) as reader:
        for case in range(PDF_FUZZ_CASES):
            try:
                reader.read(mutated(seeds, case))
                outcomes["document"] += 1
            except PdfRejectedError as error:
                outcomes[error.reason] += 1
    print(f"\n{outcomes}")
    assert set(outcomes) <= {"document", *Reason}
    assert outcomes["document"] > PDF_FUZZ_CASES / 10
    assert outcomes["timeout"] + outcomes["parser-crash"] + outcomes["extractor-error"] < PDF_FUZZ_CASES / 50
