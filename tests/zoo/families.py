"""What is expected of each family of models: its generator, what its caches allow, how it marks calls and reasoning."""

from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.decoding.generators import Sharing


@dataclass(frozen=True, slots=True)
class Family:
    """A line of docs/models.md. `configs`: its configurations in tests/support/model_configs.py, separated by commas.
    `call`, `reasoning`: how they open in its published format; empty where none is known. `plain`: it keeps keys and
    values of all tokens, else windows, states or caches that only mlx-lm's generator takes. `cuts`: what is cached can
    be cut back to any token. `stored`: it goes to disk. `sharing`: less than all where mlx-lm computes the model
    wrongly in a batch, by `fault` (faults.py); `excused`: the aspects that differ by it."""

    name: str
    configs: str
    call: str = ""
    reasoning: str = ""
    note: str = ""
    plain: bool = True
    cuts: bool = True
    stored: bool = True
    sharing: Sharing = Sharing.ALL
    fault: str = ""
    excused: tuple[str, ...] = ()

    @property
    def drafts(self) -> bool:
        """Whether draft tokens are read."""
        return self.plain and self.sharing is not Sharing.NONE


def _late(name: str, configs: str, call: str = "", reasoning: str = "", note: str = "", **more: Any) -> Family:
    """Build the row of a family that keeps something else than keys and values of all tokens."""
    return Family(name, configs, call, reasoning, note, plain=False, **{"cuts": False, **more})


