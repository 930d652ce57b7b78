"""A small configuration of each architecture that mlx-lm has, and what a cache of it takes once it holds tokens.

Run it to print, for each of them, what is counted before a model is loaded over what its filled caches take:
`python -m tests.support.model_configs`.
"""

import copy
import itertools
import sys
from typing import Any

from deployments.tiers.mlx.cache_size import build_unloaded, measure_layout

TOKENS = 512
# Why mlx-lm itself can't compute these here.
NOT_COMPUTED = {
    "bitnet": "its layers need Metal",
    "muse_spark": "its layers need Metal",
    "olmo": "it needs another package",
    "phi3small": "MLX ends the process on a processor",
    "prism_hadamard_qwen35": "it needs a manifest of packed weights",
}
# fmt: off
_SHARED: dict[str, Any] = {
    "vocab_size": 262, "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-05, "norm_eps": 1e-05, "layer_norm_eps": 1e-05,
    "layer_norm_epsilon": 1e-05, "max_position_embeddings": 4096, "rope_theta": 10000.0, "attention_bias": False,
    "mlp_bias": False, "use_bias": False, "use_conv_bias": True, "conv_bias": False, "tie_word_embeddings": False,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size":
    32, "shared_expert_intermediate_size": 32, "n_shared_experts": 1, "num_shared_experts": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 1.0, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 16,
    "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "sliding_window": 16,
    "partial_rotary_factor": 0.5, "mlp_only_layers": [], "decoder_sparse_step": 1, "use_qk_norm": True, "n_embd": 64,
    "n_head": 4, "n_layer": 4, "n_positions": 4096, "n_ctx": 4096, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2,
    "logits_scaling": 1.0, "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
    "conv_kernel": 4, "conv_L_cache": 3, "state_size": 8, "time_step_rank": 4, "n_groups": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "rope_parameters": {"rope_type":
    "default", "rope_theta": 10000.0}, "mamba_d_conv": 4, "mamba_d_state": 8, "mamba_expand": 2, "mamba_num_heads": 4,
    "mamba_head_dim": 16, "ssm_state_size": 16, "shared_intermediate_size": 32, "full_attention_interval": 4,
    "index_head_dim": 16, "index_n_heads": 2, "index_topk": 8, "d_model": 64, "n_layers": 4, "n_heads": 4,
    "max_seq_len": 4096,
}
# The architectures that these make; then those that need more, or other values. A second one has a word after its name.
_PLAIN = (
    "Klear", "bailing_moe", "cohere", "cohere2", "deepseek", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5",
    "exaone", "falcon_h1", "gemma", "gemma2", "glm", "glm4", "glm4_moe_lite", "glm_moe_dsa", "gpt2", "granite",
    "granitemoe", "helium", "hunyuan_v1_dense", "internlm2", "internlm3", "iquestloopcoder", "llama", "mamba", "mimo",
    "mixtral", "muse_glimmer", "nanbeige", "nanochat", "olmo2", "olmoe", "phi", "phi3", "phimoe", "plamo2", "plamo3",
    "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3", "solar_open", "starcoder2",
    "talkie", "telechat3", "youtu_llm",
)
# What several of them share.
_TURNS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_ROPES = {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}}
_YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096}
_SCALED = {"rope_parameters": {"rope_type": "yarn", "type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
    "original_max_position_embeddings": 512, "llama_4_scaling_beta": 0.1}}
_LFM2 = {"model_type": "lfm2", "block_dim": 64, "block_ff_dim": 96, "block_multiple_of": 4,
    "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True, "layer_types": ["conv", "full_attention"] * 2,
    "full_attn_idxs": [1, 3], "num_dense_layers": 1, "use_expert_bias": True}
_GEMMA4 = {"global_head_dim": 32, "vocab_size_per_layer_input": 262, "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 16, **_TURNS}
_KIMI = {"linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 3],
    "full_attn_layers": [4]}, "model_max_length": 4096}
_LONGCAT = {"ffn_hidden_size": 96, "moe_topk": 2, "expert_ffn_hidden_size": 32, "zero_expert_num": 2,
    "zero_expert_type": "identity", "attention_method": "MLA", "mla_scale_q_lora": True, "mla_scale_kv_lora": True}
