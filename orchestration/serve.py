"""`seaway serve`: a model behind an OpenAI-compatible API on this machine."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from assets.history import history
from infra.artifacts.artifact import Artifact
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.store import ArtifactStore
from infra.serving.limits import ServingLimits
from infra.serving.pool import WorkerCommand, WorkersFail, serve
from infra.serving.upstream import MissingEngineError, require
from orchestration.errors import CommandError
from orchestration.naming import node_named

EngineName = Literal["seaway", "vllm", "sglang"]
TOKENIZER_PROGRAM, RELEASE_PROGRAM = "train_tokenizer", "release"  # as manifests name them


class ServeError(CommandError):
    """What was asked for can't be served."""


def serve_model(
    console: Console,
    model: str,
    *,
    engine: EngineName,
    name: str | None,
    host: str,
    port: int,
    workers: int,
    slots: int,
    limits: ServingLimits,
) -> None:
    """Serve until a signal comes.

    Args:
        model: a released folder, the URL of a published artifact, or a node of the profile's lineage: `release`, `hero`,
            `cooldown`. For engines of others whatever they take.
        name: what clients ask for; by default what it is.
        slots: requests that one worker answers side by side.

    Raises:
        ServeError: there is no such model, its engine is not installed, or workers fail again and again.
        OSError: the port is taken.
    """
    try:
        command, called = command_for(model, engine, slots)
        asyncio.run(serve([name or called], command, limits, workers=workers, host=host, port=port))
    except (WorkersFail, MissingEngineError) as error:
        raise ServeError(str(error)) from error
    console.print("served; every worker is gone")


def limits_for(request_s: float) -> ServingLimits:
    """The clocks that follow from the patience with a request: two attempts that use up an engine's whole time fit in."""
    usual = ServingLimits()
    scale = request_s / usual.request_s
    return usual.model_copy(update={name: getattr(usual, name) * scale for name in ("engine_s", "lease_s", "request_s")})


def command_for(model: str, engine: EngineName, slots: int) -> tuple[WorkerCommand, str]:
    """How to start a worker for a model, and what the model is called."""
    if engine != "seaway":
        require(engine)
        return WorkerCommand(f"infra.serving.upstream:{engine}", (model, str(slots))), model
    folder = Path(model)
    if folder.is_dir() and not (folder / MANIFEST_NAME).exists():
        return WorkerCommand("model.serving.load:released", (str(folder.absolute()), str(slots))), folder.absolute().name
    if folder.is_dir() or "://" in model:
        url = model if "://" in model else str(folder.absolute())
        artifact = Artifact.open_at(url)
        return _published(artifact, _store_of(url), slots), url.rstrip("/").split("/")[-3]
    return _published(*_newest(model), slots), model


def _published(artifact: Artifact, store: ArtifactStore, slots: int) -> WorkerCommand:
    program = artifact.manifest.payload.get("program")
    if program == RELEASE_PROGRAM:
        return WorkerCommand("model.serving.load:release_artifact", (artifact.url, str(slots)))
    tokenizer = tokenizer_of(artifact, store)
    return WorkerCommand("model.serving.load:checkpoint_artifact", (artifact.url, tokenizer.url, str(slots)))


def tokenizer_of(checkpoint: Artifact, store: ArtifactStore) -> Artifact:
    """The tokenizer that a checkpoint's data was made with: its nearest ancestor that is one.

    Raises:
        ServeError: none of its ancestors in storage is.
    """
    by_digest = {artifact.digest: artifact for _, _, _, artifact in store.artifacts()}
    seen, frontier = {checkpoint.digest}, [checkpoint]
    while frontier:
        inputs = [digest for artifact in frontier for digest in _inputs_of(artifact.manifest.payload)]
        frontier = [by_digest[digest] for digest in dict.fromkeys(inputs) if digest in by_digest and digest not in seen]
        seen.update(artifact.digest for artifact in frontier)
        for artifact in frontier:
            if artifact.manifest.payload.get("program") == TOKENIZER_PROGRAM:
                return artifact
    raise ServeError(f"{checkpoint.url} was made with no tokenizer that lies in {store.root}; serve its release")


def _inputs_of(payload: Mapping[str, Any]) -> Iterator[str]:
    for found in payload.get("inputs", {}).values():
        yield from [found] if isinstance(found, str) else found.values()


def _newest(title: str) -> tuple[Artifact, ArtifactStore]:
    """The newest artifact of a node of the profile's lineage."""
    from orchestration.definitions import FACTORY  # reads the profile and fills the lineage: a folder needs neither

    _keep_compiled(FACTORY.profile.storage.compiled)
    return newest_in(FACTORY.store, title), FACTORY.store


def newest_in(store: ArtifactStore, title: str) -> Artifact:
    """The newest artifact of a node. The lineage must have been loaded.

    Raises:
        UnknownNodeError: the lineage has no such node.
        ServeError: nothing of it is published.
    """
    node = node_named(title)
    past = history(store, [node]).get(node)
    if past is None:
        raise ServeError(f"{node} is not published in {store.root}; run `seaway demo` or materialize it, or give a released folder")
    return past.artifact


def _keep_compiled(folder: str) -> None:
    """Workers that are started again read what the first one compiled."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)


def _store_of(address: str) -> ArtifactStore:
    """The store in which an address (root/asset/partition/recipe) lies."""
    return ArtifactStore(address.rstrip("/").rsplit("/", 3)[0])