_APART: Any = {"sharing": Sharing.DECODING, "fault": "padding"}
_ALONE: Any = {"sharing": Sharing.NONE, "fault": "neighbors"}
_TAG, _THINK, _HARMONY = "<tool_call>", "<think>", "<|channel|>commentary to=functions."
FAMILIES = (
    Family("AFM-7", "afm7", **_ALONE),
    Family("Apertus", "apertus", "<|tools_prefix|>", "<|inner_prefix|>"),
    _late("Arcee Trinity", "afmoe", _TAG, _THINK),
    _late("Baichuan-M1", "baichuan_m1", **_APART),
    Family("Command R", "cohere", "Action: ```json\n["),
    _late("Command R7B, Command A", "cohere2", "<|START_ACTION|>", "<|START_THINKING|>"),
    Family("DeepSeek V2, V3, R1; Kimi K2", "deepseek, deepseek_v2, deepseek_v3", "<｜tool▁calls▁begin｜>", _THINK),
    _late("DeepSeek V3.2", "deepseek_v32", "<｜DSML｜function_calls>", _THINK, cuts=True),
    _late("DeepSeek V4.1", "deepseek_v41", "<｜DSML｜tool_calls>", _THINK, stored=False, **_ALONE),
    Family("ERNIE 4.5", "ernie4_5, ernie4_5_moe", _TAG, _THINK),
    _late("EXAONE 4", "exaone4, exaone_moe", _TAG, _THINK),
    _late("Falcon-H1", "falcon_h1", _TAG),
    Family("Gemma 2", "gemma2", **_ALONE),
    _late("Gemma 3", "gemma3, gemma3 unnamed, gemma3_text, gemma3n", "```tool_code\n"),
    _late("Gemma 4", "gemma4, gemma4_text", "<|tool_call>", "<|channel>thought"),
    Family("GLM-4.5 to 4.7", "glm4_moe, glm4_moe_lite", _TAG, _THINK),
    _late("GLM-5", "glm_moe_dsa", _TAG, _THINK, cuts=True),
    Family("GPTBigCode", "gpt_bigcode", **_ALONE),
    _late("gpt-oss", "gpt_oss", _HARMONY, note="reasoning in Harmony's channels"),
    Family("Granite 3", "granite, granitemoe", "<|tool_call|>"),
    _late("Granite 4", "granitemoehybrid", _TAG),
    Family("Hunyuan", "hunyuan, hunyuan_v1_dense", "<tool_calls>", _THINK),
    Family("InternLM 2, 3", "internlm2, internlm3", "<|action_start|>"),
    _late("Jamba", "jamba", "<tool_calls>", **_APART),
    Family("Kimi K2.5", "kimi_k25", "<|tool_calls_section_begin|>", _THINK),
    _late("Kimi K3", "kimi_k3", "<|open|>tools<|sep|>", "<|open|>think<|sep|>"),
    _late("Kimi Linear", "kimi_linear", "<|tool_calls_section_begin|>"),
    Family("Kimi-VL", "kimi_vl", "", "◁think▷"),
    _late("Laguna", "laguna", _TAG, _THINK),
    _late("LFM2, LFM2.5", "lfm2, lfm2-vl, lfm2_moe", "<|tool_call_start|>", _THINK),
    Family("Ling 1, 2; Ring", "bailing_moe", _TAG, _THINK),
    _late("Ling 2.5, 3", "bailing_hybrid, bailing_moe_v3", _TAG, _THINK),
    _late("Ling-linear", "bailing_moe_linear", _TAG, _THINK, **_APART),
    Family("Llama 3 and its kind", "llama", "<|python_tag|>"),
    _late("Llama with windows", "llama sliding", "<|python_tag|>"),
    _late("Llama 4", "llama4", "<|python_start|>", **_ALONE),
    Family("Llama 4, text alone", "llama4_text", "<|python_start|>"),
    _late("LongCat-Flash", "longcat_flash", "<longcat_tool_call>", "<longcat_think>", cuts=True),
    _late("LongCat-Flash with n-grams", "longcat_flash_ngram", "<longcat_tool_call>", "<longcat_think>", **_APART),
    Family("MiMo", "mimo", _TAG, _THINK),
    _late("MiMo-V2-Flash", "mimo_v2_flash", _TAG, _THINK),
    Family("MiniMax M1, M2", "minimax", "<minimax:tool_call>", _THINK),
    _late("MiniMax M3", "minimax_m3_vl", "]<]minimax[>[<tool_call>", "<mm:think>", cuts=True, **_ALONE),
    Family("Mistral 3, 4; Magistral", "ministral3, mistral3, mistral3 llama, mistral4", "[TOOL_CALLS]", "[THINK]"),
    _late("Ministral with windows", "ministral3 sliding", "[TOOL_CALLS]", "[THINK]"),
    Family("Mixtral, Pixtral", "mixtral, pixtral", "[TOOL_CALLS]"),
    Family("Nanbeige", "nanbeige", _TAG, _THINK),
    Family("Nemotron, Llama-Nemotron", "nemotron, nemotron-nas", "<TOOLCALL>", _THINK),
    _late("Nemotron 3, Nemotron-H", "nemotron_h", _TAG, _THINK, **_APART),
    _late("OLMo 3", "olmo3", "<function_calls>", _THINK),
    _late("OLMo Hybrid", "olmo_hybrid", "<function_calls>", _THINK, **_APART),
    Family("Phi", "phi, phi3, phimoe, phixtral", "functools[{"),
    _late("PLaMo 3", "plamo3", "<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_think:plamo|>",
        "mlx-lm's answer depends on how it cuts the prompt: its mask is a token wider than its window", fault="chunks",
        excused=("decoding", "batching", "reuse", "disk", "resuming", "grammar", "windows")),
    Family("Qwen", "qwen", "Action:"),
    Family("Qwen 2, 2.5", "qwen2, qwen2_moe, qwen2_vl", _TAG),
    Family("Qwen 3", "qwen3, qwen3_moe, qwen3_vl, qwen3_vl_moe", _TAG, _THINK),
    _late("Qwen3-Next; Qwen 3.5, 3.6", "qwen3_next, qwen3_5, qwen3_5_moe", _TAG, _THINK),
    _late("Mamba, Falcon-Mamba, RecurrentGemma", "mamba, recurrent_gemma", **_APART),
    _late("RWKV-7", "rwkv7", **_APART),
    Family("Seed-OSS", "seed_oss", "<seed:tool_call>", "<seed:think>"),
    Family("SmolLM3", "smollm3", _TAG, _THINK),
    Family("Solar Open", "solar_open", note="its calls leave as text: the tier warns at its start"),
    _late("Step 3.5", "step3p5", _TAG, _THINK),
    Family("TeleChat 3", "telechat3", _TAG, _THINK),
    Family("Youtu-LLM", "youtu_llm", _TAG, _THINK),
    Family(
        "others, attention alone",
        "Klear, dbrx, dots1, exaone, gemma, glm, glm4, gpt2, gpt_neox, gptj, helium, "
        "lille-130m, minicpm, minicpm3, nanochat, olmo2, olmoe, openelm, plamo, stablelm, starcoder2, talkie",
    ),
    _late("others, windows or states", "gear, iquestloopcoder, mamba2, mellum, muse_glimmer, plamo2, spark2_5"),
)  # fmt: skip
# Of each kind of cache, layer and sharing, those that `make test` checks; SmolLM2, of the stage with the model, is a
# llama.
FAST = ("gemma3_text", "gpt_oss", "lfm2", "minimax_m3_vl", "nemotron_h")


def find_family(config: str) -> Family:
    (family,) = (one for one in FAMILIES if config in one.configs.split(", "))
    return family
