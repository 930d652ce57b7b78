"""LoRA adapters of the tiny model."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.support import tiny_model as tiny

RANK = 4
PARAMETERS = {"rank": RANK, "scale": 20.0, "dropout": 0.0}
LORA = {"fine_tune_type": "lora", "num_layers": tiny.LAYERS, "lora_parameters": PARAMETERS}


def write_adapter(folder: Path, *, strength: float, hidden: int = tiny.HIDDEN) -> Path:
    """Both projections that mlx-lm adapts in a layer, as its training names them."""
    folder.mkdir()
    dice, tensors = np.random.default_rng(1), {}
    keys = ["self_attn.q_proj", "self_attn.v_proj"]
    for layer in range(tiny.LAYERS):
        for key, out in zip(keys, (tiny.HIDDEN, tiny.KV_HEADS * tiny.HEAD_DIM), strict=True):
            at = f"model.layers.{layer}.{key}"
            tensors[f"{at}.lora_a"] = dice.normal(0, 1, (hidden, RANK)).astype(np.float32)
            tensors[f"{at}.lora_b"] = (strength * dice.normal(0, 1, (RANK, out))).astype(np.float32)
    save_file(tensors, str(folder / "adapters.safetensors"))
    said = LORA | {"lora_parameters": PARAMETERS | {"keys": keys}}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return folder
