"""Provenance: what code, where, with what; never a part of the identity."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from infra.artifacts.config import ProgramConfig, execution_only
from infra.artifacts.lease import AttemptRecord
from infra.artifacts.provenance import Provenance, capture, code_of, environment


class AnyConfig(ProgramConfig):
    threshold: float = 0.8
    workers: int = execution_only(4)


def git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@localhost", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, "-C", str(repository), *arguments], capture_output=True, check=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    repository = tmp_path / "checkout"
    (repository / "requirements").mkdir(parents=True)
    (repository / "pyproject.toml").write_text("[project]")
    (repository / "requirements/base.txt").write_text("numpy==2.3\n")
    git(tmp_path, "init", "-q", str(repository))
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "First")
    return repository


def fresh_code(repository: Path) -> tuple[str | None, str | None]:
    code_of.cache_clear()
    code = code_of(repository)
    return code.commit, code.dirty_sha256


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    assert fresh_code(checkout) == (git(checkout, "rev-parse", "HEAD"), None)
    assert code_of(checkout).lock_files == {"base.txt": hashlib.sha256(b"numpy==2.3\n").hexdigest()}


def test_every_uncommitted_state_has_a_hash_of_its_own(checkout: Path) -> None:
    seen = [fresh_code(checkout)]
    (checkout / "pyproject.toml").write_text("[project] # changed")
    seen.append(fresh_code(checkout))
    (checkout / "new.py").write_text("one")
    seen.append(fresh_code(checkout))
    (checkout / "new.py").write_text("two")
    seen.append(fresh_code(checkout))
    assert len(set(seen)) == 4
    (checkout / "new.py").write_text("one")
    assert fresh_code(checkout) == seen[2]
    (checkout / "new.py").unlink()
    git(checkout, "checkout", "-q", "pyproject.toml")
    assert fresh_code(checkout) == seen[0]


def test_code_installed_inside_somebody_elses_checkout_does_not_borrow_its_commit(checkout: Path) -> None:
    site_packages = checkout / ".venv/site-packages"
    site_packages.mkdir(parents=True)
    assert fresh_code(site_packages) == (None, None)


def test_a_machine_without_git_still_has_provenance(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert fresh_code(checkout) == (None, None)


def test_a_capture_survives_storage_and_holds_the_whole_config() -> None:
    attempt = AttemptRecord(token=1, uid="0123456789abcdef", ended="preempted", detail={"exit_code": 143})
    captured = capture(AnyConfig(workers=9), [attempt])
    assert captured.config == {"threshold": 0.8, "workers": 9}
    assert captured.attempts == (attempt,)
    assert captured.captured_at.tzinfo is not None
    assert Provenance.model_validate_json(captured.model_dump_json()) == captured


def test_the_environment_names_what_is_installed() -> None:
    assert environment().packages["pytest"] == pytest.__version__
    assert list(environment().packages) == sorted(environment().packages)
