"""What is built on demand, through Dagster and real jobs: published, reported and checked."""

import json
import random
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from tests.journeys.lab import WORDS, Lab

pytestmark = pytest.mark.timeout(600)  # fourteen jobs: their processes, one after another

PROFILE = Path(__file__).parent / "deep.yaml"
ON_DEMAND = {
    "quality_grades", "quality_model", "learned_quality[texts]", "embedder", "embeddings[texts]", "clusters",
    "cluster_assignments[texts]", "paragraph_duplicates", "pruned_tokenizer[v300]", "pruned_tokenizer[v512]", "tokenizer_comparison",
}  # fmt: skip

# What the job `data` would have published of its own, and then all that is built on demand; and what Dagster holds of it.
MATERIALIZE = """
import json, dagster as dg
from orchestration.definitions import FACTORY, defs
from orchestration.demo import stages_of
from orchestration.instance import open_instance
from orchestration.walk import materialize

needed = [stage for stage in stages_of("data") if stage.key in ("raw", "extracted", "normalized", "tokenizer")]
with open_instance(FACTORY.profile) as instance:
    materialize(defs, FACTORY, instance, needed + stages_of("deepen"), lambda wave, todo: None)
    metadata, checks = {}, {}
    for run in instance.get_runs():
        for record in instance.get_records_for_run(run.run_id).records:
            event = record.event_log_entry.dagster_event
            if event is None:
                continue  # a line of the log
            if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
                found = event.step_materialization_data.materialization
                key = found.asset_key.to_user_string()
                metadata[f"{key}[{found.partition}]" if found.partition else key] = sorted(found.metadata)
            elif event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                found = event.asset_check_evaluation_data
                checks[f"{found.asset_key.to_user_string()}.{found.check_name}"] = [found.passed, found.severity.value]
print(json.dumps({"metadata": metadata, "checks": checks}))
"""


NOTICE = "This page may be copied by everybody for any purpose as long as the name of its author and this very notice are kept with it."
PAGES = 24


def write_pages(folder: Path) -> Path:
    """Prose that an oracle likes and junk that it does not, half and half; a quarter of the pages end in the same notice."""
    rng = random.Random(11)
    folder.mkdir()
    for number in range(PAGES):
        prose = [
            f"It was in the {rng.choice(WORDS)} of the year {1500 + 8 * number + line} that the {rng.choice(WORDS)} and the "
            f"{rng.choice(WORDS)} came to them, and of all the {rng.choice(WORDS)}s which they had seen before, this was the one."
            for line in range(8)
        ]
        junk = [" ".join(f"{rng.choice('#$%&*|~')}{rng.randrange(10**6)}" for _ in range(12)) for _ in range(8)]
        notice = [NOTICE] if number % 4 == 0 else []
        (folder / f"prose-{number:02d}.txt").write_text("\n".join([*prose, *notice]))
        (folder / f"junk-{number:02d}.txt").write_text("\n".join(junk))
    return folder


@pytest.fixture(scope="module")
def deep_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Mapping[str, Any]]]:
    """A lab where all of it is built, and what Dagster recorded."""
    home = tmp_path_factory.mktemp("deep")
    lab = Lab(home, write_pages(home / "texts"), PROFILE)
    done = lab.run(Path(sys.executable).name, "-c", MATERIALIZE, timeout_s=580)
    assert done.returncode == 0, done.stdout + done.stderr
    yield lab, json.loads(done.stdout.splitlines()[-1])
    assert lab.jobs() == []


@pytest.fixture(scope="module")
def published(deep_lab: tuple[Lab, Mapping[str, Any]]) -> dict[str, Artifact]:
    return {f"{asset}[{key}]" if key else asset: artifact for asset, key, _, artifact in deep_lab[0].store.artifacts()}


