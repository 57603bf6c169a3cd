"""Running a job in its own process: open the inputs, run the program, publish. Of a gang, rank 0 alone publishes and speaks."""

import logging
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

from pydantic import ValidationError

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.config import ProgramConfig
from infra.artifacts.lease import Lease, attempts
from infra.artifacts.program import Program, load_program
from infra.artifacts.provenance import capture
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import SCRATCH_FOLDER, ArtifactStore
from infra.artifacts.writer import DiscardingWriter
from infra.dispatch.endings import EXIT_CODES, Ending
from infra.dispatch.environment import SHARED_PROGRAMS_VARIABLE
from infra.dispatch.explanation import InvalidJobError, explain
from infra.dispatch.gang import mark_saved
from infra.dispatch.job import Job, Spec, read_spec
from infra.dispatch.messages import MessageWriter, messages_url
from infra.dispatch.progress import Reporter
from infra.dispatch.rendezvous import Membership
from infra.supervise.pulse import Pulse


def execute(spec_url: str, pulse: Pulse) -> int:
    """Run one attempt; give the exit code. Whatever goes wrong is told to the supervisor and printed to the log."""
    membership = Membership.of_environment()
    try:
        spec = read_spec(spec_url)
        run_attempt(spec, pulse) if membership.rank == 0 else follow_attempt(spec, pulse, membership)
    except SystemExit:
        raise  # the program's own word, as far as the contract of exit codes goes
    except BaseException as error:
        traceback.print_exc()
        failure = explain(error, ranks=membership.size)
        pulse.fail(failure)
        return EXIT_CODES[Ending(failure.ending)]
    return 0


def run_attempt(spec: Spec, pulse: Pulse) -> Artifact:
    """Build and publish the artifact of a job, or find that it is published."""
    store = ArtifactStore(root_of(spec.job.address))
    published = store.open_at(spec.job.address)
    if published is not None:
        return published
    messages = MessageWriter(messages_url(spec.directory))
    _log_to_stderr()
    logging.getLogger().addHandler(_ToMessages(messages))
    try:
        artifact = _build(spec, store, Reporter(pulse.beat, messages.report), pulse)
    except BaseException as error:
        messages.close(error)
        raise
    messages.close()
    return artifact


def follow_attempt(spec: Spec, pulse: Pulse, membership: Membership) -> None:
    """Run the program as a rank that publishes nothing: what it writes is discarded, what it reports is a heartbeat."""
    if ArtifactStore(root_of(spec.job.address)).open_at(spec.job.address) is not None:
        return
    _log_to_stderr()
    program, config, inputs = _prepared(spec.job)
    scratch_url = f"{spec.job.address}/{SCRATCH_FOLDER}"
    own_url = f"{scratch_url}/rank-{membership.rank:05d}"  # not in the attempt's folder: rank 0 may be clearing that
    out = DiscardingWriter(own_url, scratch_url=scratch_url, progress=Reporter(pulse.beat, lambda report: None), saved=pulse.saved)
    with _shared_programs():
        program(config, **inputs, out=out)


def _build(spec: Spec, store: ArtifactStore, progress: Reporter, pulse: Pulse) -> Artifact:
    job = spec.job
    lease = Lease.reopen(job.address, spec.number, spec.uid)
    program, config, inputs = _prepared(job)

    def saved() -> None:
        mark_saved(spec.directory)
        pulse.saved()

    store.clear(job.address, spec.uid)
    out = store.writer(job.address, spec.uid, progress, saved)
    with _shared_programs(), ThreadPoolExecutor(1) as beside:  # asking git and the host takes 0.2 s that the program needn't wait for
        known_at_start = beside.submit(capture, config)  # and nothing of storage: weeks of work must not hang on a read at their start
        stats = program(config, **inputs, out=out)
    progress.finish()
    provenance = known_at_start.result().model_copy(update={"attempts": tuple(attempts(job.address))})
    return store.publish(job.address, out, recipe=job.recipe, payload=job.payload, stats=stats, lease=lease, provenance=provenance)


def _shared_programs() -> AbstractContextManager[None]:
    """What XLA compiled elsewhere is here while the program runs, and what it compiles goes there afterwards."""
    if SHARED_PROGRAMS_VARIABLE not in os.environ:
        return nullcontext()
    from infra.caches.compilation import shared_programs  # few jobs need it

    return shared_programs(os.environ)


def _prepared(job: Job) -> tuple[Program, ProgramConfig, dict[str, Artifact | Artifacts]]:
    program = load(job)
    config = config_of(program, job)
    inputs = {name: open_input(name, found) for name, found in job.inputs.items()}
    _require_recipe(job, config, inputs)
    return program, config, inputs


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def load(job: Job) -> Program:
    """Import the job's program.

    Raises:
        InvalidJobError: there is no such program, or this process has another version of it than the dispatcher.
    """
    module, _, name = job.program.partition(":")
    try:
        program = load_program(job.program)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the program exists and misses something itself
        raise InvalidJobError(f"{job.title}: there is no module {module}; correct the asset's program") from error
    except (AttributeError, TypeError) as error:
        raise InvalidJobError(f"{job.title}: {module} has no program {name!r} ({error}); correct the asset's program") from error
    if program.version != job.version:
        raise InvalidJobError(
            f"{job.title}: planned for {job.program} version {job.version}, the worker has {program.version}; give both the same code"
        )
    return program


def config_of(program: Program, job: Job) -> ProgramConfig:
    """The job's config as the program's type.

    Raises:
        InvalidJobError: names each wrong field.
    """
    try:
        return program.config_type.model_validate(job.config)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'config'}: {item['msg']}" for item in error.errors())
        raise InvalidJobError(f"{job.title}: the config of {program.name} is invalid: {wrong}") from error


def open_input(name: str, found: str | dict[str, str]) -> Artifact | Artifacts:
    """Open what an input names; by partition, sorted by key, if it names several.

    Raises:
        InvalidJobError: an artifact is not there.
    """
    if isinstance(found, dict):
        return {key: _open(f"{name}[{key}]", url) for key, url in sorted(found.items())}
    return _open(name, found)


def root_of(address: str) -> str:
    """The store's root: an address ends in asset, partition and recipe."""
    return address.rsplit("/", 3)[0]


def _open(name: str, url: str) -> Artifact:
    artifact = ArtifactStore(root_of(url)).open_at(url)
    if artifact is None:
        raise InvalidJobError(f"input {name}: nothing is published at {url}; was the store cleaned? build that asset first")
    return artifact


def _require_recipe(job: Job, config: ProgramConfig, inputs: dict[str, Artifact | Artifacts]) -> None:
    """The recipe must say what is about to be done; otherwise a wrong artifact would be found under a right name."""
    digests = {
        name: found.digest if isinstance(found, Artifact) else {key: item.digest for key, item in found.items()}
        for name, found in inputs.items()
    }
    actual = payload_of(job.payload["program"], job.version, config, digests)
    if recipe_of(actual) != job.recipe:
        differing = [key for key in actual if actual[key] != job.payload.get(key)]
        raise InvalidJobError(f"{job.title}: recipe {job.recipe} was made from other {' and '.join(differing)}; plan the job again")


class _ToMessages(logging.Handler):
    """Sends what a program logs to whoever follows the job."""

    def __init__(self, messages: MessageWriter) -> None:
        super().__init__(logging.INFO)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.log(record.getMessage(), record.levelname)
