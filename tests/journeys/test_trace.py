"""A document followed through a whole lineage: to its bytes in the WARC file, and to the steps that read it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from ops.shards import read_table, shard_names
from tests.journeys.lab import Lab

pytestmark = pytest.mark.timeout(600)  # whoever comes first waits for the finished lab


def artifact(lab: Lab, asset: str, partition: str | None = None) -> Artifact:
    [found] = [one for name, key, _, one in lab.store.artifacts() if (name, key) == (asset, partition)]
    return found


def traced(lab: Lab, *arguments: str) -> Any:
    done = lab.run("seaway", "trace", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_step_leads_to_documents_and_each_of_them_to_the_step_and_to_its_bytes(finished_lab: Lab, tmp_path: Path):
    batch = traced(finished_lab, "step", "7", "--run", "hero")
    assert {one["row"] for one in batch} == set(range(8))  # the profile's batch
    one = next(one for one in batch if one["source"] == "pydoc")
    [trail] = traced(finished_lab, "document", one["id"], "--save", str(tmp_path / "record"))
    [seen] = trail["seen"]
    expected = {"step": 7, "row": one["row"], "epoch": one["epoch"], "start": one["start"], "end": one["end"]}
    assert expected in seen["readings"]["hero"]
    assert {"hero", "cooldown", "ladder[w16]", "ladder[w24]"} == set(seen["readings"])
    assert trail["outcome"] == "out"
    raw = artifact(finished_lab, "raw", "pydoc")
    with raw.open(trail["record"]["file"]) as stream:
        stream.seek(trail["record"]["offset"])
        stored = stream.read(trail["record"]["length"])
    assert (tmp_path / "record").read_bytes() == stored
    assert f"WARC-Target-URI: {trail['document']['url']}\r\n".encode() in gzip.decompress(stored)


def test_a_url_leads_to_every_step_that_read_it(finished_lab: Lab):
    """A step that read it and one that did not, asked themselves. Every step is asked in tests of the model's order of data."""
    normalized = artifact(finished_lab, "normalized", "pydoc")
    [name] = shard_names(normalized)
    rows = read_table(normalized, name, ["id", "source_id", "is_held_out"]).to_pylist()
    row = next(row for row in rows if not row["is_held_out"])
    [trail] = traced(finished_lab, "url", row["source_id"])
    assert trail["document"]["id"] == row["id"]
    readings = [reading for one in trail["seen"] for reading in one["readings"]["hero"]]
    steps = {reading["step"] for reading in readings}
    for step in (min(steps), min(set(range(60)) - steps)):
        reads = any(one["id"] == row["id"] for one in traced(finished_lab, "step", str(step)))
        assert reads == (step in steps)


def test_people_get_one_sentence_when_there_is_nothing_to_trace(finished_lab: Lab):
    for arguments, sentence in (
        (("url", "http://nowhere.example/"), "no document of profile tiny came from http://nowhere.example/"),
        (("step", "999"), "hero: the run makes the steps 0 to 59; step 999 is none of them"),
    ):
        done = finished_lab.run("seaway", "trace", *arguments)
        assert done.returncode == 1
        assert sentence in " ".join(done.stdout.split()), done.stdout + done.stderr


def test_the_trail_is_printed_for_people(finished_lab: Lab):
    one = traced(finished_lab, "step", "3")[0]
    shown = finished_lab.run("seaway", "trace", "document", one["id"]).stdout
    print(shown)
    for part in ("document", "normalized[", "raw[", "outcome", "store", "ladder[w16]", "hero", "step 3 row"):
        assert part in shown, shown
