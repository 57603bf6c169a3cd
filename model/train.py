"""Train a model from scratch: the ladder's cells and the hero are this program under different configs."""

import functools

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import program
from infra.artifacts.writer import Writer
from model.config import TrainConfig
from model.finish import TrainStats, write_finished
from model.loop import run_to_end
from model.run import data_of, resolve
from model.step import start_state
from ops.cache import read_ledger


@program(version="11")
def train(config: TrainConfig, store: Artifact, mixture: Artifact, out: Writer) -> TrainStats:
    """Train, score held-out text on the way, and write the final state.

    Args:
        store: tokens; on a local disk, because batches are read by memory map.
        out: gets `config.json`, `metrics.jsonl` (one row a logged step), `evals.jsonl` (step 0 included) and `checkpoint/`,
            and a folder of `kept/` for each step that is kept.
            Checkpoints of the running job lie under its `scratch_url`; a job that is started again goes on from there.

    Raises:
        ValueError: the store's vocabulary does not fit the model, or the mixture reads more sequences than there are.
        NonFiniteLossError: at the first update whose loss or gradient is not finite.
    """
    run, data = resolve(config), data_of(store, mixture)
    position = run_to_end(run, data, config.checkpoints, config.mesh, functools.partial(start_state, run), store, mixture, out)
    return write_finished(run, data, read_ledger(store).tokenizer_digest, position, out)
