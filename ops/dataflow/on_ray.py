"""The distributed engine: Ray Data hands out shards, and shuffles.

Ray does a task again when its node or worker is lost, and makes lost blocks anew from what they were made of. Stateless
tasks alone can do that: so the shuffle is SHUFFLE_V2 (its predecessor kept rows in actors, which a lost node took along).
Nothing is believed without a count: every source tells every bucket how many rows it sent, and a bucket that got others is refused.
"""

import contextlib
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from infra.dispatch.environment import SOURCES
from ops.dataflow.budget import Budget, capped_memory
from ops.dataflow.commits import Commit
from ops.dataflow.config import Execution
from ops.dataflow.errors import IncompleteBucketError, Poison, PoisonedShardsError, WorkersLostError
from ops.dataflow.keyed import BUCKET, Keyed
from ops.dataflow.read import read_pieces, slices
from ops.dataflow.shard import Shard, StageFunction, Tally
from ops.dataflow.work import Beat, Order, Watch, work_on
from ops.dataflow.work import work as work_shard
from ops.dataflow.workers import LOSSES, THREAD_VARIABLES
from ops.shards import ROWS_PER_BATCH

SOURCE, SENT = "_source", "_sent"  # who sent a row; in a source's last word to a bucket: how many
RESULT = "result"
INDEX = "item"  # what `ray.data.from_items` calls its column


def work(order: Order, shards: Sequence[Shard], execution: Execution, beat: Beat) -> Iterator[Commit | Poison]:
    """Do the shards on the cluster, and tell of each as it is done."""
    with _connected(execution, max_errored_blocks=-1) as ray:  # a shard that ends its workers is named here, and the others go on
        tasks = ray.data.from_items(list(range(len(shards))), override_num_blocks=len(shards))
        results = tasks.map_batches(
            _Work(order, tuple(shards)), batch_size=1, batch_format="pyarrow", **_resources(execution), concurrency=execution.workers
        )
        silent = {shard.index: shard for shard in shards}
        for result in _told(results):
            beat(result.rows if isinstance(result, Commit) else 0)
            if isinstance(result, Commit):
                del silent[result.index]
            else:
                silent = {index: shard for index, shard in silent.items() if shard.name != result.shard}
            yield result
        for shard in silent.values():
            yield Poison(
                shard.name, None, (), f"{LOSSES} workers of {execution.memory_bytes >> 20} MiB were lost on it; Ray's log says how"
            )


def exchange(
    order: Order,
    sources: Sequence[Shard],
    emit: StageFunction,
    keyed: Keyed,
    buckets: int,
    wanted: Sequence[Shard],
    execution: Execution,
    beat: Beat,
) -> Iterator[Commit | Poison]:
    """Shuffle, and do the wanted buckets.

    Raises:
        PoisonedShardsError: a source could not be read.
        IncompleteBucketError: rows were lost or doubled on the way.
    """
    if not sources:
        yield from work(order, wanted, execution, beat)
        return
    send = _Send(order, tuple(sources), emit, keyed, buckets, tuple(shard.index for shard in wanted))
    receive = _Receive(order, len(sources), keyed, tuple(wanted))
    with _connected(execution, max_errored_blocks=0) as ray:  # without one source no bucket is whole
        tasks = ray.data.from_items(list(range(len(sources))), override_num_blocks=len(sources))
        rows = tasks.map_batches(send, batch_size=1, batch_format="pyarrow", **_resources(execution), concurrency=execution.workers)
        blocks = rows.repartition(len(wanted), keys=[BUCKET])
        results = blocks.map_batches(receive, batch_size=None, batch_format="pyarrow", **_resources(execution))
        missing = {shard.name for shard in wanted}
        for result in _told(results):
            beat(result.rows if isinstance(result, Commit) else 0)
            missing.discard(result.name if isinstance(result, Commit) else result.shard)
            yield result
        if missing:
            raise IncompleteBucketError(f"{order.stage}: the shuffle brought nothing for {sorted(missing)[:8]}; run again")


@dataclass(frozen=True)
class _Work:
    """Does the shards whose indices come."""

    order: Order
    shards: tuple[Shard, ...]

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        for index in batch[INDEX].to_pylist():
            with capped_memory(self.order.memory_bytes):
                yield _result(work_shard(self.order, self.shards[index], _unheard))


