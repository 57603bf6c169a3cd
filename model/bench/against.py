"""Our update beside those of other programs, in turn: every round makes one of each, so that foreign load meets all alike.

A peer is a process of its own interpreter (model/bench/peers.py) that waits between its updates. Ours is the step of `measure`.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
from pydantic import BaseModel, ConfigDict

from model.accounting import account_of
from model.bench.peers import CANDIDATES, raise_threads
from model.bench.replicas import warm_replicas
from model.bench.report import Spread
from model.bench.shapes import Shape, Side

ROOT = Path(__file__).parent.parent.parent
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_ARENA_MAX": "1"}
"""As a job on CPUs has it (infra/dispatch/environment.py): without it each update asks the kernel for its memory again."""
PARITY = 0.01  # of the first loss: same tokens, and initial weights of the same distribution, drawn otherwise


class Competitor(BaseModel):
    """One program's update.

    Attributes:
        tokens_per_cpu_s: what a busy machine doesn't stretch, but what hides a core that waits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    parameters: int
    versions: dict[str, str]
    ready_s: float
    first_loss: float
    last_loss: float
    tokens_per_s: Spread
    tokens_per_cpu_s: Spread


class Comparison(BaseModel):
    """All competitors of one run; `ratios` are medians over rounds of ours over theirs, `cpu_ratios` the same per CPU second."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: str
    rounds: int
    real_time: bool
    ours: Competitor
    peers: list[Competitor]
    ratios: dict[str, Spread]
    cpu_ratios: dict[str, Spread]
    absent: dict[str, str]


class Peer:
    """A process that makes one update whenever it is asked.

    Raises:
        RuntimeError: it ended, with the last line it said.
    """

    def __init__(self, python: Path, candidate: str, shape: Shape, real_time: bool) -> None:
        model = shape.model
        sizes = {
            name: getattr(model, name)
            for name in ("vocab_size", "width", "expert_width", "layers", "heads", "experts", "experts_per_token")
        }
        sizes |= {"batch_sequences": shape.batch_sequences, "sequence_tokens": shape.sequence_tokens}
        command = [str(python), "-m", "model.bench.peers", candidate, json.dumps(sizes), *(["--real-time"] if real_time else [])]
        environment = os.environ | MALLOC | {"JAX_PLATFORMS": "cpu"}
        environment.pop("XLA_FLAGS", None)  # ours are not theirs
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process; a pipe that nobody reads would stop it
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        try:
            self.ready = self._answer()
        except RuntimeError:
            self.close()
            raise

    def advance(self) -> dict[str, Any]:
        """One update: its `step_s`, `cpu_s` and `loss`."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read().strip().splitlines()
        raise RuntimeError(said[-1] if said else f"it ended with {code}")

    def close(self) -> None:
        """End the process, if it is still there."""
        self._process.kill()
        with self._said, self._process:  # closes its pipes and waits for it
            pass


def compare(shape: Shape, side: Side, python: Path, rounds: int, real_time: bool, tell: Callable[[str], None]) -> Comparison:
    """Measure our side and every peer that its interpreter has.

    Raises:
        ValueError: a peer trains another model: its parameters or its first loss are not ours.
    """
    tell(f"compiling {side.name}")
    started = time.perf_counter()
    advance, losses = warm_replicas(shape, side)
    ready_s = time.perf_counter() - started
    parameters = account_of(shape.model, shape.sequence_tokens, shape.convention).total_parameters
    seconds: dict[str, list[tuple[float, float]]] = {side.name: []}
    last = {side.name: losses[-1]}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name in CANDIDATES:
            tell(f"starting {name}")
            try:
                peers[name] = Peer(python, name, shape, real_time)
                stack.callback(peers[name].close)
            except RuntimeError as error:
                absent[name] = str(error)
                continue
            _require_parity(name, peers[name].ready, parameters, losses[0])
            seconds[name] = []
        if real_time:
            raise_threads()
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            wall, cpu = time.perf_counter(), time.process_time()
            last[side.name] = advance()
            seconds[side.name].append((time.perf_counter() - wall, time.process_time() - cpu))
            for name, peer in peers.items():
                answer = peer.advance()
                seconds[name].append((answer["step_s"], answer["cpu_s"]))
                last[name] = answer["loss"]
        ready = {name: peer.ready for name, peer in peers.items()}
    ready[side.name] = {"parameters": parameters, "versions": {"jax": jax.__version__}, "ready_s": ready_s, "loss": losses[0]}
    found = {name: _competitor(name, ready[name], last[name], shape.tokens, seconds[name]) for name in seconds}
    ours = seconds[side.name]
    walls, cpus = (
        {
            name: Spread.of([theirs[part] / mine[part] for theirs, mine in zip(seconds[name], ours, strict=True)])
            for name in seconds
            if name != side.name
        }
        for part in (0, 1)
    )
    return Comparison(
        shape=shape.name,
        rounds=rounds,
        real_time=real_time,
        ours=found[side.name],
        peers=[competitor for name, competitor in found.items() if name != side.name],
        ratios=walls,
        cpu_ratios=cpus,
        absent=absent,
    )


def _require_parity(name: str, ready: dict[str, Any], parameters: int, loss: float) -> None:
    if abs(ready["parameters"] / parameters - 1) > 0.01:
        raise ValueError(f"{name} has {ready['parameters']:,} parameters, ours {parameters:,}: they are not one shape")
    if abs(ready["loss"] / loss - 1) > PARITY:
        raise ValueError(f"{name} starts at a loss of {ready['loss']:.4f}, ours at {loss:.4f}: they don't compute the same")


def _competitor(name: str, ready: dict[str, Any], last: float, tokens: int, seconds: list[tuple[float, float]]) -> Competitor:
    return Competitor(
        name=name,
        parameters=ready["parameters"],
        versions=ready["versions"],
        ready_s=ready["ready_s"],
        first_loss=ready["loss"],
        last_loss=last,
        tokens_per_s=Spread.of([tokens / wall for wall, _ in seconds]),
        tokens_per_cpu_s=Spread.of([tokens / cpu for _, cpu in seconds]),
    )


def lines_of(found: Comparison) -> Iterator[str]:
    """A comparison for a person."""
    when = "in the kernel's real-time class" if found.real_time else "at ordinary priority"
    yield f"{found.shape}: one update each in turn, {found.rounds} rounds, {when}"
    yield f"{'':26}{'tokens/s':>10}{'range':>17}{'tokens/CPU s':>14}{'parameters':>12}{'loss':>18}   ours / theirs: seconds, CPU seconds"
    for one in (found.ours, *found.peers):
        rate = one.tokens_per_s
        line = f"{one.name:26}{rate.median:10,.0f}{f'{rate.low:,.0f} to {rate.high:,.0f}':>17}{one.tokens_per_cpu_s.median:14,.0f}"
        line += f"{one.parameters:12,}{f'{one.first_loss:.3f} to {one.last_loss:.3f}':>18}"
        if ratio := found.ratios.get(one.name):
            cpu = found.cpu_ratios[one.name]
            line += f"   {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), {cpu.median:.2f} ({cpu.low:.2f} to {cpu.high:.2f})"
        yield line
        yield f"  {', '.join(f'{name} {version}' for name, version in one.versions.items())}; ready after {one.ready_s:.0f} s"
    yield from (f"{name} is not there: {why}" for name, why in found.absent.items())
    medians = [peer for peer in found.peers if peer.name.startswith("olmoe")]
    if medians:
        best = max(medians, key=lambda peer: peer.tokens_per_s.median)
        yield f"best torch MoE: {best.name}; ours is {found.ratios[best.name].median:.2f} times as fast"