def test_dagster_has_a_report_and_the_checks_of_every_node(deep_lab: tuple[Lab, Mapping[str, Any]], published: dict[str, Artifact]):
    _, recorded = deep_lab
    assert published.keys() == recorded["metadata"].keys() > ON_DEMAND
    shown = {
        "quality_grades": {"graded_by_source", "grades", "samples"},
        "quality_model": {"by_kind", "calibration"},
        "learned_quality[texts]": {"buckets", "labels_sample"},
        "clusters": {"views", "rows_by_source"},
        "cluster_assignments[texts]": {"coarsest", "most_like_their_cluster"},
        "paragraph_duplicates": {"sources", "removed_share", "samples"},
        "tokenizer_comparison": {"vocabularies", "compute", "relative"},
    }
    for node, names in shown.items():
        assert names <= set(recorded["metadata"][node]), node
    assert {check.partition(".")[0] for check in recorded["checks"]} >= {node.partition("[")[0] for node in ON_DEMAND}


def test_every_check_that_would_stop_what_is_below_has_passed(deep_lab: tuple[Lab, Mapping[str, Any]]):
    _, recorded = deep_lab
    assert [name for name, (passed, severity) in recorded["checks"].items() if severity == "ERROR" and not passed] == []


def test_views_are_nested_and_every_document_is_in_one(published: dict[str, Artifact]):
    views = [view for _, view in sorted(published["clusters"].read_json("views.json").items(), key=lambda item: -max(item[1]))]
    assert len(views) == 3
    for finer, coarser in pairwise(views):
        assert len(set(zip(finer, coarser, strict=True))) == len(set(finer))
    assert published["cluster_assignments[texts]"].stats["documents"] == published["normalized[texts]"].stats["documents"]


def test_the_smaller_vocabulary_is_a_part_of_the_larger_which_is_the_trained_one(published: dict[str, Artifact]):
    small, large, trained = (
        published[node].read_json("tokenizer.json")["model"]["vocab"]
        for node in ("pruned_tokenizer[v300]", "pruned_tokenizer[v512]", "tokenizer")
    )
    assert len(small) < len(large)
    assert small.items() < large.items() == trained.items()
    assert published["tokenizer_comparison"].stats["reference"] == "v512"


def test_a_notice_is_kept_once_and_marked_where_it_stands_again(published: dict[str, Artifact]):
    stats = published["paragraph_duplicates"].stats
    held_out = published["normalized[texts]"].stats["held_out"]
    marked = stats["paragraphs_removed"]
    assert PAGES // 4 - 1 - held_out <= marked <= PAGES // 4 - 1
    assert marked > 0
    assert stats["bytes_removed"] == marked * len(NOTICE)
    assert {sample["text"] for sample in published["paragraph_duplicates"].read_json("samples.json")} == {NOTICE}


def test_learnt_scores_tell_prose_from_junk(published: dict[str, Artifact]):
    grades, model = published["quality_grades"].stats["grades"], published["quality_model"].stats["report"]["all"]
    assert grades.keys() == {"2", "5"}
    assert model["auc"] >= 0.9
    buckets = published["learned_quality[texts]"].stats["buckets"]
    assert buckets["1"] >= 0.9 * PAGES  # grade 2 is a quarter of the scale; a page between the two may score between them
    assert buckets["4"] >= 0.9 * PAGES


def test_a_plan_names_what_is_built_on_demand_only_where_all_is_asked_for(deep_lab: tuple[Lab, Mapping[str, Any]], tmp_path: Path):
    lab, _ = deep_lab
    changed = tmp_path / "changed.yaml"
    changed.write_text(f"extends: {PROFILE}\nprograms: {{clusters: {{clusters: 9}}}}\n")
    done = lab.run("seaway", "plan", "--profile", str(changed), "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "on demand" in rows["clusters"]
    assert "config.clusters: 8 -> 9" in rows["clusters"]
    assert "on demand" in rows["cluster_assignments[texts]"]
    assert "published" in rows["embeddings[texts]"]
    assert "2 on demand (seaway demo --job deepen" in " ".join(done.stdout.split())