@dataclass(frozen=True)
class _Send:
    """Reads the sources whose indices come; yields their rows with the bucket of each, and a count for every bucket."""

    order: Order
    sources: tuple[Shard, ...]
    emit: StageFunction
    keyed: Keyed
    buckets: int
    wanted: tuple[int, ...]

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        for index in batch[INDEX].to_pylist():
            yield from self._rows(index, self.sources[index])

    def _rows(self, index: int, source: Shard) -> Iterator[pa.Table]:
        sent = np.zeros(self.buckets, np.int64)
        watch = Watch(_unheard)
        read = read_pieces(source.pieces, Budget.of(self.order.memory_bytes).batch_bytes, ROWS_PER_BATCH)
        try:
            for batch in self.emit(source, watch.over(read), Tally()):
                places = self.keyed.buckets_of(batch, self.buckets)
                chosen = np.isin(places, np.array(self.wanted))
                sent += np.bincount(places[chosen], minlength=self.buckets)
                yield self._addressed(batch, places, index).filter(pa.array(chosen))
        except OSError:
            raise
        except Exception as error:
            raise PoisonedShardsError(self.order.stage, [watch.poison(source, error, None)], len(self.sources)) from None
        yield self._counts(index, sent[list(self.wanted)])

    def _addressed(self, batch: pa.RecordBatch, places: NDArray[np.int32], index: int) -> pa.Table:
        rows = batch.num_rows
        address = [pa.array(places), pa.repeat(pa.scalar(index, pa.int32()), rows), pa.nulls(rows, pa.int64())]
        return pa.Table.from_arrays([*address, *batch.columns], schema=_addressed_schema(self.keyed))

    def _counts(self, index: int, counts: NDArray[np.int64]) -> pa.Table:
        rows = len(counts)
        address = [pa.array(self.wanted, pa.int32()), pa.repeat(pa.scalar(index, pa.int32()), rows), pa.array(counts)]
        nothing = [pa.nulls(rows, field.type) for field in self.keyed.schema]
        return pa.Table.from_arrays([*address, *nothing], schema=_addressed_schema(self.keyed))


@dataclass(frozen=True)
class _Receive:
    """Does the buckets of a block, each of which must be whole."""

    order: Order
    sources: int
    keyed: Keyed
    wanted: tuple[Shard, ...]

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        shards = {shard.index: shard for shard in self.wanted}
        for bucket in pc.unique(block[BUCKET]).to_pylist():
            shard = shards[bucket]
            rows = self._whole(shard, block.filter(pc.equal(block[BUCKET], bucket)))
            with capped_memory(self.order.memory_bytes):
                yield _result(work_on(self.order, shard, partial(self._sorted, rows), _unheard))

    def _whole(self, shard: Shard, rows: pa.Table) -> pa.Table:
        """The rows without the counts, which must agree.

        Raises:
            IncompleteBucketError: they don't.
        """
        is_row = pc.is_null(rows[SENT])
        counts, rows = rows.filter(pc.invert(is_row)), rows.filter(is_row)
        sent = dict(zip(counts[SOURCE].to_pylist(), counts[SENT].to_pylist(), strict=True))
        came = np.bincount(rows[SOURCE].to_numpy(), minlength=self.sources)
        if counts.num_rows != self.sources or any(sent.get(source) != rows for source, rows in enumerate(came.tolist())):
            raise IncompleteBucketError(
                f"{self.order.stage}: {shard.name} got {rows.num_rows} rows and {counts.num_rows} counts of {sum(sent.values())} rows "
                f"that {self.sources} sources sent; a node was lost in a way that Ray did not repair: run again"
            )
        return rows.select(self.keyed.schema.names)

    def _sorted(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        batch_bytes = Budget.of(self.order.memory_bytes).batch_bytes
        rows = rows.sort_by([(name, "ascending") for name in self.keyed.sorting])
        for batch in rows.to_batches(max_chunksize=self.order.output.batch_rows):
            yield from slices(batch, batch_bytes)


def _addressed_schema(keyed: Keyed) -> pa.Schema:
    return pa.schema([(BUCKET, pa.int32()), (SOURCE, pa.int32()), (SENT, pa.int64()), *keyed.schema])


def _result(result: Commit | Poison) -> pa.Table:
    """What became of a shard, as a row."""
    return pa.table({RESULT: [pickle.dumps(result)]})


def _told(results: Any) -> Iterator[Commit | Poison]:
    import ray

    try:
        for row in results.iter_rows():
            yield pickle.loads(row[RESULT])
    except ray.exceptions.RayError as error:
        for cause in _causes(error):
            if isinstance(cause, PoisonedShardsError | IncompleteBucketError | OSError):
                raise cause from None
        raise WorkersLostError(f"Ray gave up: {' '.join(str(error).split())[:500]}") from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = getattr(found, "cause", None) or found.__cause__


def _resources(execution: Execution) -> dict[str, Any]:
    variables = {**dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(SOURCES), *_python_path()]))}
    return {"num_cpus": 1, "memory": execution.memory_bytes, "max_retries": LOSSES - 1, "runtime_env": {"env_vars": variables}}


def _python_path() -> list[str]:
    return list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


@contextlib.contextmanager
def _connected(execution: Execution, max_errored_blocks: int) -> Iterator[Any]:
    """Ray, for as long as the block lasts, and Ray Data as its tasks need it."""
    import ray
    from ray.data.context import DataContext, ShuffleStrategy

    own = not ray.is_initialized()
    if own:
        ray.init(address=execution.ray_address, log_to_driver=False)
    context = DataContext.get_current().copy()
    context.shuffle_strategy = ShuffleStrategy.SHUFFLE_V2
    context.enable_progress_bars = False
    context.max_errored_blocks = max_errored_blocks
    try:
        with DataContext.current(context):
            yield ray
    finally:
        if own:
            ray.shutdown()


def _unheard(rows: int) -> None:
    """On a cluster a shard is told of when it is done."""