_OWN: dict[str, dict[str, Any]] = {
    "afm7": {"hidden_dim": 64, "num_kv_reuse_layers": 2},
    "afmoe": _TURNS,
    "apertus": {"post_norm": True, "qk_norm": True},
    "baichuan_m1": {"sliding_window_layers": [0, 2], "conv_window": 2, "num_swa_attention_heads": 4,
        "num_swa_key_value_heads": 2},
    "bailing_hybrid": {"layer_group_size": 2, "group_norm_size": 1},
    "bailing_moe_linear": {"layer_group_size": 2, "group_norm_size": 1},
    "bailing_moe_v3": {"layer_group_size": 2},
    "dbrx": {"ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2}, "attn_config": {"kv_n_heads":
        2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "deepseek_v2": {"rope_scaling": _YARN},
    "deepseek_v41": {"compress_ratios": [0, 4, 8, 4], "o_groups": 2, "o_lora_rank": 16, "hc_mult": 2},
    "ernie4_5_moe": {"moe_num_experts": 4},
    "exaone4": {"rope_scaling": None, "sliding_window_pattern": "LLGL"},
    "exaone_moe": {**_TURNS, "is_moe_layer": [False, True, True, True]},
    "gear": {"layer_types": ["sliding_attention", "conv_mixer", "sliding_attention", "full_attention"]},
    "gemma3": {"text_config": {"model_type": "gemma3_text", "sliding_window_pattern": 2}},
    "gemma3 unnamed": {"text_config": {"model_type": "gemma3_text", "sliding_window_pattern": 2, "num_attention_heads":
        None, "num_key_value_heads": None, "max_position_embeddings": None}},
    "gemma3_text": {"sliding_window_pattern": 2},
    "gemma3n": {"text_config": {"model_type": "gemma3n", "num_kv_shared_layers": 1, "vocab_size_per_layer_input": 262,
        "rope_local_base_freq": 10000.0, "final_logit_softcapping": 30.0, **_TURNS, "activation_sparsity_pattern": [0.0,
        0.0, 0.0, 0.0], "hidden_size_per_layer_input": 16, "altup_num_inputs": 2, "altup_coef_clip": 120.0,
        "altup_correct_scale": True, "altup_active_idx": 0, "laurel_rank": 8}},
    "gemma4": {"text_config": _GEMMA4},
    "gemma4_text": _GEMMA4,
    "glm4_moe": {"rope_scaling": None},
    "gpt_bigcode": {"n_inner": 96},
    "gpt_neox": {"rotary_emb_base": 10000, "rotary_pct": 0.25},
    "gpt_oss": _TURNS,
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_proj_bias": False, "mamba_n_groups": 1,
        "mamba_conv_bias": False, "layer_types": ["mamba", "attention", "mamba", "attention"]},
    "hunyuan": {"moe_topk": 2, "num_shared_expert": 1, "use_mixed_mlp_moe": True, "rope_scaling": {"alpha": 1000.0,
        "factor": 1.0, "type": "dynamic"}, "use_cla": True, "cla_share_factor": 2},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2},
    "kimi_k25": {"text_config": {"rope_scaling": _YARN}},
    "kimi_k3": {"text_config": {**_KIMI, "num_experts_per_token": 2}},
    "kimi_linear": _KIMI,
    "kimi_vl": {"text_config": {}},
    "laguna": {**_TURNS, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    "lfm2": _LFM2,
    "lfm2-vl": {"text_config": _LFM2},
    "lfm2_moe": {**_LFM2, "model_type": "lfm2_moe"},
    "lille-130m": {"block_size": 128, "n_kv_heads": 2},
    "llama sliding": _TURNS,
    "llama4": {"text_config": {"model_type": "llama4_text", "attention_chunk_size": 8, "interleave_moe_layer_step": 2,
        "num_experts_per_tok": 1, "intermediate_size_mlp": 96, "rope_scaling": None}},
    "llama4_text": {"intermediate_size_mlp": 96, "no_rope_layers": [0, 0, 1, 1]},
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": _LONGCAT,
    "mamba2": {"time_step_limit": [0.01, 10.0]},
    "mellum": {**_TURNS, **_ROPES},
    "mimo_v2_flash": {"hybrid_layer_pattern": [0, 1, 0, 1], "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False, "sliding_window_size": 16, "layernorm_epsilon": 1e-05, "swa_rope_theta":
        1000.0, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 24, "swa_v_head_dim": 16,
        "moe_layer_freq": [0, 1, 1, 1]},
    "minicpm": {"dim_model_base": 64, "scale_depth": 1.0, "scale_emb": 1.0},
    "minicpm3": {"rope_scaling": _YARN, "dim_model_base": 64, "scale_depth": 1.0, "scale_emb": 1.0},
    "minimax": {"rotary_dim": 8},
    "minimax_m3_vl": {"text_config": {"moe_layer_freq": [0, 1, 1, 1], "dense_intermediate_size": 96,
        "sparse_attention_config": {"sparse_num_index_heads": 2, "sparse_index_dim": 16, "sparse_block_size": 16,
        "sparse_topk_blocks": 2, "sparse_attention_freq": [0, 1, 1, 1]}}},
    "ministral3": _SCALED,
    "ministral3 sliding": {**_SCALED, **_TURNS},
    "mistral3": {"text_config": {"model_type": "ministral3", **_SCALED}},
    "mistral3 llama": {"text_config": {"model_type": "llama"}},
    "mistral4": _SCALED,
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {"block_configs": [{"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}}, {"attention":
        {"no_op": True}, "ffn": {"ffn_mult": 1.0}}, {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}}]},
    "nemotron_h": {"mamba_proj_bias": False, "time_step_limit": [0.0, 10.0], "hybrid_override_pattern": "M*ME"},
    "olmo3": _TURNS,
    "olmo_hybrid": {"linear_allow_neg_eigval": True},
    "openelm": {"ffn_dim_divisor": 8, "ffn_multipliers": [0.5, 1.0, 1.5, 2.0], "model_dim": 64, "num_query_heads": [4,
        4, 8, 8], "num_kv_heads": [2, 2, 4, 4], "num_transformer_layers": 4},
    "phixtral": {"num_vocab": 262, "model_dim": 64, "rotary_dim": 16, "num_local_experts": 2},
    "pixtral": {"text_config": {"model_type": "llama"}},
    "plamo": {"n_shared_head": 2},
    "qwen": {"kv_channels": 16, "intermediate_size": 192},
    "qwen2_vl": {"text_config": {"model_type": "qwen2"}},
    "qwen3_5": {"text_config": {"model_type": "qwen3_5", "num_experts": 0}},
    "qwen3_5_moe": {"text_config": {"model_type": "qwen3_5_moe"}},
    "qwen3_vl": {"text_config": {"model_type": "qwen3"}},
    "qwen3_vl_moe": {"text_config": {"model_type": "qwen3_moe"}},
    "recurrent_gemma": {"conv1d_width": 3, "logits_soft_cap": 30.0, "attention_window_size": 16, "block_types":
        ["recurrent", "recurrent", "attention"]},
    "rwkv7": {"a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8, "decay_low_rank_dim": 8},
    "spark2_5": _ROPES,
    "stablelm": {"use_qkv_bias": False},
    "step3p5": {"num_attention_groups": 2, **_TURNS, "partial_rotary_factors": [0.5, 1.0, 0.5, 1.0],
        "attention_other_setting": {"num_attention_heads": 8, "num_attention_groups": 2}, "use_head_wise_attn_gate":
        True, "moe_num_experts": 4, "moe_top_k": 2, "share_expert_dim": 32, "moe_layers_enum": "1,2,3"},
}
# fmt: on
CONFIGS = sorted([*_PLAIN, *_OWN])


