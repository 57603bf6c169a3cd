"""Branch off a finished run: a cooldown with a longer context and a decaying learning rate."""

import functools
import math

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import program
from infra.artifacts.writer import Writer
from model.batches import branch_loader
from model.config import BranchConfig
from model.finish import TrainStats, read_state, write_finished
from model.growth import batch_growth
from model.loop import run_to_end
from model.optimizer import after_growth
from model.run import FinishedRun, Origin, Run, data_of, read_run, require_tokenizer
from model.schedule import branch_schedule
from ops.cache import read_ledger


@program(version="11")
def branch(config: BranchConfig, parent: Artifact, store: Artifact, mixture: Artifact, out: Writer) -> TrainStats:
    """Continue `parent` from its final state, or from one it kept, under other settings.

    Parameters, optimizer state and router bias carry over; the learning rate joins the parent's next one exactly and
    decays without a warm-up; batches start anew under another seed.

    Args:
        parent: a train or branch artifact.
        out: like `model.train`; step numbers, tokens and FLOPs count on from the parent's.

    Raises:
        ValueError: the parent ran to the end of its schedule, so that there is no rate left to decay from; it kept no state of
            `parent_step`; its tokenizer is not the store's; or the tokens of a step don't divide by the new sequence length.
    """
    finished, tokenizer = read_run(parent, config.parent_step), read_ledger(store).tokenizer_digest
    require_tokenizer(finished, store=tokenizer)
    run, data = branched(config, finished, parent.digest), data_of(store, mixture)
    kept_step = config.parent_step if config.parent_step in finished.run.keep_steps else None
    begin = functools.partial(read_state, parent, finished.run, kept_step=kept_step)
    position = run_to_end(run, data, config.checkpoints, config.mesh, begin, store, mixture, out)
    return write_finished(run, data, tokenizer, position, out)


def branched(config: BranchConfig, parent: FinishedRun, parent_digest: str) -> Run:
    """The run that a branch of `parent` is."""
    run, state = parent.run, parent.state
    growth = batch_growth(run, state.step)
    schedule = branch_schedule(
        run.schedule,
        state.step,
        config.cooldown_steps,
        floor_share=config.floor_share,
        decay_shape=config.decay_shape,
        batch_factor=math.sqrt(growth),
    )
    if schedule.start_share <= schedule.floor_share:
        raise ValueError(
            f"the parent stopped at step {state.step}, at {schedule.start_share:.3g} of its peak learning rate, and a branch can't "
            f"decay from there to {schedule.floor_share:.3g}; stop the parent earlier (stop_after_steps) or lower floor_share"
        )
    loader = branch_loader(config, run.loader, state.step - run.start_step)
    longer = max(loader.sequence_tokens / run.loader.sequence_tokens, 1.0)  # a shorter context needs no sharper attention
    scale = run.model.qk_scale * (config.qk_scale_growth * math.log(longer) + 1)
    return run.model_copy(
        update={
            "model": run.model.model_copy(update={"qk_scale": scale}),
            "optimizer": after_growth(run.optimizer, growth),
            "schedule": schedule,
            "loader": loader,
            "end_step": state.step + config.cooldown_steps,
            "log_every_steps": config.log_every_steps,
            "eval_every_steps": config.eval_every_steps,
            "keep_steps": (),
            "origin": Origin(parent=parent_digest, step=state.step, tokens=state.tokens, flops=state.flops),
        }
    )
