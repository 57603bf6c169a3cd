"""The program: flags, held-out documents, samples, alarms, and bytes that depend on nothing but the input."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from ops.dedup.config import FuzzyDedupConfig, MinhashConfig
from ops.dedup.fuzzy import RemovalAlarmError, fuzzy_duplicates
from ops.dedup.minhash import minhash
from ops.shards import MisalignedShardError, read_table, shard_names
from tests.builders import run_program
from tests.ops.dedup.test_verify import edited, prose
from tests.ops.normalized import id_of, normalized

BASE = [prose(7_000 + n, 300) for n in range(6)]


def signatures(directory: Path, sources: Mapping[str, Artifact], **config: Any) -> dict[str, Artifact]:
    return {
        name: run_program(minhash, MinhashConfig.model_validate(config), directory / "minhash" / name, normalized=source)
        for name, source in sources.items()
    }


def dedup(directory: Path, sources: Mapping[str, Artifact], **config: Any) -> Artifact:
    return run_program(
        fuzzy_duplicates,
        FuzzyDedupConfig.model_validate(config),
        directory / "out",
        normalized=sources,
        minhash=signatures(directory, sources),
    )


def rows_of(result: Artifact, source: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for name in shard_names(result, source) for row in read_table(result, name).to_pylist()}


def corpus(directory: Path) -> dict[str, Artifact]:
    """Two sources: `b` holds edited copies of four of `a`'s texts, one of them held out there."""
    return {
        "a": normalized(directory / "a", [*BASE, prose(1, 40)], shards=3),
        "b": normalized(
            directory / "b", [edited(text, 0.01) for text in BASE[:3]] + [prose(2, 50)], held_out=[edited(BASE[3], 0.01)], shards=2
        ),
        "empty": normalized(directory / "e", []),
    }


def test_near_copies_are_flagged_in_favour_of_kept_texts(tmp_path: Path) -> None:
    sources = corpus(tmp_path)
    result = dedup(tmp_path, sources)
    rows = {source: rows_of(result, source) for source in sources}
    removed = {(source, i): row for source, found in rows.items() for i, row in found.items() if row["is_duplicate"]}
    pairs = {frozenset((id_of(text), id_of(edited(text, 0.01)))) for text in BASE[:4]}
    assert {frozenset((i, row["survivor_id"])) for (_, i), row in removed.items()} == pairs
    for (source, i), row in removed.items():
        kept = rows[row["survivor_source"]][row["survivor_id"]]
        assert not kept["is_duplicate"]
        assert kept["survivor_id"] is None
        assert kept["cluster_id"] == row["cluster_id"]
        assert row["containment"] >= 0.95
        assert (row["survivor_source"], row["survivor_id"]) != (source, i)


def test_the_held_out_copy_survives(tmp_path: Path) -> None:
    result = dedup(tmp_path, corpus(tmp_path))
    row = rows_of(result, "a")[id_of(BASE[3])]
    assert (row["is_duplicate"], row["survivor_source"], row["survivor_id"]) == (True, "b", id_of(edited(BASE[3], 0.01)))
    assert result.stats["sources"]["a"]["removed_for_held_out"] == 1


def test_every_shard_has_a_file_with_all_its_rows_in_order(tmp_path: Path) -> None:
    sources = corpus(tmp_path)
    result = dedup(tmp_path, sources)
    for source, artifact in sources.items():
        assert shard_names(result, source) == tuple(f"{source}/{name}" for name in shard_names(artifact))
        for name in shard_names(artifact):
            assert read_table(result, f"{source}/{name}")["id"].equals(read_table(artifact, name)["id"])


def test_documents_without_a_partner_have_no_cluster(tmp_path: Path) -> None:
    row = rows_of(dedup(tmp_path, corpus(tmp_path)), "a")[id_of(prose(1, 40))]
    assert {row[name] for name in row if name not in ("id", "is_duplicate")} == {None}
    assert row["is_duplicate"] is False


def test_counters_balance_and_name_each_source(tmp_path: Path) -> None:
    stats = dedup(tmp_path, corpus(tmp_path), alarm_share=0.6).stats
    assert stats["documents"] == 7 + 5
    assert stats["removed"] == sum(source["removed"] for source in stats["sources"].values()) == 4
    assert stats["candidates"] == sum(source["candidates"] for source in stats["sources"].values()) == 8
    assert stats["clusters"] == 4
    assert stats["alarms"] == []


