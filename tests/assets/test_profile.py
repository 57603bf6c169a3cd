"""A profile that can't be used says which file, which field, and what to do - before anything runs."""

from pathlib import Path

import pytest
import yaml

from assets.profile import ASSETS, load_profile
from assets.profile_file import ProfileError, built_in_names
from ops.config import ClusterStoreConfig, TokenizeRestConfig


def changed(tmp_path: Path, **sections: object) -> str:
    profile = yaml.safe_load(Path("orchestration/profiles/demo.yaml").read_text())
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump({**profile, **sections}))
    return str(path)


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEAWAY_HOME", raising=False)


CLUSTERS = {
    "kubernetes": {"SEAWAY_KUBERNETES_CLUSTER": "lab", "SEAWAY_IMAGE": "registry.lab/seaway:1"},
    "ray": {"SEAWAY_RAY_ADDRESS": "http://ray-head:8265"},
    "slurm": {"SEAWAY_SLURM_CLUSTER": "lab", "SEAWAY_SLURM_FOLDER": "/shared/seaway"},
}
"""What a cluster's profile needs of the environment, beside SEAWAY_ROOT."""


@pytest.mark.parametrize("name", built_in_names())
def test_every_built_in_profile_loads(name: str, monkeypatch: pytest.MonkeyPatch):
    for variable, value in {"SEAWAY_ROOT": "s3://bucket/seaway", **CLUSTERS.get(name, {})}.items():
        monkeypatch.setenv(variable, value)
    assert load_profile(name).name == name


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_a_clusters_profile_says_where_and_how_urgently_each_asset_runs(name: str, monkeypatch: pytest.MonkeyPatch):
    for variable, value in {"SEAWAY_ROOT": "s3://bucket/seaway", "SEAWAY_LADDER_DEVICE": "h100x2", **CLUSTERS[name]}.items():
        monkeypatch.setenv(variable, value)
    profile = load_profile(name)
    assert profile.backend.kind == name
    assert profile.storage.root == "s3://bucket/seaway"
    where = {
        asset: (found.device, found.band)
        for asset, pool in (("raw", "host"), ("evaluation", "host"), ("ladder", "accelerator"), ("hero", "accelerator"))
        for found in [profile.resources_of(asset, pool)]  # type: ignore[arg-type]
    }
    assert where == {
        "raw": ("cpu", "batch"),
        "evaluation": ("cpu", "interactive"),
        "ladder": ("h100x2", "batch"),
        "hero": ("h100x8", "production"),
    }
    env = profile.resources_of("hero", "accelerator").env
    assert "JAX_PLATFORMS" not in env
    assert env["SEAWAY_COMPILED_SHARED"] == "s3://bucket/seaway/.compiled"
    assert profile.program_config("hero") == load_profile("demo").program_config("hero"), "devices are no part of what is built"


@pytest.mark.parametrize(("name", "variable"), [(name, variable) for name in CLUSTERS for variable in ("SEAWAY_ROOT", *CLUSTERS[name])])
def test_a_clusters_profile_names_the_variable_that_it_misses(name: str, variable: str, monkeypatch: pytest.MonkeyPatch):
    for other, value in {"SEAWAY_ROOT": "/shared", **CLUSTERS[name]}.items():
        monkeypatch.setenv(other, value)
    monkeypatch.delenv(variable)
    file = "_cluster" if variable == "SEAWAY_ROOT" else name
    with pytest.raises(ProfileError, match=rf"profiles/{file}\.yaml: \$\{{{variable}\}} is not set; export {variable}"):
        load_profile(name)


def test_a_device_that_a_cluster_has_no_nodes_for_is_refused(monkeypatch: pytest.MonkeyPatch):
    for variable, value in {"SEAWAY_ROOT": "/shared", "SEAWAY_HERO_DEVICE": "v5p-32", **CLUSTERS["slurm"]}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ProfileError, match=r"stages\.hero\.resources\.device: backend slurm has no TPUs and v5p-32 is one; choose cpu"):
        load_profile("slurm")


