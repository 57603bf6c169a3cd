"""The released form of a model: `model.safetensors` and `config.json`, in the field names other tools expect.

Arrays keep the declared layout: layers and experts stacked, matrices [in, out], names as paths. A stock loader can't run this
architecture whatever the layout, so `model/load.py` ships with it and reads exactly what is written here.
"""

from typing import Any

from numpy.typing import NDArray

from infra.artifacts.config import identity_of
from model.architecture import ModelConfig

MODEL_TYPE = "seaway_moe"
SCHEMA_VERSION = 2  # 2: shared experts are stacked, one axis more than in 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
ROUTER_BIAS = "router_bias"

FIELD_NAMES = {
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "shared_expert_width": "shared_expert_intermediate_size",
    "window_tokens": "sliding_window",
    "rope_fraction": "partial_rotary_factor",
    "norm_eps": "rms_norm_eps",
    "tied_head": "tie_word_embeddings",
}
"""Our field -> the published one. Fields that are not here have no common name and keep their own."""


def release_config(model: ModelConfig, *, context_tokens: int, end_of_text_id: int, pad_id: int) -> dict[str, Any]:
    """The released `config.json`.

    Args:
        context_tokens: longest sequence the model was trained on.
    """
    fields = {FIELD_NAMES.get(name, name): value for name, value in identity_of(model).items()}
    return {
        **fields,
        "schema_version": SCHEMA_VERSION,
        "model_type": MODEL_TYPE,
        "layer_types": ["full_attention" if model.is_global(layer) else "sliding_attention" for layer in range(model.layers)],
        "max_position_embeddings": context_tokens,
        "eos_token_id": end_of_text_id,
        "pad_token_id": pad_id,
        "dtype": "float32",
    }


def model_config(released: dict[str, Any]) -> ModelConfig:
    """The model that a released `config.json` describes.

    Raises:
        ValueError: it is another architecture's, or of a newer schema.
    """
    if released.get("model_type") != MODEL_TYPE or released.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"config.json describes {released.get('model_type')!r} schema {released.get('schema_version')!r}; "
            f"this loader reads {MODEL_TYPE!r} schema {SCHEMA_VERSION}"
        )
    return ModelConfig(**{name: released[key] for name in ModelConfig.model_fields if (key := FIELD_NAMES.get(name, name)) in released})


def release_arrays(parameters: dict[str, NDArray[Any]], router_bias: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What `model.safetensors` holds: all parameters, and the router's selection bias that belongs to exactly these weights."""
    return {**parameters, ROUTER_BIAS: router_bias}


def released_name(stored: str) -> str:
    """What an array of a checkpoint is called in a release of it."""
    return stored.removeprefix("parameters/")
