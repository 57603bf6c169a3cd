"""Programs that run as gangs, and each way in which one rank can spoil it for all."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from infra.artifacts.config import ProgramConfig, execution_only
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from infra.dispatch.rendezvous import Membership


class GangConfig(ProgramConfig):
    """How far to go together, and what is to go wrong once on the way."""

    steps: int = 6
    saved_every: int = execution_only(2)
    marks: str | None = execution_only(None)  # a folder that remembers what went wrong, and who was there
    fault: str | None = execution_only(None)
    fault_rank: int = execution_only(1)
    fault_step: int = execution_only(3)  # a step of the loop, the first is 0; -1 is before the rendezvous
    once: bool = execution_only(True)
    pace_s: float | None = execution_only(None)  # each rank for itself, a step every so many seconds


class GangStats(Stats):
    total: float


@program(version="1")
def march(config: GangConfig, out: Writer) -> GangStats:
    """Sum the ranks' numbers over TCP, step by step: no rank finishes a step before all have begun it."""
    member = Membership.of_environment()
    _say_who_is_there(config, member)
    _perhaps_go_wrong(config, member, -1)
    meeting = _Meeting()
    if config.fault == "steal_port" and member.rank == 0 and _is_first_time(config):
        member.join(lambda address, size, rank: _connect_too_late(meeting, address, size, rank))
    else:
        member.join(meeting.connect)
    first, total = _resume(out)
    for step in range(first, config.steps):
        _perhaps_go_wrong(config, member, step)
        if config.pace_s is None:
            total = total / 2 + meeting.sum_of(float((member.rank + 1) * (step + 1)))
        else:
            time.sleep(config.pace_s)
        out.progress(step + 1, config.steps, "steps", sum=total)
        _perhaps_save(config, member, out, step + 1, total)
    if member.rank == 0:
        out.write_json("result.json", {"total": total})
    _perhaps_go_wrong(config, member, config.steps)
    return GangStats(total=total)


