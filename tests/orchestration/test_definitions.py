"""The lineage as Dagster sees it: loads fast and light, whole, and in the shape that the design names."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.lineage import STAGES, in_order
from orchestration.definitions import defs
from orchestration.jobs import DATA, DEEPEN, EVALUATE, EVERYTHING, TRAIN

LINEAGE = {
    "raw", "extracted", "normalized", "language", "quality", "evaluation_ngrams", "contamination", "minhash", "exact_duplicates",
    "fuzzy_duplicates", "tokenizer", "tokens", "store", "attrition", "mixture", "baselines", "ladder", "scaling_law", "prediction", "hero",
    "cooldown", "evaluation", "perplexity", "perplexity_gap", "task_items", "task_scores", "release",
}  # fmt: skip
ON_DEMAND = {
    "quality_grades", "quality_model", "learned_quality", "embedder", "embeddings", "clusters", "cluster_assignments",
    "paragraph_duplicates", "pruned_tokenizer", "tokenizer_comparison",
}  # fmt: skip

PROBE = """
import json, sys, time
start = time.process_time()
import dagster
imported = time.process_time()
import orchestration.definitions
heavy = [name for name in ("jax", "polars", "pyarrow", "numba", "duckdb", "matplotlib", "s3fs") if name in sys.modules]
print(json.dumps({"heavy": heavy, "seconds": time.process_time() - imported}))
"""


def test_loading_the_definitions_is_light():
    """At most 1.5 s of CPU beyond importing dagster itself, and no heavy import; of three tries, since machines are shared."""
    for attempt in range(3):
        probe = json.loads(subprocess.run([sys.executable, "-c", PROBE], check=True, capture_output=True).stdout)
        assert probe["heavy"] == []
        if probe["seconds"] < 1.5:
            break
        assert attempt < 2, probe


CHOSEN = """
import json
from assets.lineage import STAGES
from orchestration.definitions import defs
from orchestration.jobs import DATA
graph = defs.resolve_asset_graph()
print(json.dumps({
    "reads": {key: sorted(stage.upstream) for key, stage in STAGES.items()},
    "programs": {key: stage.program for key, stage in STAGES.items()},
    "data": sorted(key.to_user_string() for key in DATA.resolve(graph)),
    "automated": sorted(node.key.to_user_string() for node in graph.asset_nodes if node.automation_condition),
}))
"""


def chosen(folder: Path, choices: str) -> dict[str, Any]:
    """The lineage of the demo with some choices, as a process of its own sees it."""
    profile = folder / "chosen.yaml"
    profile.write_text(f"extends: demo\n{choices}\n")
    environment = {**os.environ, "SEAWAY_PROFILE": str(profile)}
    found: dict[str, Any] = json.loads(
        subprocess.run([sys.executable, "-c", CHOSEN], check=True, capture_output=True, env=environment).stdout
    )
    return found


def readers(found: dict[str, Any], asset: str) -> list[str]:
    return sorted(key for key, upstream in found["reads"].items() if asset in upstream)


def test_learnt_scores_that_a_profile_chooses_are_built_with_the_data_and_read_by_the_store(tmp_path: Path):
    found = chosen(tmp_path, "quality_scores: learned_quality")
    learnt = {"quality_grades", "quality_model", "learned_quality"}
    assert readers(found, "learned_quality") == ["attrition", "store"]
    assert learnt < set(found["data"])
    assert learnt < set(found["automated"])
    assert not (ON_DEMAND - learnt) & {*found["data"], *found["automated"]}


def test_clusters_for_domains_and_cuts_that_a_profile_chooses_are_built_with_the_data_and_read(tmp_path: Path):
    found = chosen(tmp_path, "domain_clusters: 8\nrepeated_paragraphs: cut")
    assert readers(found, "cluster_assignments") == ["store"]
    assert readers(found, "paragraph_duplicates") == ["tokens"]
    assert (found["programs"]["store"], found["programs"]["tokens"]) == (
        "ops.store:build_store_by_cluster",
        "ops.tokens_rest:tokenize_without_repeats",
    )
    wanted = {"embedder", "embeddings", "clusters", "cluster_assignments", "paragraph_duplicates"}
    assert wanted < set(found["data"])
    assert wanted < set(found["automated"])
    assert not (ON_DEMAND - wanted) & {*found["data"], *found["automated"]}


def test_dagster_sees_every_stage_and_nothing_else():
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == set(STAGES) == LINEAGE | ON_DEMAND
    assert {key for key, stage in STAGES.items() if stage.on_demand} == ON_DEMAND


def test_every_asset_says_what_it_is_and_who_owns_it():
    for node in defs.resolve_asset_graph().asset_nodes:
        assert node.description, node.key
        assert node.owners, node.key
        assert node.kinds, node.key
        assert node.group_name != "default", node.key
        assert node.code_version == STAGES[node.key.to_user_string()].version


def test_the_definitions_are_loadable():
    dg.Definitions.validate_loadable(defs)


@pytest.mark.parametrize("name", ["data", "train", "evaluate", "everything", "deepen"])
def test_a_job_exists(name: str):
    assert defs.resolve_job_def(name).name == name


def keys_of(selection: dg.AssetSelection) -> list[str]:
    return [key.to_user_string() for key in selection.resolve(defs.resolve_asset_graph())]


def test_the_jobs_together_cover_the_lineage_once():
    assert sorted(keys_of(DATA) + keys_of(TRAIN) + keys_of(EVALUATE)) == sorted(keys_of(EVERYTHING)) == sorted(LINEAGE)
    assert set(keys_of(DEEPEN)) == ON_DEMAND


def test_nothing_that_is_built_on_demand_is_built_by_automation_or_waited_for():
    for node in defs.resolve_asset_graph().asset_nodes:
        if (key := node.key.to_user_string()) in ON_DEMAND:
            assert node.automation_condition is None
        else:
            assert not ON_DEMAND & set(STAGES[key].upstream)


def test_upstream_comes_before_downstream():
    order = [stage.key for stage in in_order()]
    assert all(order.index(up) < order.index(stage.key) for stage in STAGES.values() for up in stage.upstream)
