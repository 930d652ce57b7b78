"""Why a prompt doesn't begin as the one before it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.prefix import PrefixChange, PromptShape, explain

CHANGED_AT = "the history changed at message"
ROLES = ("system", "user", "assistant", "tool", "assistant", "user")
SHAPE = PromptShape(
    tools=(("read", 1), ("write", 2), ("list", 3)), options={"enable_thinking": 1}, head=1,
    messages=(10, 11, 12, 13, 14, 15), roles=ROLES,
)  # fmt: skip


def with_history(*digests: int) -> PromptShape:
    """The shape with this history behind its system prompt; every second message answers."""
    roles = ("system", *("assistant" if i % 2 else "user" for i in range(len(digests))))
    return replace(SHAPE, messages=(10, *digests), roles=roles)


@pytest.mark.parametrize(("new", "change", "words"), [
    (replace(SHAPE, messages=(99, *SHAPE.messages[1:])), PrefixChange.SYSTEM_PROMPT, "the system prompt changed"),
    (replace(SHAPE, date="25 Nov 2026"), PrefixChange.DATE, "the date that the chat template writes changed"),
    (replace(SHAPE, options={}), PrefixChange.OPTIONS, "the template's options changed (enable_thinking)"),
    (replace(SHAPE, tools=(("read", 1), ("list", 9), ("find", 4))), PrefixChange.TOOLS,
     "the tools changed (added: find; removed: write; written differently: list)"),
    (replace(SHAPE, tools=SHAPE.tools[::-1]), PrefixChange.TOOLS, "the tools changed (in another order)"),
    (replace(SHAPE, tools=()), PrefixChange.TOOLS, "the tools changed (removed: read, write, list)"),
    (with_history(11, 12, 90, 14), PrefixChange.HISTORY, f"{CHANGED_AT} 3 (user): it was rewritten"),
    (with_history(11, 12, 15, 16), PrefixChange.HISTORY, f"{CHANGED_AT} 3 (user): 2 messages before it left out"),
    (with_history(11, 90, 12, 13, 14, 15), PrefixChange.HISTORY, f"{CHANGED_AT} 2 (assistant): one message put in"),
    (with_history(11, 12), PrefixChange.HISTORY, f"{CHANGED_AT} 3: it ends there"),
])  # fmt: skip
def test_a_change_of_one_part_is_named(new: PromptShape, change: PrefixChange, words: str) -> None:
    """Law: each part is named by itself, with what of it is another."""
    assert explain(SHAPE, new) == ((change,), words)


def test_several_changes_are_all_named() -> None:
    """Law: nothing that changed is left out."""
    new = replace(SHAPE, messages=(99, 11, 98), roles=ROLES[:3], tools=(), options={"a": 1}, date="x")
    changes, words = explain(SHAPE, new)
    assert set(changes) == set(PrefixChange) - {PrefixChange.TEMPLATE, PrefixChange.NEW_CONVERSATION}
    assert words.count(";") == len(changes) - 1


def test_a_conversation_that_begins_is_no_change_of_the_other() -> None:
    """Law: without an answer in it, and with other first words, it is a new conversation, whatever its system prompt
    is; with the same first words, or an answer in it, it is the old one."""
    begun = PromptShape(head=1, messages=(77, 88), roles=("system", "user"))
    assert explain(SHAPE, begun)[0] == (PrefixChange.NEW_CONVERSATION,)
    for old in (replace(begun, messages=(77, 11)), PromptShape(messages=(88, 89), roles=("user", "assistant"))):
        assert PrefixChange.NEW_CONVERSATION not in explain(SHAPE, old)[0]


def test_where_no_part_changed_it_was_the_template() -> None:
    """Law: tokens that differ under an equal conversation, or one that only went on, are the template's doing."""
    longer = replace(SHAPE, messages=(*SHAPE.messages, 16), roles=(*ROLES, "assistant"))
    for new in (SHAPE, longer):
        assert explain(SHAPE, new)[0] == (PrefixChange.TEMPLATE,)


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, NAMES, st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_whatever_differs_is_found(old_names: list[str], new_names: list[str], old: list[int], new: list[int]) -> None:
    """Law: a part is named exactly where it differs, and a history exactly where it doesn't go on."""
    before = replace(with_history(100, *old), tools=tuple((name, 0) for name in old_names))
    after = replace(with_history(100, *new), tools=tuple((name, 0) for name in new_names))
    changes, _ = explain(before, after)
    assert (PrefixChange.TOOLS in changes) == (old_names != new_names)
    assert (PrefixChange.HISTORY in changes) == (new[: len(old)] != old)


def test_names_are_bounded() -> None:
    """Law: the words are short, whatever a client calls its tools and how many it has."""
    tools = tuple((f"{n}" * 500, n) for n in range(100, 400))
    _, words = explain(PromptShape(roles=("user", "assistant"), messages=(1, 2)), replace(SHAPE, tools=tools))
    assert len(words) < 1000
    assert "and 292 more" in words
