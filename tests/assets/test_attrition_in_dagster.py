"""What Dagster shows of the report, and of a job's speed."""

from assets import attrition
from assets.stage import speed_of

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


def test_a_jobs_speed_is_what_its_stage_counts_over_its_own_seconds():
    assert speed_of({"documents": 300, "records": 9}, {"wall_s": 20.04}) == {"seconds": 20.0, "documents_per_s": 15.0}
    assert speed_of({"loss": 1.5}, {"wall_s": 4.0}) == {"seconds": 4.0}
    assert speed_of({"documents": 300}, {}) == {}
