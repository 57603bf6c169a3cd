"""The artifact store: addresses, and publication by one conditional create.

    {root}/{asset}/{partition or "_"}/{recipe}/     the address
        attempt-{uid}/...                           the files one attempt wrote
        attempt-{uid}/.provenance.json              how it came about
        .artifact.json                              the manifest: names the attempt that won
        .attempts/  .scratch/                       leases; what outlives a killed attempt

Provenance lies in the attempt's own folder, written before the manifest that names the folder: so it is complete when
the artifact becomes visible, and a loser can't overwrite the winner's. Dot-names are metadata and never data.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from pydantic import BaseModel, ValidationError

from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import Lease
from infra.artifacts.manifest import MANIFEST_NAME, PROVENANCE_NAME, FileEntry, Manifest, canonical_json, digest_of
from infra.artifacts.provenance import Provenance
from infra.artifacts.recipe import recipe_of
from infra.artifacts.writer import Progress, Saved, Writer, silent, unheard
from infra.storage.objects import create_exclusive, list_files, list_names, persist, read_or_none, remove_tree, replace, sha256_of

NO_PARTITION = "_"
SCRATCH_FOLDER = ".scratch"
ATTEMPT_PREFIX = "attempt-"
HASHING_THREADS = 4  # SHA-256 leaves the GIL; four reads in flight hide S3's round trips, more only cost memory


class DigestMismatch(RuntimeError):  # noqa: N818 - names the finding
    """Two attempts at one recipe wrote different bytes: the program is not deterministic, or its version was not raised."""


class CorruptArtifactError(RuntimeError):
    """What lies in storage is not what its manifest (or its writer) says."""


@dataclass(frozen=True)
class ArtifactStore:
    """Every artifact under one root (a local path, `memory://` or `s3://`)."""

    root: str

    def address(self, asset: str, partition: str | None, recipe: str) -> str:
        """Where a recipe's artifact lies, whether or not it exists."""
        return "/".join((self._base, _folder(asset), _partition_folder(partition), recipe))

    def find(self, asset: str, partition: str | None, recipe: str) -> Artifact | None:
        """The published artifact of a recipe, or None.

        Raises:
            CorruptArtifactError: a manifest is there that can't be one of this address.
        """
        return self.open_at(self.address(asset, partition, recipe))

    def open_at(self, address: str) -> Artifact | None:
        """The artifact published at an address, or None."""
        stored = read_or_none(f"{address}/{MANIFEST_NAME}")
        if stored is None:
            return None
        try:
            manifest = Manifest.model_validate_json(stored)
        except ValidationError as error:
            raise CorruptArtifactError(f"{address}/{MANIFEST_NAME} is not a manifest ({error.errors()[0]['msg']}); remove it") from error
        if manifest.recipe != address.rpartition("/")[2]:
            raise CorruptArtifactError(
                f"{address}/{MANIFEST_NAME} belongs to recipe {manifest.recipe}; it was copied here by hand, remove it"
            )
        return Artifact(address, manifest)

    def writer(self, address: str, attempt_uid: str, progress: Progress = silent, saved: Saved = unheard) -> Writer:
        """Where one attempt writes. Make it once per attempt, by the one process that writes the artifact.

        Raises:
            ValueError: this very attempt was published already; its files are immutable.
        """
        self._require_unpublished(address, attempt_uid)
        url = f"{address}/{ATTEMPT_PREFIX}{attempt_uid}"
        return Writer(url, scratch_url=f"{address}/{SCRATCH_FOLDER}", progress=progress, saved=saved)

    def clear(self, address: str, attempt_uid: str) -> None:
        """Remove what a killed process of this attempt left, before the attempt is started again under its uid.

        Raises:
            ValueError: this attempt was published already.
        """
        self._require_unpublished(address, attempt_uid)
        remove_tree(f"{address}/{ATTEMPT_PREFIX}{attempt_uid}")

    def publish(
        self,
        address: str,
        out: Writer,
        *,
        recipe: str,
        payload: Mapping[str, Any],
        stats: BaseModel | Mapping[str, Any],
        lease: Lease,
        provenance: Provenance,
    ) -> Artifact:
        """Make what `out` wrote the artifact of `address`: verify it, check the fence, create the manifest once.

        Returns:
            The artifact: this attempt's, or an earlier winner's with the same digest.

        Raises:
            CorruptArtifactError: a file in storage is not what was written, is missing, or nobody wrote it.
            LeaseLost: a later attempt holds the lease.
            DigestMismatch: somebody else published other bytes for the same recipe.
            ValueError: address, recipe and payload do not belong together.
        """
        _require_belonging(address, out, recipe, payload, lease)
        manifest = Manifest(
            recipe=recipe,
            payload=dict(payload),
            digest=digest_of(out.files),
            directory=out.url.rpartition("/")[2],
            files=out.files,
            stats=stats.model_dump(mode="json") if isinstance(stats, BaseModel) else dict(stats),
        )
        if (winner := self.open_at(address)) is not None:
            return _adopt(winner, manifest)
        _verify_files(out.url, manifest.files)
        replace(f"{out.url}/{PROVENANCE_NAME}", provenance.model_dump_json(indent=1).encode())
        persist(out.url)
        lease.require_current()
        if create_exclusive(f"{address}/{MANIFEST_NAME}", canonical_json(manifest.model_dump(mode="json"))):
            return Artifact(address, manifest)
        winner = self.open_at(address)
        if winner is None:
            raise CorruptArtifactError(f"{address}/{MANIFEST_NAME} was removed while attempt {lease.uid} published; run again")
        return _adopt(winner, manifest)

    def artifacts(self) -> Iterator[tuple[str, str | None, str, Artifact]]:
        """Every published artifact: (asset, partition, recipe, artifact), sorted by address, from storage itself."""
        for asset, partition, recipe in self.addresses():
            artifact = self.find(asset, partition, recipe)
            if artifact is not None:
                yield asset, partition, recipe, artifact

    def addresses(self) -> Iterator[tuple[str, str | None, str]]:
        """Every (asset, partition, recipe) that anything was ever written for."""
        for asset in _visible_names(self.root):
            for partition in _visible_names(f"{self._base}/{asset}"):
                for recipe in _visible_names(f"{self._base}/{asset}/{partition}"):
                    yield unquote(asset), None if partition == NO_PARTITION else unquote(partition), recipe

    def provenance(self, artifact: Artifact) -> Provenance | None:
        """How an artifact came about, or None where nobody wrote it down."""
        stored = read_or_none(f"{artifact.url}/{artifact.manifest.directory}/{PROVENANCE_NAME}")
        return None if stored is None else Provenance.model_validate_json(stored)

    def verify(self, artifact: Artifact) -> None:
        """Read every file back and compare it with the manifest.

        Raises:
            CorruptArtifactError: names the files that are missing, left over or different.
        """
        _verify_files(f"{artifact.url}/{artifact.manifest.directory}", artifact.manifest.files)
        if digest_of(artifact.manifest.files) != artifact.digest:
            raise CorruptArtifactError(f"{artifact.url}: the manifest's digest {artifact.digest} is not that of its files; remove it")

    def sweep(self, address: str) -> tuple[str, ...]:
        """Remove the attempts that lost and the scratch space, once something is published.

        Before that nothing is removed: an attempt that looks dead may be about to publish, and a manifest must never
        name a folder that was swept.

        Returns:
            Names of the folders removed.
        """
        artifact = self.open_at(address)
        if artifact is None:
            return ()
        lost = [
            name
            for name in list_names(address)
            if name == SCRATCH_FOLDER or (name.startswith(ATTEMPT_PREFIX) and name != artifact.manifest.directory)
        ]
        for name in lost:
            remove_tree(f"{address}/{name}")
        return tuple(lost)

    @property
    def _base(self) -> str:
        return self.root if self.root.endswith("://") else self.root.rstrip("/")

    def _require_unpublished(self, address: str, attempt_uid: str) -> None:
        artifact = self.open_at(address)
        if artifact is not None and artifact.manifest.directory == f"{ATTEMPT_PREFIX}{attempt_uid}":
            raise ValueError(f"{address}: attempt {attempt_uid} is published and its files are immutable; read the artifact instead")


