"""Publication: complete or invisible, one winner, no zombie."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import Lease, LeaseHeld, LeaseLost
from infra.artifacts.store import ArtifactStore, CorruptArtifactError, DigestMismatch
from infra.artifacts.writer import Writer
from infra.storage.objects import list_files, remove_tree, replace
from tests.infra.artifacts.builders import FILES, PAYLOAD, RECIPE, begin, publish, published
from tests.infra.storage.s3_server import lose_the_reply


@pytest.fixture
def store(storage: str) -> ArtifactStore:
    return ArtifactStore(storage)


@pytest.fixture
def address(store: ArtifactStore) -> str:
    return store.address("normalized", "web", RECIPE)


def contents(artifact: Artifact) -> dict[str, bytes]:
    found = {}
    for name in artifact.names:
        with artifact.open(name) as stream:
            found[name] = stream.read()
    return found


def test_an_artifact_is_invisible_until_it_is_published_and_then_whole(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address)
    assert store.find("normalized", "web", RECIPE) is None
    assert list(store.artifacts()) == []
    artifact = publish(store, address, lease, out)
    assert store.find("normalized", "web", RECIPE) == artifact == Artifact.open_at(address)
    assert list(store.artifacts()) == [("normalized", "web", RECIPE, artifact)]
    assert contents(artifact) == FILES
    store.verify(artifact)


def test_publishing_again_after_a_crash_of_the_dispatcher_gives_the_same_artifact(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address)
    assert publish(store, address, lease, out) == publish(store, address, lease, out)


def test_of_many_dispatchers_at_once_one_publishes_and_nobody_gets_anything_else(store: ArtifactStore, address: str) -> None:
    racers = 8
    start = Barrier(racers)

    def race(index: int) -> Artifact | None:
        start.wait()
        try:
            return publish(store, address, *begin(store, address), user=f"racer {index}")
        except (LeaseHeld, LeaseLost):
            return None

    with ThreadPoolExecutor(racers) as pool:
        results = list(pool.map(race, range(racers)))
    winner = store.open_at(address)
    assert winner is not None
    assert {result.manifest.directory for result in results if result} == {winner.manifest.directory}
    made_by = store.provenance(winner)
    assert made_by is not None
    assert results[int(made_by.environment.user.removeprefix("racer "))] is not None
    store.verify(winner)


@dataclass
class InterruptedLease(Lease):
    """A lease whose holder pauses right after it checked its fence, while `meanwhile` happens."""

    meanwhile: Callable[[], object] = lambda: None

    def require_current(self) -> None:
        super().require_current()
        self.meanwhile()


def test_of_64_zombies_that_all_passed_their_fence_check_one_publishes(store: ArtifactStore, address: str) -> None:
    racers = 64
    start = Barrier(racers)

    def race(index: int) -> Artifact | str:
        lease = InterruptedLease(address, racers, f"{index:016x}", meanwhile=start.wait)  # the create is all that is left to each
        out = store.writer(address, lease.uid)
        out.write_json("data.json", index)
        try:
            return publish(store, address, lease, out)
        except DigestMismatch as mismatch:
            return str(mismatch)

    with ThreadPoolExecutor(racers) as pool:
        results = list(pool.map(race, range(racers)))
    (winner,) = [result for result in results if isinstance(result, Artifact)]
    assert store.open_at(address) == winner
    assert winner.read_json("data.json") == results.index(winner)
    assert all(winner.digest in result for result in results if isinstance(result, str))


def test_a_zombie_that_wakes_after_its_fence_check_still_cannot_replace_the_winner(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address, {"data": b"of a zombie"})
    paused = InterruptedLease(address, lease.token, lease.uid, meanwhile=lambda: publish(store, address, *begin(store, address)))
    with pytest.raises(DigestMismatch, match=rf"attempt-{lease.uid} wrote digest"):
        publish(store, address, paused, out)
    winner = store.open_at(address)
    assert winner is not None
    assert contents(winner) == FILES


def test_a_zombie_that_publishes_in_time_is_the_winner_for_its_successor_too(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address)
    successor: list[tuple[Lease, Writer]] = []
    paused = InterruptedLease(address, lease.token, lease.uid, meanwhile=lambda: successor.append(begin(store, address)))
    artifact = publish(store, address, paused, out)
    assert publish(store, address, *successor[0]) == artifact
    assert artifact.manifest.directory == f"attempt-{lease.uid}"


def test_a_loser_gets_the_winner_if_it_wrote_the_same_bytes(store: ArtifactStore, address: str) -> None:
    first, second = begin(store, address), begin(store, address)
    winner = publish(store, address, *second)
    assert publish(store, address, *first) == winner


def test_a_loser_with_other_bytes_learns_both_digests(store: ArtifactStore, address: str) -> None:
    first = begin(store, address, FILES | {"part-00001-of-00002.parquet": b"other rows"})
    winner = publish(store, address, *begin(store, address))
    with pytest.raises(DigestMismatch) as caught:
        publish(store, address, *first)
    assert winner.digest in str(caught.value)
    assert winner.manifest.directory in str(caught.value)
    assert f"attempt-{first[0].uid}" in str(caught.value)
    assert "differing: part-00001-of-00002.parquet" in str(caught.value)
    assert contents(winner) == FILES


def test_a_zombie_cannot_publish_over_the_winner(store: ArtifactStore, address: str) -> None:
    zombie = begin(store, address, {"data": b"of a zombie"})
    successor = begin(store, address)
    with pytest.raises(LeaseLost, match=rf"attempt 1 \({zombie[0].uid}\) was fenced by attempt 2 \({successor[0].uid}\)"):
        publish(store, address, *zombie)
    assert store.open_at(address) is None
    winner = publish(store, address, *successor)
    with pytest.raises(DigestMismatch):
        publish(store, address, *zombie)
    assert store.open_at(address) == winner


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing", "left over"])
def test_what_was_stored_wrongly_is_not_published(store: ArtifactStore, address: str, damage: str) -> None:
    lease, out = begin(store, address)
    name = "part-00001-of-00002.parquet"
    if damage == "changed":
        replace(f"{out.url}/{name}", b"MORE ROWS")
    elif damage == "truncated":
        replace(f"{out.url}/{name}", b"more")
    elif damage == "missing":
        remove_tree(out.url)
    else:
        replace(f"{out.url}/train/unknown.bin", b"of a killed process")
    with pytest.raises(
        CorruptArtifactError, match=rf"{lease.uid}: .*(other content|4 bytes, not 9|missing|train/unknown.bin was written by)"
    ):
        publish(store, address, lease, out)
    assert store.open_at(address) is None


def test_an_attempt_can_be_cleared_and_started_again_until_it_is_published(store: ArtifactStore, address: str) -> None:
    lease, _ = begin(store, address, {"of a killed process": b"x"})
    store.clear(address, lease.uid)
    again = store.writer(address, lease.uid)
    again.write_json("data.json", 1)
    artifact = publish(store, address, lease, again)
    assert artifact.names == ("data.json",)
    for forbidden in (store.clear, store.writer):
        with pytest.raises(ValueError, match="is published and its files are immutable"):
            forbidden(address, lease.uid)
    store.verify(artifact)


@pytest.mark.parametrize(("content", "finding"), [(b"first ROWS", "has other content"), (b"first", "has 5 bytes, not 10")])
def test_verifying_finds_bytes_that_rotted(store: ArtifactStore, address: str, content: bytes, finding: str) -> None:
    artifact = publish(store, address, *begin(store, address))
    replace(artifact.url_of("part-00000-of-00002.parquet"), content)
    with pytest.raises(CorruptArtifactError, match=f"part-00000-of-00002.parquet {finding}"):
        store.verify(artifact)


def test_sweeping_removes_losers_and_scratch_but_nothing_before_publication(store: ArtifactStore, address: str) -> None:
    dead = begin(store, address)
    lease, out = begin(store, address)
    replace(f"{out.scratch_url}/checkpoint/state.json", b"{}")
    assert store.sweep(address) == ()
    assert list_files(dead[1].url)
    artifact = publish(store, address, lease, out)
    assert set(store.sweep(address)) == {".scratch", f"attempt-{dead[0].uid}"}
    assert {name.partition("/")[0] for name in list_files(address)} == {".artifact.json", ".attempts", artifact.manifest.directory}
    store.verify(artifact)


def test_a_scratch_folder_goes_with_its_block_and_is_no_part_of_the_artifact(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address)
    with out.scratch_folder() as folder, out.scratch_folder() as other:
        assert folder != other
        (folder / "spill").write_bytes(b"rows")
        assert publish(store, address, lease, out).names == tuple(sorted(FILES))
    assert not folder.exists()


DIES_IN_ITS_SCRATCH_FOLDER = """
import os, sys
from infra.artifacts.writer import Writer
with Writer(sys.argv[1], scratch_url="").scratch_folder() as folder:
    (folder / "spill").write_bytes(b"rows")
    os._exit(0)
