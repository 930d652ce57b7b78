"""The encoding of values by their types: everything arrives equal, and nothing else arrives."""

import dataclasses
import functools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers

from deployments.state.records import Item, Reply, StateLimits, StateStep, StepAnswer, StepRequest
from deployments.work.wire import Codec, Named, codec_of, find_class, name_of
from reliability.loops import LoopConfig, Memo
from reliability.steps import Steps
from reliability.types import Event
from tests.support.incarnations import tight

# Halves of surrogate pairs and integers beyond 64 bits: what a client or a model may send.
texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "a\udfff", "\U0001f600", "\x00"])
numbers = st.integers(-(2**70), 2**70)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=20, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", [StateStep, Reply, *Item.__args__, StepRequest, StepAnswer, *Event.__args__])
def test_every_value_of_the_state_arrives_equal(kind, data):
    """Whatever stands in its fields, of whatever length or spelling."""
    value = data.draw(build(kind))
    codec = codec_of(kind)

    assert codec.decode(codec.encode(value)) == value


def build(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type: of `int` any, of `Any` what JSON has, of text any text."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return plain
    if kind is int:
        return numbers
    if kind is str:
        return texts
    if kind is float:
        return st.floats(allow_nan=False)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return st.builds(kind, **{name: build(hint) for name, hint in typing.get_type_hints(kind).items()})
    if origin is tuple and args[1:] == (...,):
        return st.lists(build(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(build, args))
    if origin is Mapping or (origin is not None and origin.__name__ == "Mapping"):
        return st.dictionaries(texts, build(args[1]), max_size=2)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if args:
        return st.one_of(*map(build, args))
    return st.from_type(kind)


def test_limits_arrive_equal():
    """Those of the loops are pydantic's."""
    limits = dataclasses.replace(tight(7), loops=LoopConfig(window_size=9))
    codec: Codec[StateLimits] = codec_of(StateLimits)

    assert codec.decode(codec.encode(limits)) == limits


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | st.tuples(st.sampled_from([b"m", b"j"]), st.binary(max_size=80)).map(b"".join))
def test_other_bytes_are_refused(data):
    """One error, whatever they are."""
    with pytest.raises(ValueError, match=r"^this is no StateStep: "):
        codec_of(StateStep).decode(data)


@pytest.mark.parametrize("data", [b"m" + b"\x91" * 100_000, b"j" + b"[" * 100_000, b"m\xdd\xff\xff\xff\xff"])
def test_depth_and_announced_lengths_are_no_way_in(data):
    """Neither the stack nor the memory follows what bytes merely announce."""
    with pytest.raises(ValueError, match=r"^this is no"):
        codec_of(Any).decode(data)


@pytest.mark.parametrize("inner", [1, "\ud800"])
@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_what_is_nested_too_deeply_is_refused(wrap, inner):
    """Law: a value arrives, or `encode` raises ValueError: the sender then goes another way, and doesn't send the same
    step for ever."""
    codec = codec_of(Any)
    shallow = functools.reduce(lambda value, _: wrap(value), range(100), inner)
    deep = functools.reduce(lambda value, _: wrap(value), range(3_000), inner)

    assert codec.decode(codec.encode(shallow)) == shallow
    with pytest.raises(ValueError, match="nested too deeply"):
        codec.encode(deep)


class Color(StrEnum):
    """A choice."""

    RED = "red"


class Pair(NamedTuple):
    """A named tuple."""

    a: str
    b: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value with what msgspec knows."""

    color: Color
    pair: Pair
    raw: bytes
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Other:
    """With a value that says itself what it is."""

    wanted: Named = None


def test_unions_in_sequences_and_named_values():
    """What msgspec lacks: two dataclasses in one place, and one of any class."""
    leaf = Leaf(Color.RED, Pair("\ud800", 2**70), b"\x00\xff", frozenset({"x"}))
    codec: Codec[Sequence[Leaf | StateStep]] = codec_of(Sequence[Leaf | StateStep])
    value = [leaf, StateStep(client="c", number=1, config="d"), leaf]

    assert codec.decode(codec.encode(value)) == value
    named: Codec[Other] = codec_of(Other)
    step = StateStep(client="c", number=1, config="d")
    assert named.decode(named.encode(Other(step))) == Other(step)
    assert named.decode(named.encode(Other())) == Other()


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:Popen", "deployments.work.wire:os", "deployments.work.wire:codec_of", ":"]
)
def test_only_classes_of_this_program_are_found_by_name(name):
    """And only those that are imported already."""
    with pytest.raises(ValueError, match="of this program"):
        find_class(name, object)
    assert find_class(name_of(Codec), object) is Codec


def test_helpers_of_the_core_arrive_fit_for_use():
    """Steps as they were; a memo empty."""
    steps = codec_of(Steps | None).decode(codec_of(Steps | None).encode(Steps(7, final=True, owner="a")))

    assert (steps.left, steps.final, steps.owner) == (7, True, "a")
    assert isinstance(codec_of(Memo).decode(codec_of(Memo).encode(Memo())), Memo)


def test_headers_keep_a_name_that_comes_twice():
    """As a client may send it."""
    codec = codec_of(Mapping[str, str])
    twice = Headers(raw=[(b"a", b"1"), (b"b", b"\xe4"), (b"a", b"2")])

    assert codec.decode(codec.encode(twice)).items() == twice.items()
    assert codec.decode(codec.encode({"a": "1"})) == {"a": "1"}


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 1, StateStep])
def test_what_is_no_plain_value_is_refused(value):
    """By an error, and not by something else in its place."""
    with pytest.raises(TypeError):
        codec_of(Leaf | Other).encode(value)
