"""Hello jobs: proof that an engine places, runs and publishes on each device that a profile names."""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from assets.factory import Factory
from assets.lineage import STAGES
from assets.profile import Profile
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher, Interruption
from infra.dispatch.engines.choice import refusal
from infra.dispatch.job import Job, Resources
from infra.dispatch.outcome import JobCancelled
from infra.storage.objects import remove_tree
from ops.hello import HelloConfig

BUDGETS = Budgets(infrastructure=3, never_started_in_a_row=3)  # enough for one preemption, too few to hide an engine that loses everything


@dataclass(frozen=True)
class Target:
    """One device of a profile, with the resources of the first asset that asks for it."""

    resources: Resources
    assets: tuple[str, ...]


def targets_of(profile: Profile) -> dict[str, Target]:
    """Every device target that some asset of the lineage asks for, by name."""
    found: dict[str, Target] = {}
    for key, stage in sorted(STAGES.items()):
        resources = profile.resources_of(key, stage.pool)
        known = found.get(resources.device)
        found[resources.device] = Target(known.resources if known else resources, (*(known.assets if known else ()), key))
    return found


def say_hello(factory: Factory, wait_s: float) -> dict[str, Callable[[], str]]:
    """Send a job to every device target at once; by device, what to call for how it went. Nothing is left behind.

    The calls raise:
        JobFailed, JobRejected, StorageError: what is wrong, and what to do.
        TimeoutError: it did not end within `wait_s` seconds, and was cancelled.
    """
    root = f"{factory.profile.storage.root}/.doctor-{uuid.uuid4().hex}"
    store = ArtifactStore(root)
    targets = targets_of(factory.profile)
    with ThreadPoolExecutor(len(targets)) as pool:
        sent = {name: pool.submit(_hello, factory, store, name, target, wait_s) for name, target in targets.items()}
    remove_tree(root)
    return {name: future.result for name, future in sent.items()}


def _hello(factory: Factory, store: ArtifactStore, device: str, target: Target, wait_s: float) -> str:
    if why := refusal(factory.profile.backend, target.resources):
        raise ValueError(why)
    job = _job(store, device, target.resources)
    deadline = time.monotonic() + wait_s

    def interruption() -> Interruption:
        return "cancel" if time.monotonic() > deadline else None

    dispatcher = Dispatcher(store, factory.backend, BUDGETS, patience_s=wait_s)
    started = time.monotonic()
    try:
        outcome = dispatcher.run(job, interruption=interruption)
    except JobCancelled as cancelled:
        raise TimeoutError(
            f"accepted, but not done after {wait_s:.0f} s and cancelled; look at the engine's queue for {device}, band "
            f"{target.resources.band}, and give it longer with --wait-s" + ("" if cancelled.confirmed else f"; {cancelled}")
        ) from None
    except EngineUnavailable as error:
        raise TimeoutError(f"the engine stayed away for {wait_s:.0f} s: {error}") from None
    store.verify(outcome.artifact)
    whose = ", ".join(target.assets) if len(target.assets) <= 4 else f"{len(target.assets)} assets"
    return f"published and verified in {time.monotonic() - started:.1f} s, for {whose}"


def _job(store: ArtifactStore, device: str, resources: Resources) -> Job:
    config = HelloConfig(greeting=f"hello {uuid.uuid4().hex}")
    payload = payload_of("hello", "1", config, {})
    recipe = recipe_of(payload)
    return Job(
        asset="hello",
        partition=device,
        program="ops.hello:hello",
        version="1",
        config=config.model_dump(),
        inputs={},
        recipe=recipe,
        payload=payload,
        address=store.address("hello", device, recipe),
        resources=resources,
    )