def test_an_unknown_key_is_named_with_its_path(tmp_path: Path):
    path = changed(tmp_path, programs={"hero": {}, "minhash": {"num_permz": 3}})
    with pytest.raises(ProfileError, match=r"changed\.yaml: .*programs\.minhash\.num_permz: unknown key; check its spelling"):
        load_profile(path)


def test_an_unknown_backend_names_the_choices(tmp_path: Path):
    with pytest.raises(ProfileError, match=r"backend: 'slrum' is unknown; choose one of kubernetes, local, ray, slurm"):
        load_profile(changed(tmp_path, backend="slrum"))


def test_a_ladder_cell_that_does_not_fit_fails_when_the_profile_is_loaded(tmp_path: Path):
    with pytest.raises(ProfileError, match=r"ladder\.w32\.model: .*kv_heads"):
        load_profile(changed(tmp_path, ladder={"w32": {"model": {"kv_heads": 3}}}))


def test_an_unknown_key_in_a_ladder_cell_is_named_with_the_cell(tmp_path: Path):
    with pytest.raises(ProfileError, match=r"ladder\.w32\.model\.widht: unknown key"):
        load_profile(changed(tmp_path, ladder={"w32": {"model": {"widht": 32}}}))


def test_what_tokens_and_store_are_made_of_follows_from_the_profiles_choices(tmp_path: Path):
    plain = load_profile(changed(tmp_path))
    assert plain.tokens_config("pydoc") == plain.programs.tokens
    assert plain.store_config().domains["pydoc"] == "documentation"
    chosen = load_profile(changed(tmp_path, domain_clusters=40, repeated_paragraphs="cut"))
    assert chosen.store_config() == ClusterStoreConfig(domain_clusters=40)
    assert chosen.tokens_config("pydoc") == TokenizeRestConfig(source="pydoc")
    with pytest.raises(ProfileError, match="repeated_paragraphs: Input should be 'keep' or 'cut'"):
        load_profile(changed(tmp_path, repeated_paragraphs="drop"))


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
    env = profile.resources_of("hero", "accelerator").env
    assert env["JAX_PLATFORMS"] == "cpu"
    assert env["MALLOC_ARENA_MAX"] == "1"
    assert env["JAX_COMPILATION_CACHE_DIR"] == profile.storage.compiled
    assert "SEAWAY_COMPILED_SHARED" not in env, "one machine has nobody to share with"
    assert profile.resources_of("normalized", "host").env == {}


def test_a_backend_is_a_word_or_a_section(tmp_path: Path):
    assert load_profile(changed(tmp_path, backend="local")) == load_profile(changed(tmp_path, backend={"kind": "local"}))
    with pytest.raises(ProfileError, match=r"backend\S*\.partitoin: unknown key"):
        load_profile(changed(tmp_path, backend={"kind": "local", "partitoin": "gpu"}))


def test_an_asset_has_what_is_written_for_it_and_the_rest_from_its_pool(tmp_path: Path):
    stages = {
        "hero": {"resources": {"band": "production", "env": {"A": "1"}}, "timeouts": {"step_s": 7}, "budgets": {"infrastructure": 3}},
        "raw": {"resources": {"cpus": 1}},
    }
    pools = {"host": {"cpus": 2, "band": "batch"}, "accelerator": {"cpus": 4, "preemptible": False, "env": {"B": "2"}}}
    profile = load_profile(changed(tmp_path, stages=stages, pools=pools, timeouts={"start_grace_s": 600, "step_s": 300}))
    hero = profile.resources_of("hero", "accelerator")
    assert (hero.band, hero.cpus, hero.preemptible) == ("production", 4, False)
    assert {"A": "1", "B": "2"}.items() <= hero.env.items()
    assert profile.resources_of("cooldown", "accelerator").band == "interactive"
    assert (profile.resources_of("raw", "host").cpus, profile.resources_of("raw", "host").band) == (1, "batch")
    assert (profile.timeouts_of("hero").step_s, profile.timeouts_of("hero").start_grace_s) == (7, 600)
    assert profile.timeouts_of("raw") == profile.timeouts
    assert profile.budgets_of("hero").infrastructure == 3
    assert profile.budgets_of("raw") == profile.budgets


