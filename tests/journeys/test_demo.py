"""One command from nothing to a released model; the second one does nothing; the plan says what a change would do."""

import re
import time
from pathlib import Path

import pytest

from tests.journeys.lab import Lab

pytestmark = pytest.mark.timeout(600)  # whoever comes first waits for the finished lab


def test_the_whole_lineage_ends_in_a_release(finished_lab: Lab):
    published = {key.split("[")[0] for key in finished_lab.digests()}
    assert {"raw", "store", "hero", "cooldown", "evaluation", "release"} <= published
    assert len(published) == 27


def test_the_demo_shows_what_came_out(finished_lab: Lab):
    shown = finished_lab.run("seaway", "demo", "--profile", str(finished_lab.profile)).stdout
    for part in (
        "Funnel",
        "store: to train on",
        "predicted",
        "bits per byte",
        "unigram",
        "five_gram",
        "sample from the cooldown",
        "make ui",
    ):
        assert part in shown, shown


def test_a_second_demo_runs_no_job_and_is_quick(finished_lab: Lab):
    before = finished_lab.digests()
    started = time.monotonic()
    done = finished_lab.run("seaway", "demo", "--profile", str(finished_lab.profile))
    seconds = time.monotonic() - started
    assert "0 jobs ran" in done.stdout
    assert finished_lab.digests() == before
    assert seconds < 20, f"{seconds:.1f} s"  # a promise to users, five times what it takes


def plan(lab: Lab, tmp_path: Path, old: str, new: str) -> str:
    text = lab.profile.read_text()
    assert old in text
    changed = tmp_path / "changed.yaml"
    changed.write_text(text.replace(old, new))
    done = lab.run("seaway", "plan", "--profile", str(changed))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def nodes_of(shown: str) -> dict[str, str]:
    """node -> verdict, from a printed plan."""
    return dict(re.findall(r"^(\w[\w\[\].-]*)\s+(build|perhaps)\b", shown, flags=re.MULTILINE))


DOWNSTREAM_OF_STORE = {
    "store", "attrition", "mixture", "baselines", "ladder[w16]", "ladder[w24]", "scaling_law", "prediction", "hero", "cooldown",
    "evaluation[hero]", "evaluation[cooldown]", "perplexity[hero]", "perplexity[cooldown]", "perplexity_gap", "release",
    "task_items", "task_scores[hero]", "task_scores[cooldown]",
}  # fmt: skip


def test_nothing_is_planned_after_a_finished_run(finished_lab: Lab, tmp_path: Path):
    assert nodes_of(plan(finished_lab, tmp_path, "name: tiny", "name: tiny")) == {}


def test_a_changed_dedup_threshold_names_exactly_what_it_affects_and_why(finished_lab: Lab, tmp_path: Path):
    shown = plan(finished_lab, tmp_path, "  tokenizer:", "  fuzzy_duplicates: {min_containment: 0.9}\n  tokenizer:")
    assert nodes_of(shown) == {"fuzzy_duplicates": "build"} | dict.fromkeys(DOWNSTREAM_OF_STORE, "perhaps")
    assert "config.min_containment: 0.95 -> 0.9" in shown


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpus: 2", "cpus: 1"),
        ("checkpoints: {every_steps: 5}", "checkpoints: {every_steps: 7}"),
        ("# The whole lineage", "# A comment"),
        ("  minhash: {", "  minhash: {batch_rows: 64, "),
    ],
    ids=["worker count", "checkpoint cadence", "comment", "batch size"],
)
def test_what_does_not_change_the_result_plans_nothing(finished_lab: Lab, tmp_path: Path, old: str, new: str):
    assert nodes_of(plan(finished_lab, tmp_path, old, new)) == {}


def test_an_upstream_rebuilt_to_equal_bytes_rebuilds_nothing_below(finished_lab: Lab, tmp_path: Path):
    """A larger limit that no document reaches: `extracted` has a new recipe and the old digest."""
    text = finished_lab.profile.read_text()
    changed = tmp_path / "changed.yaml"
    changed.write_text(text.replace("programs:\n", "programs:\n  extracted: {max_payload_bytes: 16777217}\n"))
    before = set(finished_lab.digests())
    done = finished_lab.run("seaway", "demo", "--profile", str(changed))
    assert done.returncode == 0, done.stdout
    assert "2 jobs ran" in done.stdout
    assert {key.partition("/")[0] for key in set(finished_lab.digests()) - before} == {"extracted[pydoc]", "extracted[texts]"}


def test_an_artifact_can_be_rebuilt_elsewhere_and_compared(finished_lab: Lab):
    for node in ("normalized[texts]", "fuzzy_duplicates", "hero"):
        done = finished_lab.run("seaway", "replay", node)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "same bytes" in done.stdout


def test_the_catalog_is_rebuilt_from_storage(finished_lab: Lab):
    done = finished_lab.run("seaway", "catalog", "rebuild")
    assert done.returncode == 0, done.stdout
    assert (finished_lab.home / "catalog.sqlite").stat().st_size > 0


def test_the_doctor_finds_a_finished_lab_well(finished_lab: Lab):
    done = finished_lab.run("seaway", "doctor")
    assert done.returncode == 0, done.stdout
    assert "published and verified" in done.stdout


def test_published_artifacts_are_listed(finished_lab: Lab):
    done = finished_lab.run("seaway", "artifacts", "raw")
    assert "pydoc" in done.stdout
    assert "2 artifacts" in done.stdout
