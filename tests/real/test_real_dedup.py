"""Near-duplicates of real corpora, as their README describes them: found where they are, and nowhere else."""

from collections.abc import Mapping
from pathlib import Path

from infra.artifacts.artifact import Artifact
from ops.dedup.config import ExactDedupConfig, FuzzyDedupConfig, MinhashConfig
from ops.dedup.exact import exact_duplicates
from ops.dedup.fuzzy import fuzzy_duplicates
from ops.dedup.minhash import minhash
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.real.corpora import corpus
from tests.real.real_data import needs_real_data

pytestmark = needs_real_data

VERSIONED = ("gutenberg", "http_drafts", "rust_book", "licence_texts")
TRANSLATED = ("react_docs_es", "react_docs_ja", "react_docs_ru", "react_docs_zh-hans")
TEMPLATED = ("tldr", "chinese_poetry", "german_laws", "openlogic")


def dedup(directory: Path, names: tuple[str, ...], **config: object) -> tuple[Artifact, Mapping[str, str]]:
    """The flags, and each id's own name."""
    sources = {name: corpus(directory / "sources", name) for name in names}
    signed = {
        name: run_program(minhash, MinhashConfig.model_validate({}), directory / "minhash" / name, normalized=source)
        for name, source in sources.items()
    }
    own_names: dict[str, str] = {}
    for source in sources.values():
        for shard in shard_names(source):
            table = read_table(source, shard, ["id", "source_id"])
            own_names.update(zip(table["id"].to_pylist(), table["source_id"].to_pylist(), strict=True))
    settings = FuzzyDedupConfig.model_validate(config)
    return run_program(fuzzy_duplicates, settings, directory / "fuzzy", normalized=sources, minhash=signed), own_names


def removed(result: Artifact, own_names: Mapping[str, str]) -> dict[str, str]:
    """Name of each removed document -> name of its survivor."""
    rows = [row for name in result.names if name.endswith(".parquet") for row in read_table(result, name).to_pylist()]
    return {own_names[row["id"]]: own_names[row["survivor_id"]] for row in rows if row["is_duplicate"]}


def test_releases_and_versions_of_a_text_are_found(tmp_path: Path) -> None:
    result, own_names = dedup(tmp_path, VERSIONED)
    found = removed(result, own_names)
    assert found["gutenberg/3261/nwsnw10.txt"] == "gutenberg/3261/3261.txt"
    assert found["gutenberg/9198/8tcng10.txt"] == "gutenberg/9198/9198-8.txt"
    assert all(old.split("/")[0] == new.split("/")[0] for old, new in found.items())
    draft = "http_drafts/draft-ietf-httpbis-p4-conditional"
    assert found[f"{draft}-22.txt"] == f"{draft}-23.txt"
    assert result.stats["sources"]["http_drafts"]["candidates"] >= 23
    assert result.stats["alarms"] == []


def test_different_licences_of_one_family_survive(tmp_path: Path) -> None:
    result, own_names = dedup(tmp_path, ("licence_texts",))
    kept = set(own_names.values()) - set(removed(result, own_names))
    families = [
        "agpl-3.0",
        "gpl-3.0",
        "mit",
        "mit-0",
        "bsd-2-clause",
        "bsd-3-clause",
        "apache-2.0",
        "ecl-2.0",
        "cern-ohl-s-2.0",
        "cern-ohl-w-2.0",
    ]
    assert {f"licence_texts/_licenses/{name}.txt" for name in families} <= kept


def test_a_lower_threshold_finds_more_of_a_series(tmp_path: Path) -> None:
    strict, _ = dedup(tmp_path / "strict", ("http_drafts",), min_containment=1.0, max_own_words=0)
    default, _ = dedup(tmp_path / "default", ("http_drafts",))
    loose, _ = dedup(tmp_path / "loose", ("http_drafts",), min_containment=0.8)
    counts = [result.stats["removed"] for result in (strict, default, loose)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[2] >= 12


def test_templated_sources_are_not_wiped(tmp_path: Path) -> None:
    result, _ = dedup(tmp_path, TEMPLATED)
    assert result.stats["sources"]["tldr"]["candidates"] > 500
    assert max(source["removed_share"] for source in result.stats["sources"].values()) < 0.01


def test_untranslated_pages_keep_one_edition(tmp_path: Path) -> None:
    result, own_names = dedup(tmp_path, TRANSLATED)
    found = removed(result, own_names)
    assert len(found) >= 15
    assert {Path(old).name for old in found} >= {"captureOwnerStack.md", "Activity.md"}
    assert all(Path(old).name == Path(new).name for old, new in found.items())


def test_exact_copies_across_editions_are_flagged(tmp_path: Path) -> None:
    sources = {name: corpus(tmp_path, name) for name in TRANSLATED}
    stats = run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "exact", normalized=sources).stats
    texts = [text for source in sources.values() for name in shard_names(source) for text in read_table(source, name)["text"].to_pylist()]
    assert stats["duplicates"] == len(texts) - len(set(texts)) > 0
