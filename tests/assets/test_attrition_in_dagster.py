"""What Dagster shows of the report, and of a job's speed."""

from pathlib import Path

import pyarrow as pa

from assets import attrition
from assets.stage import Report, result_of, speed_of
from infra.dispatch.outcome import Outcome
from tests.builders import artifact_of

OUTCOMES = {"contaminated": 1, "fuzzy": 2, "exact": 0, "language": 0, "quality": 0, "held_out_duplicate": 0, "held_out": 1, "out": 6}
FUNNEL = {
    "source": "web", "records": 16, "rejected": {"binary": 2, "revisit": 1}, "blank": 1, "copies": 2,
    "documents": {"read": 10, **OUTCOMES}, "tokens": {"out": 99},
}  # fmt: skip


def sample(outcome: str, text: str, beside: str | None) -> dict[str, object]:
    side = None if beside is None else {"passage": {"text": beside}}
    return {"source": "web", "outcome": outcome, "reason": f"because {text}", "passage": {"text": text}, "beside": side}


def test_the_check_asks_whether_every_record_has_an_outcome():
    assert attrition._accounted(FUNNEL) == FUNNEL["records"]
    assert attrition._accounted({**FUNNEL, "blank": 0}) != FUNNEL["records"]


def test_the_funnel_is_one_row_a_source_without_nested_values():
    assert attrition._row(FUNNEL) == {
        "source": "web", "records": 16, "blank": 1, "copies": 2, "rejected": 3, **OUTCOMES, "tokens_out": 99,
    }  # fmt: skip


def test_removed_stands_beside_kept_with_the_reason_between_them_once_an_outcome():
    found = list(attrition._sides([sample("fuzzy", "near", "whole"), sample("fuzzy", "second", "whole"), sample("out", "kept", None)]))
    assert [(row["removed"], row["reason"], row["kept"]) for row in found] == [("near", "because near", "whole")]


def test_what_a_stage_counts_is_not_hidden_by_what_every_artifact_has(tmp_path: Path):
    """A stage that counts bytes of text had them replaced by those of its files."""
    artifact = artifact_of(tmp_path, {"part-00000-of-00001.parquet": pa.table({"id": ["a"]})})
    shown = result_of(Report({"bytes": 7, "files": 8}), Outcome(artifact, "built", 1, 0.0)).metadata or {}
    assert (shown["bytes"], shown["files"], shown["artifact_files"]) == (7, 8, 1)
    assert shown["artifact_bytes"] == Path(artifact.local_path("part-00000-of-00001.parquet")).stat().st_size


def test_a_jobs_speed_is_what_its_stage_counts_over_its_own_seconds():
    assert speed_of({"documents": 300, "records": 9}, {"wall_s": 20.04}) == {"seconds": 20.0, "documents_per_s": 15.0}
    assert speed_of({"loss": 1.5}, {"wall_s": 4.0}) == {"seconds": 4.0}
    assert speed_of({"documents": 300}, {}) == {}