def build_config(name: str, dtype: str) -> dict[str, Any]:
    """Build the config.json. A shared field whose own value is None is left out. Weights of 16 bits are declared as
    quantized, since others are widened on a processor."""
    own = _OWN.get(name, {})
    config = copy.deepcopy({**_SHARED, **own, "model_type": name.partition(" ")[0], "torch_dtype": dtype})
    if "text_config" in own:
        inner = copy.deepcopy({**_SHARED, **own["text_config"]})
        config["text_config"] = {key: value for key, value in inner.items() if value is not None or key not in _SHARED}
    return config if dtype == "float32" else {**config, "quantization": {"bits": 4, "group_size": 64}}


def compare(name: str, dtype: str = "float32") -> tuple[int, int]:
    """Return the bytes of TOKENS tokens as they are counted without the weights, and as filled caches take them."""
    config = build_config(name, dtype)
    return measure_layout(build_unloaded(config)).sequence_bytes(TOKENS), fill_caches(build_unloaded(config))


def fill_caches(model: Any) -> int:
    """Read a prompt in chunks, generate a token, and return the bytes of all layers."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    tokens = (mx.arange(TOKENS) * 7 % 120)[None]
    ends = [*range(0, TOKENS - 1, 128), TOKENS - 1, TOKENS]
    for start, end in itertools.pairwise(ends):
        mx.eval(model(tokens[:, start:end], cache=cache))
    return sum(int(layer.nbytes) for layer in cache)


def main() -> None:
    for name in sys.argv[1:] or CONFIGS:
        needs, real = compare(name)
        print(f"{name:24} {needs:9,} {real:9,} {needs / real:.3f}", flush=True)


if __name__ == "__main__":
    main()
