"""users://: my writes are mine, finished work of the team is everybody's, and nothing is picked by chance."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import fsspec
import pytest

from infra.artifacts.store import ArtifactStore
from infra.storage.errors import PermanentStorageError
from infra.storage.objects import create_exclusive, list_files, list_names, read_or_none, remove_tree, replace
from infra.storage.users import (
    JOB_USER_VARIABLE,
    PREFIX_VARIABLE,
    USER_VARIABLE,
    AmbiguousOwnerError,
    UsersFileSystem,
    join,
    read_url,
    resolve,
    write_url,
)
from tests.infra.artifacts.builders import RECIPE, begin, publish, published

MANIFEST = ".artifact.json"


@pytest.fixture
def prefix(storage: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A team's prefix on each storage; this process is ada."""
    monkeypatch.setenv(PREFIX_VARIABLE, storage)
    monkeypatch.setenv(USER_VARIABLE, "ada")
    UsersFileSystem.clear_instance_cache()
    yield storage
    UsersFileSystem.clear_instance_cache()


def finish(prefix: str, user: str, root: str, **files: str) -> None:
    """As a teammate's step leaves it: files first, manifest last."""
    for name, text in {**files, MANIFEST: "{}"}.items():
        replace(f"{prefix}/users/{user}/{root}/{name}", text.encode())


def test_writes_go_to_my_layer_alone(prefix: str) -> None:
    assert create_exclusive("users://step-1/a", b"created")
    replace("users://step-1/b", b"replaced")
    with fsspec.open("users://step-1/deep/c", "wb") as stream:
        stream.write(b"streamed")
    assert list_files(prefix) == {"users/ada/step-1/a": 7, "users/ada/step-1/b": 8, "users/ada/step-1/deep/c": 8}
    remove_tree("users://step-1")
    assert list_files(prefix) == {}


def test_the_first_layer_that_has_a_path_wins(prefix: str) -> None:
    replace(f"{prefix}/step-1/x", b"shared")
    assert read_or_none("users://step-1/x") == b"shared"
    finish(prefix, "bob", "step-1", x="of bob")
    UsersFileSystem.clear_instance_cache()
    assert read_or_none("users://step-1/x") == b"of bob"
    UsersFileSystem.clear_instance_cache()
    replace("users://step-1/x", b"mine")
    assert read_or_none("users://step-1/x") == b"mine"


def test_a_path_that_no_layer_has_is_not_found(prefix: str) -> None:
    assert read_or_none("users://step-1/x") is None
    assert list_names("users://step-1") == ()
    with pytest.raises(FileNotFoundError, match=r"users://step-1/x: ada has none, no teammate published one"):
        resolve("users://step-1/x")
    with pytest.raises(FileNotFoundError):
        fsspec.open("users://step-1/x", "rb").open()


def test_a_teammates_unfinished_work_is_not_seen(prefix: str) -> None:
    replace(f"{prefix}/users/bob/step-1/x", b"half")
    replace(f"{prefix}/step-1/x", b"shared")
    assert read_or_none("users://step-1/x") == b"shared"


def test_of_two_teammates_with_one_root_nobody_is_picked(prefix: str) -> None:
    finish(prefix, "bob", "step-1", x="1")
    finish(prefix, "cyd", "step-1", x="2")
    with pytest.raises(AmbiguousOwnerError, match=rf"2 teammates: .*{'users/bob/step-1'}, .*users/cyd/step-1; read one of them by"):
        read_or_none("users://step-1/x")
    replace("users://step-1/x", b"mine")
    assert read_or_none("users://step-1/x") == b"mine"


def test_once_a_teammate_was_chosen_all_reads_of_that_root_stay_with_him(prefix: str) -> None:
    finish(prefix, "bob", "step-1", x="1", y="1")
    replace(f"{prefix}/step-1/z", b"shared")
    assert read_or_none("users://step-1/x") == b"1"
    finish(prefix, "cyd", "step-1", y="2")
    replace("users://step-1/y", b"mine")
    assert read_or_none("users://step-1/y") == b"1"
    assert read_or_none("users://step-1/z") is None, "a shared file must not complete bob's artifact"
    finish(prefix, "cyd", "step-2", x="of cyd")
    assert read_or_none("users://step-2/x") == b"of cyd"


