"""What people type wrong is told in one sentence that says what to type instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import orchestration.definitions  # noqa: F401 - the lineage is filled as it loads
from assets.resolve import Node
from orchestration.errors import UnknownNodeError
from orchestration.instance import prepare_home
from orchestration.naming import node_named
from tests.journeys.lab import PROFILE, REPOSITORY


def test_a_node_is_read_as_it_is_printed():
    for node in (Node("tokenizer"), Node("normalized", "stdlib"), Node("ladder", "w32")):
        assert node_named(str(node)) == node


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("nosuch", "the lineage has no asset 'nosuch'; choose one of attrition, baselines, cluster_assignments"),
        ("normalized", r"normalized is built by partition; choose one of normalized\[packages\], normalized\[pydoc\]"),
        ("normalized[typo]", r"normalized has no partition typo; choose one of normalized\[packages\]"),
        ("tokenizer[pydoc]", "tokenizer has no partitions; write 'tokenizer'"),
        ("normalized[pydoc", "names no node; write 'asset' or"),
        ("", "names no node"),
    ],
)
def test_a_node_that_does_not_exist_is_answered_with_those_that_do(typed: str, answer: str):
    with pytest.raises(UnknownNodeError, match=answer):
        node_named(typed)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("replay", "nosuch"), "the lineage has no asset 'nosuch'"),
        (("artifacts", "nosuch"), "the lineage has no asset 'nosuch'"),
        (("catalog", "rebuild"), "profile tiny, storage.catalog: can't open the catalog nosuchsql://here"),
        (("ui", "--port", "99999"), "99999 is not in the range 1<=x<=65535"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_fails_in_a_sentence(tmp_path: Path, command: tuple[str, ...], answer: str):
    profile = tmp_path / "profile.yaml"
    profile.write_text(PROFILE.read_text().replace("sqlite:///${HOME_OF_TEST}/catalog.sqlite", "nosuchsql://here"))
    environment = {
        **os.environ,
        "HOME_OF_TEST": str(tmp_path),
        "TEXTS": str(tmp_path),
        "JAX_CACHE": str(tmp_path),
        "SEAWAY_PROFILE": str(profile),
    }
    seaway = Path(sys.executable).with_name("seaway")
    done = subprocess.run([seaway, *command], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    shown = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert answer in shown
    assert "Traceback" not in shown


def test_a_relative_dagster_home_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from assets.partitions import PROFILE as LOADED

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", "here")
    assert prepare_home(LOADED) == tmp_path / "here"
    assert os.environ["DAGSTER_HOME"] == str(tmp_path / "here")
    assert (tmp_path / "here" / "dagster.yaml").is_file()
