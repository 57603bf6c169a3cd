"""How many artifacts of one small file a process publishes a second: claim, write, verify, create, read back."""

import time
from datetime import UTC, datetime
from itertools import count
from uuid import uuid4

from infra.artifacts.lease import claim
from infra.artifacts.provenance import Code, Environment, Provenance
from infra.artifacts.store import ArtifactStore
from infra.dispatch.bench.measures import Measure
from infra.dispatch.bench.nothing import job_of

_NOBODY = Environment(user="nobody", host="nowhere", python="3", platform="a benchmark", packages={})


class PublishBench:
    """Artifacts under one root, one after the other."""

    def __init__(self, name: str, store: ArtifactStore) -> None:
        self._store = store
        self._numbers = count()
        self.published = Measure(f"{name}: artifacts published", unit="/s")
        self.found = Measure(f"{name}: artifacts found", unit="/s")

    @property
    def measures(self) -> list[Measure]:
        return [self.published, self.found]

    def once(self, artifacts: int = 20) -> None:
        """Publish and find so many."""
        began_s = time.perf_counter()
        addresses = [self._publish(next(self._numbers)) for _ in range(artifacts)]
        self.published.values.append(artifacts / (time.perf_counter() - began_s))
        began_s = time.perf_counter()
        for address in addresses:
            if self._store.open_at(address) is None:
                raise RuntimeError(f"{address} was published and can't be found")
        self.found.values.append(artifacts / (time.perf_counter() - began_s))

    def _publish(self, number: int) -> str:
        job, uid = job_of(self._store, number), uuid4().hex[:16]
        lease = claim(job.address, uid=uid, after=0)
        out = self._store.writer(job.address, uid)
        out.write_json("numbers.json", [number])
        provenance = Provenance(captured_at=datetime.now(UTC), code=Code(), environment=_NOBODY, config={})
        self._store.publish(job.address, out, recipe=job.recipe, payload=job.payload, stats={}, lease=lease, provenance=provenance)
        return job.address