def test_my_published_root_is_not_completed_by_others(prefix: str) -> None:
    finish(prefix, "ada", "step-1", x="1")
    finish(prefix, "bob", "step-1", y="2")
    assert read_or_none("users://step-1/y") is None


def test_a_listing_shows_one_layer(prefix: str) -> None:
    finish(prefix, "bob", "step-1", x="1")
    replace(f"{prefix}/step-1/shared", b"")
    assert list_names("users://step-1") == (MANIFEST, "x")
    filesystem = fsspec.filesystem("users")
    assert filesystem.ls("step-1", detail=False) == [f"step-1/{MANIFEST}", "step-1/x"]
    assert filesystem.find("users://step-1") == [f"step-1/{MANIFEST}", "step-1/x"]
    assert filesystem.info("step-1/x")["size"] == 1


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
@pytest.mark.parametrize("path", ["users://", "users:///", "users://a/../b"])
@pytest.mark.parametrize("use", [resolve, read_url, write_url])
def test_a_path_that_names_nothing_is_refused(prefix: str, path: str, use: Callable[[str], str]) -> None:
    with pytest.raises(ValueError, match="names nothing; give a path below it"):
        use(path)


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
def test_who_i_am_is_said_then_set_then_of_the_job_then_of_the_system(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOB_USER_VARIABLE, "of-the-job")
    monkeypatch.setattr("getpass.getuser", lambda: "of-the-system")
    assert UsersFileSystem(user="said").user == "said"
    assert UsersFileSystem().user == "ada"
    monkeypatch.delenv(USER_VARIABLE)
    assert UsersFileSystem().user == "of-the-job"
    monkeypatch.delenv(JOB_USER_VARIABLE)
    assert UsersFileSystem().user == "of-the-system"


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_nobody_is_nobody_and_that_shows_at_the_first_use(prefix: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(USER_VARIABLE)
    monkeypatch.setattr("getpass.getuser", lambda: name)
    UsersFileSystem.clear_instance_cache()
    UsersFileSystem()
    with pytest.raises(PermanentStorageError, match=f"can't tell who you are .*set {USER_VARIABLE}"):
        create_exclusive("users://step-1/x", b"")


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
def test_without_a_prefix_the_first_use_says_what_to_set(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PREFIX_VARIABLE)
    with pytest.raises(PermanentStorageError, match=f"set {PREFIX_VARIABLE}"):
        read_or_none("users://step-1/x")


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
def test_a_concrete_url_is_what_guards_of_regions_see(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    finish(prefix, "bob", "step-1", x="1")
    replace(f"{prefix}/step-2/x", b"")
    with caplog.at_level(logging.INFO):
        assert resolve("users://step-1/x") == f"{prefix}/users/bob/step-1/x"
        assert resolve("users://step-2/x") == f"{prefix}/step-2/x"
    assert f"users://step-1 is the one that bob published at {prefix}/users/bob/step-1" in caplog.text
    assert "users://step-2/x is the shared one" in caplog.text
    assert write_url("users://step-1/x") == f"{prefix}/users/ada/step-1/x"
    assert resolve("s3://bucket/x") == "s3://bucket/x"


def test_joining_keeps_urls_well_formed() -> None:
    assert join("users://", "step-1", "x") == "users://step-1/x"
    assert join("users://team", "step-1") == "users://team/step-1"
    assert join("s3://bucket/", "/step-1/") == "s3://bucket/step-1"


def test_a_store_on_users_reuses_what_a_teammate_published(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = published(ArtifactStore(f"{prefix}/users/bob"), "normalized", "web")
    store = ArtifactStore("users://")
    found = store.find("normalized", "web", theirs.manifest.recipe)
    assert found is not None
    assert found.digest == theirs.digest
    store.verify(found)
    mine = store.address("tokens", None, RECIPE)
    artifact = publish(store, mine, *begin(store, mine))
    store.verify(artifact)
    assert ArtifactStore(f"{prefix}/users/ada").find("tokens", None, RECIPE) is not None
    monkeypatch.setenv(USER_VARIABLE, "cyd")
    UsersFileSystem.clear_instance_cache()
    assert store.find("tokens", None, RECIPE) is not None


def test_the_module_is_imported_only_where_a_url_asks_for_it() -> None:
    script = "import sys, fsspec, infra.storage.filesystem; assert 'infra.storage.users' not in sys.modules; fsspec.filesystem('users')"
    subprocess.run([sys.executable, "-c", script], check=True)
