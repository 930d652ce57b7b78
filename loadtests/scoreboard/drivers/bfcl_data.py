"""The data and checkers of `bfcl-eval`, without the clients of all models that its own modules bring along."""

from __future__ import annotations

import json
import random
import sys
import types
from itertools import zip_longest
from pathlib import Path
from typing import Any

SEED = 20261127
# Ids of each category, none of which a shipped calibration was fitted on.
CASES = Path(__file__).with_name("cases.json")
# The one thing that the checkers read of a model: OpenAI's names have no dots.
_names = types.SimpleNamespace(underscore_to_dot=True)
_models = types.ModuleType("bfcl_eval.constants.model_config")
_models.MODEL_CONFIG_MAPPING = {"served": _names}  # type: ignore[attr-defined]
sys.modules[_models.__name__] = _models

from bfcl_eval.constants.enums import Language, ModelStyle  # noqa: E402
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI  # noqa: E402
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402
from bfcl_eval.model_handler.utils import convert_to_tool  # noqa: E402
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry  # noqa: E402

Entry = dict[str, Any]
LANGUAGES = {"simple_java": Language.JAVA, "simple_javascript": Language.JAVASCRIPT}


def draw_entries(category: str, count: int) -> list[Entry]:
    """Draw some entries of a category with their ground truth, always in the same order."""
    entries = read_entries(category)
    random.Random(f"{SEED} {category}").shuffle(entries)
    return entries[:count]


def read_entries(category: str) -> list[Entry]:
    """Read the entries of a category with their ground truth."""
    entries: list[Entry] = load_dataset_entry(category)
    if "irrelevance" not in category and category != "live_relevance":
        truths = {truth["id"]: truth["ground_truth"] for truth in load_ground_truth_entry(category)}
        entries = [entry | {"ground_truth": truths[entry["id"]]} for entry in entries]
    return entries


def draw_unseen(categories: tuple[str, ...], count: int) -> list[tuple[str, tuple[str, Entry]]]:
    """Draw cases of one turn from `CASES`: of each its id, category and entry. The categories take turns, so that a run
    which ends early has some of each."""
    ids = json.loads(CASES.read_text(encoding="utf-8"))
    drawn = []
    for category in categories:
        by_id = {entry["id"]: entry for entry in read_entries(category)}
        drawn.append([(category, by_id[one]) for one in ids[category][:count]])
    return [(one[1]["id"], one) for turn in zip_longest(*drawn) for one in turn if one]


def build_tools(functions: list[Entry]) -> list[Entry]:
    """Build the tools as OpenAI has them."""
    return list(convert_to_tool(functions, GORILLA_TO_OPENAPI, ModelStyle.OPENAI_COMPLETIONS))


def check_calls(entry: Entry, category: str, calls: list[dict[str, Any]]) -> str:
    """Check calls against the acceptable ones; return what is wrong with them, or nothing."""
    language = LANGUAGES.get(category, Language.PYTHON)
    try:
        verdict = ast_checker(entry["function"], calls, entry["ground_truth"], language, category, "served")
    except (TypeError, KeyError, AttributeError, ValueError, IndexError) as error:
        return f"the checker failed: {error!r}"
    return "" if verdict["valid"] else "; ".join(map(str, verdict["error"]))
