"""Models with a name: shapes for tests and the demo, a ladder of one recipe, and the published ones it was made for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from model.architecture import KernelConfig, ModelConfig
from model.batches import steps_for, tokens_before
from model.config import BatchStage, BranchConfig, LoaderConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from model.parameters import count
from model.rates import Rates, rates_of

CPU_KERNELS = KernelConfig(
    compute_dtype="float32",  # without AMX bfloat16 only adds conversions
    moe_backend="looped",
    moe_block_rows=64,  # an expert's last block is half empty: the fewer rows, the less is wasted
    attention_backend="triangle",
    attention_block_tokens=128,
    weight_gradients="turned",
    layer_loop="unrolled",
    loss_chunk_tokens=512,
)

VOCABULARY = 128_256
HEAD_DIM = 128
LADDER_STEPS = 2**14  # a step count at which a batch is neither a noise source nor a waste
LADDER_TOKENS_PER_PARAMETER = 60.6  # compute-optimal by the conservative fit, per active parameter


@dataclass(frozen=True)
class Preset:
    """A shape, how it is fed, and for how long.

    Attributes:
        about: one line for a person.
        tokens: of the whole run; None for a shape that was only tried.
    """

    about: str
    model: ModelConfig
    loader: LoaderConfig
    tokens: int | None

    @property
    def steps(self) -> int | None:
        """Updates that read `tokens`."""
        return None if self.tokens is None else steps_for(self.loader, self.tokens)

    @property
    def rates(self) -> Rates | None:
        """What the laws say for the first batch of a run of `tokens`."""
        if self.tokens is None:
            return None
        return rates_of(self.model.width, self.tokens, self.loader.batch_sequences * self.loader.sequence_tokens)

    def training(self) -> TrainConfig:
        """The published recipe on this shape: spheres for matrices and head, rates by law, one per cent of warm-up, 5% at the end.

        Raises:
            ValueError: the preset has no number of tokens to size the schedule by.
        """
        rates, steps = self.rates, self.steps
        if rates is None or steps is None:
            raise ValueError(f"{self.about}: no number of tokens is known to train it for; set tokens")
        optimizer = OptimizerConfig(
            matrix_rule="muon_sphere",
            head_rule="adam_sphere",
            muon_learning_rate=rates.sphere_learning_rate,
            muon_ns_coefficients="dion",
            muon_ns_dtype=self.model.kernels.compute_dtype,
            adam_learning_rate=rates.adam_learning_rate,
            adam_beta1=rates.beta1,
            adam_beta2=rates.beta2,
            adam_eps=rates.eps,
        )
        schedule = ScheduleConfig(schedule_steps=steps, warmup_steps=steps // 100, floor_share=0.05)
        return TrainConfig(model=self.model, optimizer=optimizer, schedule=schedule, loader=self.loader)


def tiny_model() -> ModelConfig:
    """The architecture at the smallest size, for tests: compiles in seconds."""
    return ModelConfig(
        vocab_size=64,
        width=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        experts=4,
        experts_per_token=2,
        expert_width=16,
        shared_expert_width=32,
        window_tokens=8,
        global_every=2,
        kernels=CPU_KERNELS.model_copy(update={"moe_block_rows": 4, "attention_block_tokens": 8, "loss_chunk_tokens": 16}),
    )


def demo_model() -> ModelConfig:
    """What two CPU cores train in minutes to something clearly better than counting words."""
    return ModelConfig(
        vocab_size=4096,
        width=128,
        layers=4,
        heads=4,
        kv_heads=2,
        head_dim=32,
        experts=8,
        experts_per_token=2,
        expert_width=128,
        shared_expert_width=128,
        window_tokens=64,
        global_every=4,
        kernels=CPU_KERNELS,
    )


def depth_of(width: int) -> int:
    """Layers of the recipe's ladder at a width: 6, 8, 11, 13, 16, 21, 26 for 512 to 2560."""
    return round(width / (64 + 4 * math.log2(width) - 9))


def kv_heads_of(heads: int) -> int:
    """The largest divisor of `heads` that is at most a quarter of it, and 1 at least."""
    return max(divisor for divisor in range(1, max(heads // 4, 1) + 1) if heads % divisor == 0)


def ladder_model(width: int) -> ModelConfig:
    """The proportions of the 67B model at another width, a multiple of 128: depth and heads by rule, experts as wide as half the model."""
    heads = width // HEAD_DIM
    return ModelConfig(
        vocab_size=VOCABULARY,
        width=width,
        layers=depth_of(width),
        heads=heads,
        kv_heads=kv_heads_of(heads),
        head_dim=HEAD_DIM,
        experts=256,
        experts_per_token=4,
        expert_width=width // 2,
        shared_expert_width=width,
        norm_gate_rank=128,
        exclusive_attention=True,
    )


def long_context(*, cooldown_steps: int, sequence_tokens: int = 65_536) -> BranchConfig:
    """A context extension: the parent's tokens a step in longer sequences, attention sharpened by 0.1 ln(growth) + 1, rates joined exactly.

    Nothing else changes: windowed layers never see further than their window, and global ones carry no rotation to rescale.
    """
    return BranchConfig(cooldown_steps=cooldown_steps, sequence_tokens=sequence_tokens, qk_scale_growth=0.1)


def _rung(width: int) -> Preset:
    model, sequence_tokens = ladder_model(width), 4096
    tokens = round(LADDER_TOKENS_PER_PARAMETER * count(model).active)
    sequences = 2 ** round(math.log2(tokens / (sequence_tokens * LADDER_STEPS)))
    loader = LoaderConfig(batch_sequences=max(sequences, 32), sequence_tokens=sequence_tokens)
    return Preset(f"rung of the ladder, width {width}", model, loader, tokens)


def _large(**shape: int) -> ModelConfig:
    """What the two models on GB200 share: 48 layers of width 6144."""
    return ModelConfig(
        vocab_size=VOCABULARY,
        width=6144,
        layers=48,
        heads=48,
        kv_heads=12,
        head_dim=HEAD_DIM,
        shared_experts=2,
        shared_expert_width=3072,
        expert_width=3072,
        norm_gate_rank=128,
        attention_gate=True,
        exclusive_attention=True,
        **shape,
    )


def _presets() -> dict[str, Preset]:
    snowball = LoaderConfig(batch_sequences=4096, sequence_tokens=8192, batch_stages=(BatchStage(start_step=15_000, batch_sequences=8192),))
    return {
        "tiny": Preset("for tests", tiny_model(), LoaderConfig(batch_sequences=4, sequence_tokens=32), 20 * 4 * 32),
        "demo": Preset("what `make demo` trains", demo_model(), LoaderConfig(batch_sequences=16, sequence_tokens=256), 240 * 16 * 256),
        **{f"d{width}": _rung(width) for width in (512, 768, 1024, 1280, 1536)},
        "snowball-67b": Preset("67B-A2B on TPU v4-2048", ladder_model(2560), snowball, tokens_before(snowball, 157_500)),
        "fsdp-360b": Preset(
            "candidate for fully sharded training on GB200",
            _large(experts=128, experts_per_token=4),
            LoaderConfig(batch_sequences=1024, sequence_tokens=4096),
            None,
        ),
        "ep-535b": Preset(
            "535B-A23B with latent experts, expert-parallel on 704 GB200",
            _large(experts=384, experts_per_token=8, latent_width=3072),
            LoaderConfig(batch_sequences=11_264, sequence_tokens=4096),
            18 * 10**12,
        ),
    }


PRESETS: Mapping[str, Preset] = MappingProxyType(_presets())