"""


def test_what_a_killed_process_left_in_scratch_is_cleared_and_swept(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "root"))
    address = store.address("normalized", "web", RECIPE)
    (restarted, left), (_, lost) = begin(store, address), begin(store, address)
    for out in (left, lost):
        subprocess.run([sys.executable, "-c", DIES_IN_ITS_SCRATCH_FOLDER, out.url], check=True)
        assert len(list(Path(out.url).glob(".scratch-*/spill"))) == 1
    store.clear(address, restarted.uid)
    assert not Path(left.url).exists()
    publish(store, address, *begin(store, address))
    store.sweep(address)
    assert not Path(lost.url).exists()


def test_hidden_files_and_folders_are_never_discovered(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address)
    replace(f"{out.url}/.progress.json", b"{}")
    replace(f"{out.url}/train/.cache/part-00009.parquet", b"{}")
    artifact = publish(store, address, lease, out)
    for hidden in (".trash/web/0123456789abcdef", "normalized/.old/0123456789abcdef", f"normalized/web/.{RECIPE}"):
        replace(f"{store.root}/{hidden}/.artifact.json", b"not even a manifest")
    assert list(store.artifacts()) == [("normalized", "web", RECIPE, artifact)]
    assert set(artifact.names) == set(FILES)
    store.verify(artifact)
    with pytest.raises(FileNotFoundError, match=r"has no file '\.provenance\.json'"):
        artifact.url_of(".provenance.json")


def test_every_file_is_on_the_disk_before_the_manifest_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(str(tmp_path / "root"))
    address = store.address("normalized", "web", RECIPE)
    lease, out = begin(store, address)
    synced: set[int] = set()
    synced_before_manifest: list[set[int]] = []
    fsync, link = os.fsync, os.link

    def watched_fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def watched_link(source: str, target: str) -> None:
        synced_before_manifest.append(set(synced))
        link(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    artifact = publish(store, address, lease, out)
    folder = Path(artifact.url) / artifact.manifest.directory
    must_last = {path.stat().st_ino for path in (folder, *folder.rglob("*"))}
    assert len(must_last) == 2 + len(FILES) + 1, "two folders, the files, the provenance"
    assert must_last <= synced_before_manifest[-1]


def test_provenance_tells_who_made_the_winner(store: ArtifactStore, address: str) -> None:
    loser, winner = begin(store, address), begin(store, address)
    artifact = publish(store, address, *winner, user="winner")
    publish(store, address, *loser, user="loser")
    found = store.provenance(artifact)
    assert found is not None
    assert found.environment.user == "winner"


def test_keys_may_hold_any_character_and_come_back_from_a_walk(store: ArtifactStore) -> None:
    keys = [None, "_", "a/b", "..", ".hidden", "50%", "a|b", "größe", "a b?#*[x]", "%2F"]
    for key in keys:
        published(store, "an/asset", key)
    walked = [(asset, partition) for asset, partition, _, _ in store.artifacts()]
    assert sorted(walked, key=str) == sorted((("an/asset", key) for key in keys), key=str)
    assert len({store.address("x", key, RECIPE) for key in keys}) == len(keys)


def test_a_manifest_that_is_not_of_its_address_is_named(store: ArtifactStore, address: str) -> None:
    artifact = publish(store, address, *begin(store, address))
    elsewhere = store.address("normalized", "web", "0" * 16)
    replace(f"{elsewhere}/.artifact.json", artifact.manifest.model_dump_json().encode())
    with pytest.raises(CorruptArtifactError, match=rf"belongs to recipe {RECIPE}"):
        store.find("normalized", "web", "0" * 16)
    replace(f"{elsewhere}/.artifact.json", b'{"half": ')
    with pytest.raises(CorruptArtifactError, match="is not a manifest"):
        store.find("normalized", "web", "0" * 16)


def test_a_recipe_that_is_not_of_its_payload_is_refused(store: ArtifactStore, address: str) -> None:
    lease, out = begin(store, address)
    with pytest.raises(ValueError, match="is not that of its payload"):
        publish(store, address, lease, out, payload=PAYLOAD | {"version": "2"})


@pytest.mark.s3
@pytest.mark.parametrize("storage", ["moto"], indirect=True)
def test_a_publication_whose_reply_was_lost_is_known_as_the_winner(
    store: ArtifactStore, address: str, request: pytest.FixtureRequest
) -> None:
    lease, out = begin(store, address)
    request.getfixturevalue("s3").server.faults.append(lose_the_reply)
    assert publish(store, address, lease, out).manifest.directory == f"attempt-{lease.uid}"


@pytest.mark.parametrize(("root", "address"), [("memory://", "memory:///raw/_/0a"), ("/", "/raw/_/0a"), ("s3://b/r/", "s3://b/r/raw/_/0a")])
def test_addresses_under_any_spelling_of_a_root_are_well_formed(root: str, address: str) -> None:
    assert ArtifactStore(root).address("raw", None, "0a") == address
