"""Small models of mlx-lm's with weights by chance, whose heads are as wide as those of real ones."""

import importlib
from typing import Any

from deployments.tiers.mlx.cache_size import build_unloaded
from tests.support.model_configs import build_config

VOCABULARY = 130
SHAPE = {
    "hidden_size": 96, "num_hidden_layers": 2, "intermediate_size": 112, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA_3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}  # fmt: skip
# By what a model has that others don't: several heads that share keys or none, heads wider than the hidden state,
# biases, a head of its own, scaled places, norms of queries and keys.
MODELS = {
    "one group": ("llama", {"num_key_value_heads": 1, "head_dim": 64}),
    "no groups": ("llama", {"num_key_value_heads": 4, "head_dim": 32}),
    "wide heads": ("llama", {"head_dim": 256, "tie_word_embeddings": False}),
    "scaled": ("llama", {"head_dim": 64, "rope_scaling": LLAMA_3}),
    "biases": ("qwen2", {"hidden_size": 256}),
    "normed": ("qwen3", {"hidden_size": 256, "head_dim": 64, "rope_theta": 1e6, "tie_word_embeddings": True}),
    "own head": (
        "qwen2",
        {"hidden_size": 384, "intermediate_size": 1136, "num_attention_heads": 6, "tie_word_embeddings": False},
    ),
}


def build_model(kind: str, vocabulary: int = VOCABULARY) -> Any:
    import mlx.core as mx
    from mlx.utils import tree_map

    family, more = MODELS[kind]
    found: Any = importlib.import_module(f"mlx_lm.models.{family}")
    model = found.Model(found.ModelArgs(model_type=family, vocab_size=vocabulary, **(SHAPE | more)))
    mx.random.seed(1)
    model.update(tree_map(lambda one: mx.random.normal(one.shape) * 0.1, model.parameters()))
    mx.eval(model.parameters())
    return model


def build_family(name: str, seed: int, **more: Any) -> Any:
    """Build one of `model_configs.CONFIGS`, with `more` in its configuration. Noise is added to the weights that mlx-lm
    begins with: some are zeros, so that whole layers would do nothing."""
    import mlx.core as mx
    from mlx.utils import tree_map

    def stir(one: Any) -> Any:
        return one + mx.random.normal(one.shape) * 0.1 if mx.issubdtype(one.dtype, mx.floating) else one

    mx.random.seed(seed)
    model = build_unloaded(build_config(name, "float32") | more)
    model.update(tree_map(stir, model.parameters()))
    mx.eval(model.parameters())
    return model