def _adopt(winner: Artifact, mine: Manifest) -> Artifact:
    if winner.digest == mine.digest:
        return winner
    differing = sorted({entry.name for entry in set(winner.manifest.files) ^ set(mine.files)})
    raise DigestMismatch(
        f"{winner.url}: {mine.directory} wrote digest {mine.digest}, but {winner.manifest.directory} published {winner.digest} "
        f"(differing: {', '.join(differing[:8])}); equal recipes must give equal bytes: find what is not deterministic, "
        "or raise the program's version"
    )


def _verify_files(url: str, files: tuple[FileEntry, ...]) -> None:
    found = {name: size for name, size in list_files(url).items() if not _is_hidden(name)}
    expected = {entry.name: entry.size for entry in files}
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} was written by nobody" for name in sorted(found.keys() - expected.keys())]
    wrong += [f"{name} has {found[name]} bytes, not {size}" for name, size in expected.items() if found.get(name, size) != size]
    if not wrong:
        with ThreadPoolExecutor(HASHING_THREADS) as pool:
            hashes = pool.map(lambda entry: sha256_of(f"{url}/{entry.name}", entry.size), files)
            wrong = [f"{entry.name} has other content" for entry, stored in zip(files, hashes, strict=True) if stored != entry.sha256]
    if wrong:
        raise CorruptArtifactError(f"{url}: {'; '.join(wrong[:8])}{' ...' if wrong[8:] else ''}; discard this attempt and run again")


def _require_belonging(address: str, out: Writer, recipe: str, payload: Mapping[str, Any], lease: Lease) -> None:
    if recipe != recipe_of(payload) or recipe != address.rpartition("/")[2]:
        raise ValueError(f"{address}: recipe {recipe} is not that of its payload ({recipe_of(payload)}) and its address")
    if lease.address != address or out.url != f"{address}/{ATTEMPT_PREFIX}{lease.uid}":
        raise ValueError(f"{address}: {out.url} was not written by attempt {lease.uid}, which holds a lease on {lease.address}")


def _visible_names(url: str) -> tuple[str, ...]:
    return tuple(name for name in list_names(url) if not name.startswith("."))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _folder(key: str) -> str:
    """A key as one folder name: slashes, dots in front and other specials are percent-encoded."""
    if not key:
        raise ValueError("an asset or partition key must not be empty")
    name = quote(key, safe=" |,=+@")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _partition_folder(partition: str | None) -> str:
    if partition is None:
        return NO_PARTITION
    return "%5F" if partition == NO_PARTITION else _folder(partition)
