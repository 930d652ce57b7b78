"""Marks that a model hasn't learned, on a real model of a few kilobytes."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tests.support import tiny_model as tiny
from tests.support.engine_rig import load_folder

ROW = tiny.weights()["token_embd.weight"][7]
ADDED = {"<|spare|>": True, "<tool_call>": False, "</tool_call>": False, "<result>": False}


def write_model(folder: Path, same: dict[str, Any]) -> Path:
    """Write a model with these tokens besides; `same`: of which the row is as it was made, times this number."""
    tiny.write_folder(folder)
    weights: Any = mx.load(str(folder / "model.safetensors"))
    rows = mx.random.normal((len(ADDED), tiny.HIDDEN), key=mx.random.key(1))
    for place, text in enumerate(ADDED):
        rows[place] = mx.array(ROW) * same[text] + 1e-4 * rows[place] if text in same else rows[place]
    name = "model.embed_tokens.weight"
    mx.save_safetensors(str(folder / "model.safetensors"), weights | {name: mx.concatenate([weights[name], rows])})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(tiny.TOKENS) + len(ADDED)}))
    spec = json.loads((folder / "tokenizer.json").read_text())
    for number, (text, special) in enumerate(ADDED.items(), len(tiny.TOKENS)):
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        spec["added_tokens"].append({"id": number, "content": text, "special": special, **flags})
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    return write_template(folder, tiny.TEMPLATE + "{# <tool_call></tool_call> #}")


def write_template(folder: Path, template: str) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": template}))
    return folder


@pytest.mark.parametrize(
    ("same", "spelled"),
    [
        pytest.param({"<|spare|>": 1, "<tool_call>": 1, "</tool_call>": 1}, ["<tool_call>", "</tool_call>"], id="both"),
        pytest.param({"<|spare|>": 1, "</tool_call>": 1}, ["</tool_call>"], id="one of them"),
        pytest.param({"<tool_call>": 1, "</tool_call>": 1}, ["<tool_call>", "</tool_call>"], id="like each other"),
        pytest.param({"<tool_call>": 1}, [], id="like no other"),
        pytest.param({"<|spare|>": 1, "<result>": 1}, [], id="not in the template"),
        pytest.param({}, [], id="learned"),
    ],
)
def test_a_mark_that_no_training_has_moved_is_spelled(tmp_path: Path, same: dict[str, Any], spelled: list[str]) -> None:
    """Law: what the template writes and the model hasn't learned is encoded in the tokens of its letters; all else, and
    what the token is read as, stays as it was."""
    tokenizer = load_folder(write_model(tmp_path / "m", same)).tokenizer
    number = {text: place for place, text in enumerate(ADDED, len(tiny.TOKENS))}

    for text in ADDED:
        tokens = tokenizer.encode(f"a{text}he", add_special_tokens=False)
        assert (tokens[1:-1] == [number[text]]) == (text not in spelled) == (number[text] in tokens), text
        assert tokenizer.decode(tokens) == f"a{text}he"
        assert tokenizer.decode([number[text]]) == text
    assert tokenizer.encode("<|im_start|>hello", add_special_tokens=False)[0] == 1


def test_the_turn_is_opened_by_a_token_that_no_role_names(tmp_path: Path) -> None:
    """Law: a special token counts, whether or not the tokenizer names it by a role (GGUF files give no list)."""
    template = tiny.TEMPLATE.replace("'<|im_start|>assistant\n'", "'<|spare|>a'")
    loaded = load_folder(write_template(write_model(tmp_path / "m", {}), template))

    assert len(tiny.TOKENS) not in loaded.tokenizer.all_special_ids
    assert loaded.turn_start[0] == len(tiny.TOKENS)