@program(version="1")
def jax_march(config: GangConfig, out: Writer) -> GangStats:
    """The same sum by `psum` in a gang of `jax.distributed`."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    member = Membership.of_environment()
    _say_who_is_there(config, member)
    _perhaps_go_wrong(config, member, -1)
    member.join(lambda address, size, rank: jax.distributed.initialize(address, size, rank))
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("ranks",))
    split, whole = PartitionSpec("ranks"), PartitionSpec()

    @jax.jit
    def advance(total: jax.Array, own: jax.Array) -> jax.Array:
        add = jax.shard_map(
            lambda total, own: total / 2 + jax.lax.psum(own[0], "ranks"), mesh=mesh, in_specs=(whole, split), out_specs=whole
        )
        return add(total, own)

    first, started = _resume(out)
    total = jax.make_array_from_process_local_data(NamedSharding(mesh, whole), np.float32(started))
    for step in range(first, config.steps):
        _perhaps_go_wrong(config, member, step)
        own = np.full(len(jax.local_devices()), (member.rank + 1) * (step + 1), np.float32)
        total = advance(total, jax.make_array_from_process_local_data(NamedSharding(mesh, split), own))
        value = float(total)
        out.progress(step + 1, config.steps, "steps", sum=value)
        _perhaps_save(config, member, out, step + 1, value)
    if member.rank == 0:
        out.write_json("result.json", {"total": float(total)})
    return GangStats(total=float(total))


def expected_total(config: GangConfig, ranks: int) -> float:
    """What both programs must come to."""
    total = 0.0
    for step in range(config.steps):
        total = total / 2 + sum((rank + 1) * (step + 1) for rank in range(ranks))
    return total


class _Meeting:
    """A tiny collective: rank 0 hears a number from each peer and answers with the sum."""

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self._leads = True

    def connect(self, address: str, size: int, rank: int) -> None:
        host, port = address.rsplit(":", 1)
        self._leads = rank == 0
        if self._leads:
            with socket.create_server((host, int(port))) as server:
                self._streams = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
            return
        while True:  # published before it listens
            try:
                self._streams = [socket.create_connection((host, int(port))).makefile("rw")]
                return
            except ConnectionRefusedError:
                time.sleep(0.02)

    def sum_of(self, own: float) -> float:
        if self._leads:
            own += sum(_heard(stream) for stream in self._streams)
        for stream in self._streams:
            stream.write(f"{own}\n")
            stream.flush()
        return own if self._leads else _heard(self._streams[0])


def _heard(stream: Any) -> float:
    line = stream.readline()
    if not line:
        raise ConnectionResetError("the peer is gone")  # what any library would raise: not a type that Seaway knows
    return float(line)


def _say_who_is_there(config: GangConfig, member: Membership) -> None:
    print(f"pid {os.getpid()} is rank {member.rank}", flush=True)
    if config.marks is not None:
        with (Path(config.marks) / "ranks.txt").open("a") as stream:
            stream.write(f"{member.rank} of {member.size}, {member.local_rank} of {member.local_size}, in {member.directory}\n")


def _resume(out: Writer) -> tuple[int, float]:
    """The newest committed state: the file is renamed into place, whole or not at all."""
    saved = Path(out.scratch_url) / "saved.json"
    if not saved.exists():
        return 0, 0.0
    found = json.loads(saved.read_text())
    print(f"goes on from step {found['step']}", flush=True)
    return found["step"], found["total"]


def _perhaps_save(config: GangConfig, member: Membership, out: Writer, step: int, total: float) -> None:
    if member.rank == 0 and step % config.saved_every == 0:
        folder = Path(out.scratch_url)
        folder.mkdir(parents=True, exist_ok=True)
        if config.fault == "slow_save":
            time.sleep(2.0)
        (folder / "saved.tmp").write_text(json.dumps({"step": step, "total": total}))
        (folder / "saved.tmp").replace(folder / "saved.json")
        out.saved()


def _perhaps_go_wrong(config: GangConfig, member: Membership, step: int) -> None:
    if config.fault not in FAULTS or (member.rank, step) != (config.fault_rank, config.fault_step):
        return
    if not _is_first_time(config):
        return
    print(f"goes wrong: {config.fault}", flush=True)
    FAULTS[config.fault]()


def _is_first_time(config: GangConfig) -> bool:
    """Whether it is still to go wrong."""
    mark = Path(config.marks or "") / "went_wrong"
    if config.once and mark.exists():
        return False
    mark.touch()
    return True


def _connect_too_late(meeting: "_Meeting", address: str, size: int, rank: int) -> None:
    """A stranger binds the port between the pick and the bind."""
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))):
        meeting.connect(address, size, rank)


def _raise() -> None:
    raise KeyError("the program's own mistake")


def spin_for_ever() -> None:
    while True:
        pass


def withdraw_from_the_collective() -> None:
    while True:
        time.sleep(60)


def _die_slowly_after_the_peers_noticed() -> None:
    for descriptor in range(3, 256):
        if _is_socket(descriptor):
            os.close(descriptor)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGSEGV)


def _is_socket(descriptor: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    except OSError:
        return False


def _hoard() -> None:
    hoarded = bytearray(300 * 1024**2)
    hoarded[::4096] = b"x" * len(hoarded[::4096])
    withdraw_from_the_collective()


FAULTS = {
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "spin": spin_for_ever,
    "withdraw": withdraw_from_the_collective,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kill_supervisor": lambda: os.kill(os.getppid(), signal.SIGKILL) or time.sleep(60),
    "abort": os.abort,
    "raise": _raise,
    "die_slowly": _die_slowly_after_the_peers_noticed,
    "leave": lambda: sys.exit(0),
    "hoard": _hoard,
    "slow_start": lambda: time.sleep(4.0),
}
