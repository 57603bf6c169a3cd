"""The versions of programs are decided, not forgotten."""

import ast
from pathlib import Path

import pytest

from assets import lock


def test_every_program_version_was_decided_for_the_sources_as_they_are():
    assert lock.current() == lock.locked(), "sources of a program changed: see `python -m assets.lock`"


def test_no_two_programs_share_a_name_that_recipes_hash():
    names = [path.partition(":")[2] for path in lock.current()]
    assert len(names) == len(set(names))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    (tmp_path / "ops").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "ops" / "kernel.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "ops" / "stage.py").write_text(
        'from ops.kernel import double\n\n@program(version="1")\ndef run(config, out):\n    return double(1)\n'
    )
    return tmp_path


def test_a_comment_a_docstring_and_formatting_do_not_count(tree: Path):
    before = lock.current()
    (tree / "ops" / "kernel.py").write_text('"""Kernels."""\n\n\ndef double(x):  # twice\n    """Twice x."""\n    return (2 * x)\n')
    assert lock.current() == before


def test_a_change_in_an_imported_module_counts(tree: Path):
    before = lock.current()
    (tree / "ops" / "kernel.py").write_text("def double(x):\n    return x + x\n")
    assert lock.undecided(before, lock.current()) == ["ops.stage:run"]


def test_a_raised_version_is_a_decision(tree: Path):
    before = lock.current()
    stage = tree / "ops" / "stage.py"
    stage.write_text(stage.read_text().replace("double(1)", "double(2)").replace('"1"', '"2"'))
    assert ast.parse(stage.read_text())
    assert lock.undecided(before, lock.current()) == []


def test_a_decision_that_is_not_recorded_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(lock, "LOCK", tree / "lock.json")
    monkeypatch.setattr("sys.argv", ["lock", "--write"])
    assert lock.main() == 0
    stage = tree / "ops" / "stage.py"
    stage.write_text(stage.read_text().replace('"1"', '"2"'))
    monkeypatch.setattr("sys.argv", ["lock"])
    assert lock.main() == 1
    assert "ops.stage:run" in capsys.readouterr().err


def test_a_program_that_came_or_went_is_reported(tree: Path):
    before = lock.current()
    (tree / "ops" / "stage.py").unlink()
    assert lock.undecided(before, lock.current()) == ["ops.stage:run"]
