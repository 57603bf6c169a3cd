"""Provenance: who made an artifact, from which code, where and how. Beside the manifest, never part of the identity."""

import getpass
import hashlib
import importlib.metadata
import platform
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from infra.artifacts.lease import AttemptRecord

GIT_TIMEOUT_S = 20
THIS_FILE = Path(__file__).resolve()
REPOSITORY = THIS_FILE.parents[2]


class Code(BaseModel):
    """The program's sources. Fields are None where they come from an installed package rather than a checkout."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None = None
    dirty_sha256: str | None = None  # over uncommitted changes and untracked files; None for a clean checkout
    lock_files: dict[str, str] = {}  # name under requirements/ -> SHA-256


class Environment(BaseModel):
    """The process that captured it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str
    host: str
    python: str
    platform: str
    packages: dict[str, str]


class Provenance(BaseModel):
    """Everything about the making of an artifact that does not decide what it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    captured_at: datetime
    code: Code
    environment: Environment
    config: dict[str, JsonValue]  # resolved, execution-only fields included
    attempts: tuple[AttemptRecord, ...] = ()


def capture(config: BaseModel | Mapping[str, JsonValue], attempts: Sequence[AttemptRecord] = ()) -> Provenance:
    """What can be known here and now. Git, packages and host are asked once a process; what is missing is None."""
    return Provenance(
        captured_at=datetime.now(UTC),
        code=code_of(REPOSITORY),
        environment=environment(),
        config=config.model_dump(mode="json") if isinstance(config, BaseModel) else dict(config),
        attempts=tuple(attempts),
    )


@cache
def code_of(repository: Path) -> Code:
    """Commit, dirty hash and lock files of a checkout, as they were when first asked."""
    if _git(repository, "ls-files", "--error-unmatch", "pyproject.toml") is None:
        return Code(lock_files=_lock_files(repository))  # installed, perhaps inside somebody else's checkout
    commit = _git(repository, "rev-parse", "HEAD")
    return Code(commit=commit.decode().strip() if commit else None, dirty_sha256=_dirty(repository), lock_files=_lock_files(repository))


@cache
def environment() -> Environment:
    """User, host, Python, platform and every installed distribution."""
    return Environment(
        user=_user(),
        host=socket.gethostname(),
        python=platform.python_version(),
        platform=platform.platform(),
        packages=dict(sorted(_name_and_version(found) for found in importlib.metadata.distributions())),
    )


def _name_and_version(found: importlib.metadata.Distribution) -> tuple[str, str]:
    """Two lines of its metadata. Parsing all headers takes 0.17 s for 283 packages, and every worker waits for it."""
    metadata = found.read_text("METADATA") or ""
    name, version = (re.search(rf"^{field}: *(\S+)", metadata, re.MULTILINE) for field in ("Name", "Version"))
    return (name[1], version[1]) if name and version else (found.name, found.version)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's bare uid
        return "unknown"


def _dirty(repository: Path) -> str | None:
    changes = _git(repository, "diff", "HEAD", "--binary") or b""
    untracked = (_git(repository, "ls-files", "--others", "--exclude-standard", "-z") or b"").split(b"\0")
    names = sorted(name.decode(errors="surrogateescape") for name in untracked if name)
    if not changes and not names:
        return None
    hashed = hashlib.sha256(changes)
    for name in names:
        hashed.update(name.encode(errors="surrogateescape") + b"\0" + _sha256(repository / name).encode())
    return hashed.hexdigest()


def _lock_files(repository: Path) -> dict[str, str]:
    return {path.name: _sha256(path) for path in sorted((repository / "requirements").glob("*.txt"))}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:  # a dangling link, or removed while we look
        return "unreadable"


def _git(repository: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
