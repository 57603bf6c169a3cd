"""The factory resource: a profile, its store and its dispatcher, behind the three verbs an asset needs."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from assets.profile import Profile
from assets.resolve import Located, Node, Resolved, Resolver
from assets.snapshots import take_snapshot
from infra.artifacts.artifact import Artifact
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import Backend
from infra.dispatch.dispatcher import Dispatcher, Outcome
from infra.dispatch.engines.choice import connect
from infra.dispatch.job import Job
from infra.dispatch.messages import Message

Listener = Callable[[Job, Message], None]


class Factory:
    """Resolves, runs and cancels the jobs of one profile. Opens nothing before it is first used.

    It looks at the outside world once and remembers what is published: one Factory is for one process that runs
    some jobs and ends, as Dagster's run workers and the commands of `seaway` do. Others call `forget`.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.listeners: list[Listener] = []
        self.signed: set[str] = set()  # Dagster's runs that this process wrote itself on
        self.running: Job | None = None  # until its artifact is there: after an interrupt, what may still be running

    @cached_property
    def store(self) -> ArtifactStore:
        return ArtifactStore(self.profile.storage.root)

    @cached_property
    def backend(self) -> Backend:
        return connect(self.profile.backend, Path(self.profile.storage.state))

    def dispatcher_of(self, asset: str, store: ArtifactStore | None = None) -> Dispatcher:
        """The dispatcher of an asset's jobs, with the asset's budgets; into another store if one is given."""
        return Dispatcher(store or self.store, self.backend, self.profile.budgets_of(asset))

    @cached_property
    def resolver(self) -> Resolver:
        return Resolver(self.profile, self.store)

    def take_snapshot(self, source: str, instant: str) -> None:
        """Ask for a live source anew; from now on the lineage means this snapshot of it."""
        take_snapshot(self.profile.storage.root, source, instant)
        self.forget()

    def forget(self) -> None:
        """Look at storage and at the outside world afresh."""
        self.__dict__.pop("resolver", None)

    def resolve(self, asset: str, partition: str | None) -> Resolved:
        return self.resolver.resolve(Node(asset, partition))

    def job(self, resolved: Resolved) -> Job:
        """The job that builds a resolved node: program, config, input addresses, resources."""
        return Job(
            asset=resolved.node.asset,
            partition=resolved.node.partition,
            program=resolved.stage.program,
            version=resolved.stage.version,
            config=resolved.config.model_dump(mode="json"),
            inputs={name: addresses(found) for name, found in resolved.inputs.items()},
            recipe=resolved.recipe,
            payload=resolved.payload,
            address=self.store.address(resolved.node.asset, resolved.node.partition, resolved.recipe),
            resources=self.profile.resources_of(resolved.node.asset, resolved.stage.pool),
            timeouts=self.profile.timeouts_of(resolved.node.asset),
        )

    def run(self, job: Job, on_message: Callable[[Message], None]) -> Outcome:
        """Find the job's artifact or have it built; listeners hear what the job says too."""

        def hear(message: Message) -> None:
            on_message(message)
            for listener in self.listeners:
                listener(job, message)

        self.running = job
        try:
            outcome = self.dispatcher_of(job.asset).run(job, on_message=hear)
        except Exception:  # interrupts are no Exception: after one, the job may still be running
            self.running = None
            raise
        self.running = None
        return outcome

    def cancel(self, job: Job) -> None:
        """End what runs of the job, and return once its end is confirmed."""
        self.dispatcher_of(job.asset).cancel(job)


def addresses(found: Located) -> str | dict[str, str]:
    """Where an input lies: one address, or one per partition key."""
    return found.url if isinstance(found, Artifact) else {key: item.url for key, item in found.items()}


def how_to_materialize(missing: list[Node]) -> str:
    """What to type for the first of some nodes that are not published."""
    node = missing[0]
    partition = f" --partition {node.partition}" if node.partition else ""
    which = "it" if len(missing) == 1 else "them"
    return f"materialize {which} first: dg launch --assets {node.asset}{partition}"
