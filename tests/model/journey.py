"""From a store to a release in seconds: a real hero, branch, baselines, evaluations and release; the ladder's cells are planted."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from model.branch import branch
from model.config import BranchConfig, EvaluateConfig, PredictionConfig, ReleaseConfig, ScalingConfig, ScheduleConfig
from model.eval.evaluate import evaluate
from model.law import PowerLaw
from model.prediction import predict
from model.release import release
from model.run import data_of, resolve
from model.scaling import fit_scaling_law
from model.train import train
from ops.config import NgramConfig
from ops.ngram import ngram_baselines
from ops.tokenizer import SPECIALS
from tests.builders import publish, run_program
from tests.model.cells import finished_run, tiny_config
from tests.model.corpus import STRIDES, VOCAB, corpus
from tests.ops.stores import TOKEN_BYTES

HERO = tiny_config()
COOLDOWN = BranchConfig(cooldown_steps=6, sequence_tokens=64, floor_share=0.0, log_every_steps=2, eval_every_steps=None)
EVALUATE = EvaluateConfig(prompts=("aac aad", "aaf"), sample_tokens=8, interval_resamples=100)
RELEASE = ReleaseConfig(name="tiny", source_licences={"code": "PSF-2.0", "prose": "CC0-1.0"})
PLANTED = PowerLaw(floor=1.6, log_scale=float(np.log(60.0)), exponent=0.12)


@dataclass(frozen=True)
class Journey:
    """Every artifact on the way, by asset."""

    store: Artifact
    mixture: Artifact
    tokenizer: Artifact
    baselines: Artifact
    prediction: Artifact
    hero: Artifact
    cooldown: Artifact
    raw: dict[str, Artifact]

    @classmethod
    def begin(cls, directory: Path) -> "Journey":
        store, mixture = corpus(directory)
        tokenizer = word_tokenizer(directory / "tokenizer")
        baselines_config = NgramConfig(
            train_tokens=10_000,
            held_out_tokens=HERO.held_out.tokens_per_domain,
            max_document_tokens=HERO.held_out.max_document_tokens,
        )
        hero = run_program(train, HERO, directory / "hero", store=store, mixture=mixture)
        return cls(
            store=store,
            mixture=mixture,
            tokenizer=tokenizer,
            baselines=run_program(ngram_baselines, baselines_config, directory / "baselines", store=store, tokenizer=tokenizer),
            prediction=run_program(
                predict, PredictionConfig(run=HERO), directory / "prediction", scaling_law=law(directory, store, mixture)
            ),
            hero=hero,
            cooldown=run_program(branch, COOLDOWN, directory / "cooldown", parent=hero, store=store, mixture=mixture),
            raw={source: raw_artifact(directory / "raw" / source, source) for source in STRIDES},
        )

    def evaluated(self, directory: Path, checkpoint: Artifact, config: EvaluateConfig = EVALUATE) -> Artifact:
        inputs = {"store": self.store, "tokenizer": self.tokenizer, "baselines": self.baselines, "prediction": self.prediction}
        return run_program(evaluate, config, directory, checkpoint=checkpoint, **inputs)

    def released(self, directory: Path, evaluation: dict[str, Artifact], raw: dict[str, Artifact] | None = None) -> Artifact:
        inputs = {"store": self.store, "tokenizer": self.tokenizer, "mixture": self.mixture, "prediction": self.prediction}
        sources = self.raw if raw is None else raw
        return run_program(release, RELEASE, directory, checkpoint=self.cooldown, evaluation=evaluation, raw=sources, **inputs)


def law(directory: Path, store: Artifact, mixture: Artifact) -> Artifact:
    cells = {}
    for steps in (20, 40, 80):
        run = resolve(tiny_config(schedule=ScheduleConfig(schedule_steps=steps), stop_after_steps=steps * 4 // 5))
        measures = {"macro_nats_per_token": PLANTED.loss_at(run.flops_after(run.end_step))}
        cells[f"s{steps}"] = finished_run(directory / "ladder" / f"s{steps}", run, measures, data=data_of(store, mixture))
    return run_program(fit_scaling_law, ScalingConfig(), directory / "law", ladder=cells)


def word_tokenizer(directory: Path) -> Artifact:
    """One word of three letters per token of the corpus, under the digest its store was made with."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"a{letters[index // 26]}{letters[index % 26]}" for index in range(VOCAB)]
    vocabulary = {word: index for index, word in enumerate([*SPECIALS, *words[2:]])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    sizes = np.full(VOCAB, TOKEN_BYTES, np.int32)
    sizes[:2] = 0
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    with out.open("tokenizer.json") as stream:
        stream.write(tokenizer.to_str().encode())
    with out.open("token_bytes.npy") as stream:
        np.save(stream, sizes)
    found = publish(directory, out, {})
    return dataclasses.replace(found, manifest=found.manifest.model_copy(update={"digest": "t" * 64}))


def raw_artifact(directory: Path, source: str) -> Artifact:
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    out.write_json("files.json", [source])
    found = publish(directory, out, {})
    payload = {"program": "ops.crawl.raw:raw", "version": "1", "config": {"source": {"kind": "files", "label": source}}, "inputs": {}}
    return dataclasses.replace(found, manifest=found.manifest.model_copy(update={"payload": payload}))
