"""The two primitives that carry every data stage, on the engine that the configuration names.

    flow = Dataflow(out, config.execution)
    labelled = flow.map("label", shards, Label(config), Output(SCHEMA))
    flow.publish(labelled)

`map` does each shard by itself; `by_key` first brings all rows of a key into one bucket, sorted, and then does each bucket.
The functions are the same on every engine and so are the bytes: *embedded* (pyarrow, DuckDB, processes of this machine) and
*ray* (Ray Data). Every finished shard is committed at once; whatever dies, the next attempt goes on with the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from infra.artifacts.writer import Writer
from ops.dataflow.budget import Budget
from ops.dataflow.commits import Commit, Ledger
from ops.dataflow.config import Execution
from ops.dataflow.errors import Poison, PoisonedShardsError
from ops.dataflow.exchange import exchange
from ops.dataflow.keyed import Keyed, Ordered
from ops.dataflow.shard import Piece, Shard, StageFunction, Tally, plan_key
from ops.dataflow.work import Order, Output
from ops.dataflow.workers import work_here, work_in_processes

Results = Iterable[Commit | Poison]


@dataclass(frozen=True)
class Done:
    """A stage whose shards are all committed, by index."""

    ledger: Ledger
    commits: tuple[Commit, ...]

    @property
    def tally(self) -> Tally:
        """What all shards counted."""
        total = Tally()
        for commit in self.commits:
            total.update(commit.tally)
        return total

    @property
    def rows(self) -> int:
        return sum(commit.rows for commit in self.commits)

    def pieces(self, columns: tuple[str, ...] | None = None) -> tuple[Piece, ...]:
        """The files written, as input of a next stage."""
        return tuple(self.ledger.piece(commit, columns) for commit in self.commits)

    def asides(self, columns: tuple[str, ...] | None = None) -> tuple[Piece, ...]:
        """The files of the rows set aside (`Output.aside`)."""
        return tuple(Piece(self.ledger.aside_url(commit), columns) for commit in self.commits if commit.aside is not None)


@dataclass
class Dataflow:
    """Runs the stages of one program.

    Args:
        total, unit: of what progress is told; rows count as read.
    """

    out: Writer
    execution: Execution
    total: int | None = None
    unit: str = "documents"
    _read: int = field(default=0, init=False)

    def map(self, stage: str, shards: Sequence[Shard], function: StageFunction, output: Output, *, judges_rows: bool = True) -> Done:
        """Do every shard by itself.

        Args:
            stage: names it among the stages of this program.
            judges_rows: `function` looks at one row at a time, so that a poisoned one can be found.

        Raises:
            PoisonedShardsError: names the shards that can't be done; all others are committed.
        """
        ledger = Ledger(f"{self.out.scratch_url}/dataflow/{stage}-{plan_key(*shards, output.group_rows)}")
        order = Order(stage, ledger, function, output, self.execution.memory_bytes, judges_rows)
        return self._done(order, shards, lambda left: self._work(order, left))

    def by_key(
        self,
        stage: str,
        sources: Sequence[Shard],
        emit: StageFunction,
        keyed: Keyed,
        buckets: Sequence[str],
        function: StageFunction,
        output: Output,
    ) -> Done:
        """Bring all rows of a key into one bucket, then do every bucket.

        Args:
            emit: gives the rows of `keyed` for each source; cheap, or a `map` before it: it is done again after a loss.
            buckets: names of the output files; row by row, bucket = key modulo their number.
            function: gets the rows of one bucket, sorted by key and order; also of one without rows.

        Raises:
            PoisonedShardsError: names the sources, or else the buckets, that can't be done.
            AmbiguousOrderError: (inside it) rows that key and order don't tell apart.
        """
        shards = tuple(Shard(name, index) for index, name in enumerate(buckets))
        ledger = Ledger(f"{self.out.scratch_url}/dataflow/{stage}-{plan_key(*sources, *buckets, output.group_rows)}")
        order = Order(stage, ledger, Ordered(function, keyed), output, self.execution.memory_bytes, judges_rows=False)
        return self._done(order, shards, lambda left: self._exchange(order, sources, emit, keyed, len(buckets), left))

    def publish(self, done: Done) -> None:
        """Make the files of a stage files of the artifact."""
        for commit in done.commits:
            self.out.adopt(done.ledger.file_url(commit), commit.file.model_copy(update={"name": commit.name}))

    def beat(self, rows: int) -> None:
        self._read += rows
        self.out.progress(self._read, self.total, self.unit)

    def _done(self, order: Order, shards: Sequence[Shard], run: Callable[[Sequence[Shard]], Results]) -> Done:
        """Do what no earlier attempt has committed."""
        commits = order.ledger.committed()
        poisons = []
        left = [shard for shard in shards if shard.index not in commits]
        for result in run(left) if left else ():
            if isinstance(result, Poison):
                poisons.append(result)
            else:
                commits[result.index] = result
                self.out.saved()
        if poisons:
            raise PoisonedShardsError(order.stage, sorted(poisons, key=lambda poison: poison.shard), len(shards))
        return Done(order.ledger, tuple(commits[shard.index] for shard in shards))

    def _work(self, order: Order, shards: Sequence[Shard]) -> Results:
        execution = self.execution
        if execution.engine == "ray":
            from ops.dataflow import on_ray  # Ray is an extra

            return on_ray.work(order, shards, execution, self.beat)
        if execution.workers == 1:
            return work_here(order, shards, self.beat)
        return work_in_processes(order, shards, execution.workers, execution.memory_bytes, self.beat)

    def _exchange(
        self, order: Order, sources: Sequence[Shard], emit: StageFunction, keyed: Keyed, buckets: int, shards: Sequence[Shard]
    ) -> Iterator[Commit | Poison]:
        if self.execution.engine == "ray":
            from ops.dataflow import on_ray

            yield from on_ray.exchange(order, sources, emit, keyed, buckets, shards, self.execution, self.beat)
            return
        with self.out.scratch_folder() as folder:
            wanted = [shard.index for shard in shards]
            budget = Budget.of(self.execution.memory_bytes)
            pieces = exchange(folder, sources, emit, keyed, buckets, wanted, budget, self.execution.workers, self.beat)
            if isinstance(pieces, list):
                raise PoisonedShardsError(order.stage, pieces, len(sources))
            filled = [Shard(shard.name, shard.index, (pieces[shard.index],) if shard.index in pieces else ()) for shard in shards]
            yield from self._work(order, filled)