def test_nothing_but_the_input_decides_the_bytes(tmp_path: Path) -> None:
    sources = corpus(tmp_path)
    signed = signatures(tmp_path, sources)
    runs = []
    for n, (rows, memory) in enumerate([(1, 256 << 20), (3, 1 << 30), (4096, 256 << 20)]):
        order = dict(reversed(sources.items())) if n == 1 else sources
        config = FuzzyDedupConfig(batch_rows=rows, memory_bytes=memory)
        runs.append(run_program(fuzzy_duplicates, config, tmp_path / str(n), normalized=order, minhash=signed))
    assert len({run.digest for run in runs}) == 1


def test_many_parts_give_the_bytes_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = corpus(tmp_path)
    signed = signatures(tmp_path, sources)
    one = run_program(fuzzy_duplicates, FuzzyDedupConfig(), tmp_path / "one", normalized=sources, minhash=signed)
    monkeypatch.setattr("ops.dedup.candidates.ENTRIES_PER_PART", 20)
    many = run_program(fuzzy_duplicates, FuzzyDedupConfig(), tmp_path / "many", normalized=sources, minhash=signed)
    assert (one.digest, one.stats) == (many.digest, many.stats)


def test_a_source_that_loses_too_much_raises_an_alarm(tmp_path: Path) -> None:
    sources = {"a": normalized(tmp_path / "a", BASE), "z": normalized(tmp_path / "z", [text.upper() for text in BASE[:5]] + [prose(3, 30)])}
    stats = dedup(tmp_path, sources).stats
    assert stats["alarms"] == ["z loses 5 of 6 documents to near-duplicates (83.3%, alarm at 50.0%)"]
    with pytest.raises(RemovalAlarmError, match=r"z loses 5 of 6 .* Read the samples"):
        dedup(tmp_path / "strict", sources, strict=True)
    assert dedup(tmp_path / "quiet", sources, strict=True, alarm_share=0.9).stats["alarms"] == []


def test_samples_show_what_was_removed_and_what_was_spared(tmp_path: Path) -> None:
    close = edited(BASE[4], 0.05)
    sources = {"a": normalized(tmp_path / "a", BASE), "b": normalized(tmp_path / "b", [BASE[0] + "\nfoot", close])}
    samples = dedup(tmp_path, sources, samples=1).read_json("samples.json")
    assert [(sample["source"], sample["outcome"]) for sample in samples] == [("a", "removed"), ("a", "spared")]
    assert samples[0]["containment"] == 1.0
    assert samples[0]["text"] == BASE[0][:400]
    assert 0.8 < samples[1]["containment"] < 0.95


def test_the_same_text_in_two_sources_is_removed_where_exact_dedup_removes_it(tmp_path: Path) -> None:
    sources = {"a": normalized(tmp_path / "a", BASE[:2]), "b": normalized(tmp_path / "b", BASE[:1])}
    assert rows_of(dedup(tmp_path, sources), "b")[id_of(BASE[0])]["survivor_source"] == "a"


def test_signatures_of_other_parameters_are_refused(tmp_path: Path) -> None:
    sources = {name: normalized(tmp_path / name, [text]) for name, text in (("a", BASE[0]), ("b", BASE[1]))}
    signed = signatures(tmp_path, sources) | signatures(tmp_path / "other", {"b": sources["b"]}, seed=7)
    with pytest.raises(ValueError, match=r"minhash of b was built with .*'seed': 7"):
        run_program(fuzzy_duplicates, FuzzyDedupConfig(), tmp_path / "out", normalized=sources, minhash=signed)


def test_sources_without_signatures_are_refused(tmp_path: Path) -> None:
    sources = {name: normalized(tmp_path / name, [name]) for name in ("a", "b")}
    signed = signatures(tmp_path, {"a": sources["a"]})
    with pytest.raises(ValueError, match=r"different sources \(b\)"):
        run_program(fuzzy_duplicates, FuzzyDedupConfig(), tmp_path / "out", normalized=sources, minhash=signed)


def test_signatures_of_other_documents_are_refused(tmp_path: Path) -> None:
    sources = {"a": normalized(tmp_path / "a", [BASE[0], BASE[0] + " x"])}
    signed = signatures(tmp_path, {"a": normalized(tmp_path / "b", [BASE[0], BASE[0] + " y"])})
    with pytest.raises(MisalignedShardError, match="minhash of a/part-00000-of-00001"):
        run_program(fuzzy_duplicates, FuzzyDedupConfig(), tmp_path / "out", normalized=sources, minhash=signed)