@pytest.mark.parametrize(
    ("sections", "answer"),
    [
        ({"stages": {"heroo": {}}}, r"stages: there is no asset 'heroo'; choose among attrition, baselines, cluster_assignments"),
        ({"stages": {"hero": {"resources": {"devise": "cpu"}}}}, r"stages\.hero\.resources\.devise: unknown key"),
        (
            {"stages": {"hero": {"resources": {"device": "h1000x8"}}}},
            r"stages\.hero\.resources\.device: .*'h1000x8' is unknown; choose cpu",
        ),
        (
            {"stages": {"hero": {"resources": {"band": "urgent"}}}},
            r"stages\.hero\.resources\.band: .*'production', 'interactive' or 'batch'",
        ),
        ({"stages": {"hero": {"timeouts": {"step_s": 0}}}}, r"stages\.hero\.timeouts\.step_s: .*greater than 0"),
        ({"pools": {"hosts": {}}}, r"pools\.hosts.*'host' or 'accelerator'"),
        ({"budgets": {"application": -1}}, r"budgets\.application: .*greater than or equal to 0"),
        ({"concurrency": {"pools": {"host": 0}}}, r"concurrency\.pools: pool host has no slot, so nothing of it would ever run"),
        ({"concurrency": {"runs": 0}}, r"concurrency\.runs: .*greater than or equal to 1"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_is_wrong_with_resources_is_told_with_its_field(tmp_path: Path, sections: dict[str, object], answer: str):
    with pytest.raises(ProfileError, match=answer):
        load_profile(changed(tmp_path, **sections))


@pytest.mark.parametrize("where", ["stages", "pools"])
def test_a_device_that_the_backend_can_never_place_is_refused_when_the_profile_is_loaded(tmp_path: Path, where: str):
    section = {"hero": {"resources": {"device": "h100x64"}}} if where == "stages" else {"accelerator": {"device": "h100x64"}}
    field = r"stages\.hero\.resources\.device" if where == "stages" else r"pools\.accelerator\.device"
    with pytest.raises(ProfileError, match=rf"{field}: backend local is one machine and h100x64 is 8 hosts; choose a smaller device"):
        load_profile(changed(tmp_path, **{where: section}))


def test_the_assets_that_a_profile_may_name_are_those_of_the_lineage():
    import orchestration.definitions  # noqa: F401 - the lineage is filled as it loads
    from assets.lineage import STAGES

    assert ASSETS - {"repeat", "repeat_perplexity"} == set(STAGES)  # those two only where a profile asks for repetitions


def test_dagsters_storage_is_postgresql_through_the_driver_that_its_package_brings(tmp_path: Path):
    storage = load_profile("demo").storage.model_dump()
    profile = load_profile(changed(tmp_path, storage={**storage, "dagster": "postgresql://ada@db/dagster"}))
    assert profile.storage.dagster == "postgresql+psycopg2://ada@db/dagster"
    assert load_profile(changed(tmp_path, storage={**storage, "dagster": ""})).storage.dagster is None
    with pytest.raises(ProfileError, match=r"storage\.dagster: write postgresql://user@host:port/database, or leave it out"):
        load_profile(changed(tmp_path, storage={**storage, "dagster": "mysql://here"}))


def test_partitions_of_a_backfill_share_a_run_only_off_the_accelerators(tmp_path: Path):
    shared = load_profile(changed(tmp_path, concurrency={"partitions": 100})).concurrency
    assert (shared.partitions_of("host"), shared.partitions_of("accelerator")) == (100, 1)
    assert load_profile("demo").concurrency.partitions_of("host") == 1
    with pytest.raises(ProfileError, match=r"concurrency\.partitions: .*less than or equal to 1000"):
        load_profile(changed(tmp_path, concurrency={"partitions": 1001}))
