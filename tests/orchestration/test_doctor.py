"""The doctor names what is wrong and what to type, one line each, and fails; what works it says too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.lab import PROFILE, REPOSITORY, write_texts


def examine(home: Path, changes: str = "", **environment: str) -> tuple[int, dict[str, str], str]:
    """Exit code, a line for each check, and the last line."""
    profile = home / "profile.yaml"
    profile.write_text(f"extends: {PROFILE}\nname: mine\n{changes}")
    texts = home / "texts"
    if not texts.exists():
        write_texts(texts)
    mine = {"HOME_OF_TEST": str(home), "TEXTS": str(texts), "JAX_CACHE": str(home), "SEAWAY_PROFILE": str(profile), **environment}
    kept = {key: value for key, value in os.environ.items() if key != "DAGSTER_HOME"}
    seaway = Path(sys.executable).with_name("seaway")
    done = subprocess.run(
        [seaway, "doctor", "--wait-s", "120"],
        cwd=REPOSITORY,
        env={**kept, **mine},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown, shown
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    checks = dict(line.split(maxsplit=1)[::-1] for line in lines if line.startswith(("ok ", "wrong ")))
    return done.returncode, {told.split(": ", 1)[0]: f"{verdict}: {told}" for told, verdict in checks.items()}, lines[-1]


def test_a_profile_that_works_is_said_to_in_every_line(tmp_path: Path):
    code, lines, _ = examine(tmp_path, "stages: {hero: {resources: {device: cpux2}}}\nconcurrency: {runs: 3, pools: {accelerator: 1}}\n")
    assert code == 0, lines
    assert set(lines) == {
        "machine", "storage", "jobs", "sources", "catalog", "dagster", "pools", "engine local", "hello on cpu", "hello on cpux2"
    }  # fmt: skip
    assert all(line.startswith("ok: ") for line in lines.values())
    assert lines["pools"].endswith("accelerator cpu, 1 slot; host cpu, no limit; 3 runs at once")
    assert "published and verified" in lines["hello on cpux2"]
    assert lines["hello on cpux2"].endswith("for hero")
    assert list((tmp_path / "artifacts").glob(".*")) == [], "it cleans up after itself"


def test_databases_that_are_away_are_named_with_what_to_do(tmp_path: Path):
    url = "postgresql://ada:secret@127.0.0.1:1/x"
    code, lines, last = examine(tmp_path, f"storage: {{dagster: '{url}', catalog: '{url}'}}\n")
    assert code == 1
    assert lines["catalog"].startswith("wrong: catalog: can't open the catalog postgresql+psycopg2://ada:***@127.0.0.1:1/x")
    assert lines["dagster"].startswith("wrong: dagster: can't open Dagster's storage postgresql+psycopg2://ada:***@127.0.0.1:1/x")
    assert all(lines[name].endswith("start its server or correct the URL") for name in ("catalog", "dagster"))
    assert "secret" not in str(lines)
    assert lines["hello on cpu"].startswith("ok: "), "jobs need no database"
    assert "catalog, dagster, pools failed; mend what the lines above say" in last


def test_a_root_that_can_not_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    code, lines, last = examine(tmp_path, f"storage: {{root: {tmp_path}/file/artifacts}}\n")
    assert code == 1
    assert "a parent of this path is a file, not a directory; choose another root" in lines["storage"]
    assert lines.keys().isdisjoint({"jobs", "hello on cpu"}), "nothing can be read or published there"
    assert "storage failed" in last


def test_a_slurm_without_its_commands_is_told_what_to_install(tmp_path: Path):
    """PATH holds git and nothing of Slurm's."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("git", "uname"):
        (commands / name).symlink_to(str(shutil.which(name)))
    backend = f"{{kind: slurm, cluster: lab, folder: {tmp_path}/slurm}}"
    code, lines, last = examine(tmp_path, f"backend: {backend}\n", PATH=str(commands))
    assert code == 1
    assert lines["engine slurm"].startswith("wrong: engine slurm: ")
    assert any(command in lines["engine slurm"] for command in ("sbatch", "squeue", "scontrol"))
    assert "engine slurm failed" in last


def test_a_ray_cluster_at_a_wrong_address_is_named(tmp_path: Path):
    code, lines, _ = examine(tmp_path, "backend: {kind: ray, address: 'http://127.0.0.1:1'}\n")
    assert code == 1
    assert lines["engine ray"].startswith("wrong: engine ray: ")
    assert "127.0.0.1:1" in lines["engine ray"]


def test_a_missing_extra_is_named_with_the_line_to_type(tmp_path: Path):
    """As if the official client were not installed."""
    (tmp_path / "kubernetes.py").write_text("raise ModuleNotFoundError(\"No module named 'kubernetes'\", name='kubernetes')\n")
    backend = "{kind: kubernetes, cluster: lab, image: 'seaway:1'}"
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    code, lines, _ = examine(tmp_path, f"backend: {backend}\n", PYTHONPATH=path)
    assert code == 1
    assert "pip install 'seaway[kubernetes]'" in lines["engine kubernetes"]


@pytest.mark.parametrize("kind", ["slurm", "ray", "kubernetes"])
def test_an_engine_that_does_not_answer_gets_no_hello_jobs(tmp_path: Path, kind: str):
    needs = {"slurm": f"cluster: lab, folder: {tmp_path}/slurm, conf: {tmp_path}/slurm.conf", "ray": "address: 'http://127.0.0.1:1'"}
    needs["kubernetes"] = f"cluster: lab, image: 'seaway:1', kubeconfig: {tmp_path}/nowhere"
    code, lines, _ = examine(tmp_path, f"backend: {{kind: {kind}, {needs[kind]}}}\n")
    assert code == 1
    assert lines[f"engine {kind}"].startswith("wrong: ")
    assert not [name for name in lines if name.startswith("hello")]
