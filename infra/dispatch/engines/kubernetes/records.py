"""What storage keeps of an attempt on a cluster, for when its objects are gone.

{attempt directory}/pods/00000.json    that a pod ran as host 0; such an attempt never starts again
                    engine.json        why this engine ended it, written before its JobSet was deleted
                    hosts/, fallen.json, saved.json    see `infra.dispatch.gang`
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from infra.dispatch import gang
from infra.dispatch.endings import End, Ending
from infra.storage.objects import create_exclusive, list_names, read_or_none

_STARTED_FOLDER = "pods"


@dataclass(frozen=True)
class Records:
    """Of one attempt with `hosts` hosts."""

    directory: str
    hosts: int

    @classmethod
    def beside(cls, spec_url: str, hosts: int) -> "Records":
        return cls(directory_of(spec_url), hosts)

    def has_started(self) -> bool:
        """Whether any pod ever ran for the attempt."""
        return bool(list_names(f"{self.directory}/{_STARTED_FOLDER}"))

    def note_word(self, word: End) -> None:
        """Keep why the engine ends the attempt. The first word stays."""
        create_exclusive(self._word_url, word.model_dump_json().encode())

    def word(self) -> End | None:
        stored = read_or_none(self._word_url)
        return None if stored is None else End.model_validate_json(stored)

    def end(self, by_exit_code: Mapping[int, End], word: End | None) -> End:
        """The end of the attempt, of which no process is left.

        Args:
            by_exit_code: hosts whose supervisors' exit codes the cluster knows; their records say more where there are any.
            word: the cluster's own reason, if it has one. What was noted before stands.
        """
        recorded, fallen = gang.read_ends(self.directory, self.hosts), gang.read_fallen(self.directory)
        ends, fallen = without_echoes(recorded, by_exit_code, fallen, self.hosts)
        word = self.word() or word
        if word is None and not ends and self.has_started():
            word = End(ending=Ending.NODE_LOST, what="its pods were deleted while they ran, and no host left a record")
        end = gang.gang_end(ends, self.hosts, fallen, word)
        return end.model_copy(update={"saved": end.saved or int(gang.has_saved(self.directory))})

    @property
    def _word_url(self) -> str:
        return f"{self.directory}/engine.json"


def without_echoes(
    recorded: Mapping[int, End], by_exit_code: Mapping[int, End], fallen: gang.Fallen | None, hosts: int
) -> tuple[dict[int, End], gang.Fallen | None]:
    """The hosts' ends, where a Job's answer to a failure is no preemption: once a pod has failed it ends all the others.

    So who was told to stop after another fell, and who had no time for a record after a pod failed by itself, is a peer.
    """
    unrecorded = {host for host, end in by_exit_code.items() if end.ending is not Ending.SUCCEEDED} - recorded.keys()
    if unrecorded:
        peer = End(ending=Ending.PEER_LOST, what=f"its pod was ended because host {min(unrecorded)} had failed")
        ends = {**dict.fromkeys(range(hosts), peer), **by_exit_code, **_told_to_stop_as_peers(recorded, unrecorded)}
        return ends, None if fallen is not None and fallen.end.ending is Ending.PREEMPTED else fallen
    ends = {**by_exit_code, **recorded}
    if fallen is None or fallen.end.ending is Ending.PREEMPTED:
        return ends, fallen
    return _told_to_stop_as_peers(ends, {fallen.host}), fallen


def _told_to_stop_as_peers(ends: Mapping[int, End], first: set[int]) -> dict[int, End]:
    told = {host for host, end in ends.items() if end.ending is Ending.PREEMPTED and host not in first}
    return {host: end.model_copy(update={"ending": Ending.PEER_LOST}) if host in told else end for host, end in ends.items()}


def directory_of(spec_url: str) -> str:
    """The attempt's directory, in which its spec lies."""
    return spec_url.rpartition("/")[0]


def claim_host(directory: str, host: int, pod: str) -> bool:
    """Whether pod `pod` is the first to be host `host` of the attempt."""
    return create_exclusive(f"{directory}/{_STARTED_FOLDER}/{host:05d}.json", json.dumps({"pod": pod}).encode())
