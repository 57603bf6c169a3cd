"""`python -P -m infra.dispatch.engines.ray.launch SPEC_URL GANG`: the driver of one attempt, a Ray job's entrypoint.

It asks Ray for one placement group, waits until all of it is there, runs each host's supervisor in an actor on it, and
ends all of them when one is lost. It writes nothing: hosts record their own ends, and Ray keeps its exit code.
"""

import logging
import signal
import sys
import time
import traceback
from typing import Any

from infra.dispatch.endings import EXIT_CODES, Ending
from infra.dispatch.engines.ray.host import Host
from infra.dispatch.engines.ray.placement import NODE_LABEL, Gang
from infra.dispatch.engines.ray.words import DRIVER_FAILED, HOST_LOST, HOST_OUT_OF_MEMORY, SUPERVISOR_KILLED

_LOOK_S = 0.5  # between two looks at whether the driver is told to stop
_RESOURCE_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # Ray's own names for what all nodes have
PEERS_S = 20.0  # how long hosts may take to notice by themselves that another one fell
AFTER_SUCCESS_S = 60.0  # how long the others may take once host 0, which publishes, has succeeded
STOP_S = 8.0  # beyond the worker's grace, for a supervisor that was told to stop


class Driver:
    """One gang, from its placement to its last host's end.

    Args:
        ray: the module, connected.
    """

    def __init__(self, ray: Any, spec_url: str, gang: Gang, kill_grace_s: float) -> None:
        self._ray = ray
        self._spec_url = spec_url
        self._gang = gang
        self._stop_s = kill_grace_s + STOP_S
        self._told_to_stop = False
        self._actors: list[Any] = []
        self._running: dict[Any, int] = {}  # a host's stream of output -> the host
        self._codes: dict[int, int] = {}
        self._lost: dict[int, Exception] = {}
        self._rest: dict[int, bytes] = {}  # a host's last line, as long as it is not whole

    def tell_to_stop(self, *_: Any) -> None:
        """A signal handler."""
        self._told_to_stop = True

    def run(self) -> int:
        """Run the gang to its end; give the exit code."""
        group = self._placed()
        if group is None:
            return EXIT_CODES[Ending.PREEMPTED]
        self._start(group)
        deadline_s: float | None = None
        while self._running:
            self._hear()
            now_s = time.monotonic()
            if (patience_s := self._patience_s()) is not None:
                deadline_s = min(deadline_s or now_s + patience_s, now_s + patience_s)
            if deadline_s is not None and now_s >= deadline_s:
                self._stop_all()
                break
        return self._exit_code()

    def _placed(self) -> Any:
        """The placement group once all of it is there, or None if the driver was told to stop before."""
        from ray.util.placement_group import placement_group

        gang = self._gang
        near: dict[str, Any] = {"strategy": gang.strategy}
        if gang.domain_label is not None:
            near = {"topology_strategy": {NODE_LABEL: gang.strategy, gang.domain_label: "STRICT_PACK"}}
        selectors = [gang.labels] * gang.hosts if gang.labels else None
        group = placement_group([gang.bundle] * gang.hosts, bundle_label_selector=selectors, **near)
        _say(f"waiting for {gang.hosts} x {gang.bundle}")
        while not group.wait(_LOOK_S):
            if self._told_to_stop:
                return None
        return group

    def _start(self, group: Any) -> None:
        """One actor a bundle; the supervisors start once every actor is there: all or none."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        asked = {option: self._gang.bundle.get(name) for name, option in _RESOURCE_OPTIONS.items() if name in self._gang.bundle}
        others = {name: amount for name, amount in self._gang.bundle.items() if name not in _RESOURCE_OPTIONS}
        once = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
        actor = self._ray.remote(Host)
        for host in range(self._gang.hosts):
            bundle = PlacementGroupSchedulingStrategy(group, host)
            self._actors.append(actor.options(scheduling_strategy=bundle, resources=others, **asked, **once).remote())
        places = [actor.place.remote() for actor in self._actors]
        while self._ray.wait(places, num_returns=len(places), timeout=_LOOK_S)[1]:
            if self._told_to_stop:
                return
        for host, place in enumerate(self._ray.get(places)):
            _say(f"host {host} is at {place}")
        for host, handle in enumerate(self._actors):
            self._running[handle.run.options(num_returns="streaming").remote(self._spec_url, host)] = host

    def _hear(self) -> None:
        """Take in what the hosts printed, and which of them ended."""
        ready, _ = self._ray.wait(list(self._running), timeout=_LOOK_S)
        for stream in ready:
            host = self._running[stream]
            try:
                told = self._ray.get(next(stream))
            except self._ray.exceptions.RayError as error:
                told = None
                self._lost[host] = error
                _say(f"host {host} is lost: {type(error).__name__}: {' '.join(str(error).split())[:500]}")
            if isinstance(told, bytes):
                self._print(host, told)
                continue
            del self._running[stream]
            if isinstance(told, int):
                self._codes[host] = told
                _say(f"host {host} ended with exit code {told}")

    def _patience_s(self) -> float | None:
        """How long to wait for the hosts that still run; None without end."""
        if self._told_to_stop or self._lost:
            return 0.0
        if any(self._codes.values()):
            return PEERS_S
        return AFTER_SUCCESS_S if 0 in self._codes else None

    def _stop_all(self) -> None:
        """Tell every host that still runs, and wait for what it says; then end its actor, whose death the kernel tells it."""
        still = set(self._running.values())
        for host in still:
            self._actors[host].stop.remote()
        deadline_s = time.monotonic() + self._stop_s
        while self._running and time.monotonic() < deadline_s:
            self._hear()
        for host in self._running.values():
            self._ray.kill(self._actors[host], no_restart=True)

    def _exit_code(self) -> int:
        if self._lost:
            memory = any(isinstance(error, self._ray.exceptions.OutOfMemoryError) for error in self._lost.values())
            return HOST_OUT_OF_MEMORY if memory else HOST_LOST
        if self._codes.get(0) == 0:
            return 0
        if SUPERVISOR_KILLED in self._codes.values():
            return SUPERVISOR_KILLED
        return self._codes.get(0) or next(filter(None, self._codes.values()), EXIT_CODES[Ending.PREEMPTED])

    def _print(self, host: int, chunk: bytes) -> None:
        """Pass whole lines on, with the host's number where there are several."""
        *lines, self._rest[host] = (self._rest.get(host, b"") + chunk).split(b"\n")
        mark = f"[{host}] ".encode() if self._gang.hosts > 1 else b""
        sys.stdout.buffer.write(b"".join(mark + line + b"\n" for line in lines))
        sys.stdout.buffer.flush()


def main(arguments: list[str]) -> int:
    spec_url, gang = arguments
    try:
        import ray
    except ImportError:
        _say("this cluster's image has no Ray beside Seaway; build it with pip install 'seaway[ray]'")
        return EXIT_CODES[Ending.INVALID_CONFIG]
    from infra.dispatch.job import read_spec

    try:
        grace_s = read_spec(spec_url).job.timeouts.kill_grace_s
        ray.init(address="auto", log_to_driver=False, logging_level=logging.WARNING)
        driver = Driver(ray, spec_url, Gang.model_validate_json(gang), grace_s)
        signal.signal(signal.SIGTERM, driver.tell_to_stop)  # after ray.init, which brings its own handler
        return driver.run()
    except Exception:
        traceback.print_exc()
        return DRIVER_FAILED


def _say(text: str) -> None:
    print(f"driver: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
