"""A profile that can't be used says which file, which field, and what to do - before anything runs."""

from pathlib import Path

import pytest
import yaml

from assets.profile import ProfileError, load_profile


def changed(tmp_path: Path, **sections: object) -> str:
    profile = yaml.safe_load(Path("orchestration/profiles/demo.yaml").read_text())
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump({**profile, **sections}))
    return str(path)


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEAWAY_HOME", raising=False)


@pytest.mark.parametrize("name", [path.stem for path in sorted(Path("orchestration/profiles").glob("*.yaml"))])
def test_every_built_in_profile_loads(name: str):
    assert load_profile(name).name == name


def test_an_unknown_key_is_named_with_its_path(tmp_path: Path):
    path = changed(tmp_path, programs={"hero": {}, "minhash": {"num_permz": 3}})
    with pytest.raises(ProfileError, match=r"changed\.yaml: .*programs\.minhash\.num_permz: unknown key; check its spelling"):
        load_profile(path)


def test_an_unknown_backend_names_the_choices(tmp_path: Path):
    with pytest.raises(ProfileError, match=r"backend: .*'local'.*found 'slrum'"):
        load_profile(changed(tmp_path, backend="slrum"))


def test_a_ladder_cell_that_does_not_fit_fails_when_the_profile_is_loaded(tmp_path: Path):
    with pytest.raises(ProfileError, match=r"ladder\.w32\.model: .*kv_heads"):
        load_profile(changed(tmp_path, ladder={"w32": {"model": {"kv_heads": 3}}}))


def test_an_unknown_key_in_a_ladder_cell_is_named_with_the_cell(tmp_path: Path):
    with pytest.raises(ProfileError, match=r"ladder\.w32\.model\.widht: unknown key"):
        load_profile(changed(tmp_path, ladder={"w32": {"model": {"widht": 32}}}))


@pytest.mark.parametrize("key", ["a,b", "a...b", "a|b", "A", ".a"])
def test_a_source_key_that_dagster_would_misread_is_refused(tmp_path: Path, key: str):
    sources = {key: {"kind": "files", "domain": "x", "licence": "x", "label": "x", "root": "."}}
    with pytest.raises(ProfileError, match="can't be a partition key"):
        load_profile(changed(tmp_path, sources=sources))


def test_a_missing_profile_lists_the_built_in_ones():
    with pytest.raises(ProfileError, match=r"'nowhere'.*built in are demo"):
        load_profile("nowhere")


def test_a_variable_without_value_is_named(tmp_path: Path):
    path = tmp_path / "profile.yaml"
    path.write_text("name: ${SEAWAY_NOT_SET}")
    with pytest.raises(ProfileError, match=r"\$\{SEAWAY_NOT_SET\} is not set; export"):
        load_profile(str(path))


def test_a_variable_may_hold_digits_and_an_empty_one_takes_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("S3_BUCKET", "s3://bucket")
    monkeypatch.setenv("SEAWAY_HOME", "")
    storage = {
        "root": "${S3_BUCKET}/x",
        "state": "/s",
        "dagster_home": "${SEAWAY_HOME:-/home}/d",
        "catalog": "sqlite://",
        "compiled": "jax-cache",
    }
    profile = load_profile(changed(tmp_path, storage=storage))
    assert profile.storage.root == "s3://bucket/x"
    assert profile.storage.dagster_home == "/home/d"


def test_a_profile_that_is_no_text_says_so(tmp_path: Path):
    path = tmp_path / "profile.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match=r"profile\.yaml: not text in UTF-8"):
        load_profile(str(path))


def test_local_locations_become_absolute_and_urls_stay(tmp_path: Path):
    profile = load_profile(
        changed(
            tmp_path,
            storage={
                "root": "s3://bucket/seaway",
                "state": "jobs",
                "dagster_home": "home",
                "catalog": "sqlite://",
                "compiled": "jax-cache",
            },
        )
    )
    assert profile.storage.root == "s3://bucket/seaway"
    assert profile.storage.state == str(Path("jobs").absolute())


def test_a_cell_is_the_hero_with_its_overrides():
    profile = load_profile("demo")
    cell, hero = profile.cell_config("w32"), profile.programs.hero
    assert cell.model.width == 32
    assert cell.model.vocab_size == hero.model.vocab_size
    assert cell.optimizer == hero.optimizer


def test_training_on_a_cpu_keeps_its_memory_and_what_it_compiled():
    profile = load_profile("demo")
    env = profile.resources_of("accelerator").env
    assert env["JAX_PLATFORMS"] == "cpu"
    assert env["MALLOC_ARENA_MAX"] == "1"
    assert env["JAX_COMPILATION_CACHE_DIR"] == profile.storage.compiled
    assert profile.resources_of("host").env == {}
