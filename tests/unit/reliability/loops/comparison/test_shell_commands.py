"""The one spelling of a command, and what tells of a run alone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.comparison import shell_commands
from reliability.loops.comparison.shell_commands import (
    Deed,
    read_deed,
    spell_command,
    spell_path,
    spell_query,
    tells_run,
)


@pytest.mark.parametrize(("one", "other"), [
    ("rm 'a b'", "rm a b"), ("echo $A", "echo '$A'"), ("echo a", "echo b"), ("sleep 5", "sleep 9"),
    ("echo a > f; make", "echo b > f; make"), ("echo a | sha1sum", "echo b | sha1sum"), ("a && b", "a || b"),
    ("a | b", "a; b"), ("make > a.log", "make > b.log"),
    ("cat > /tmp/a <<E\n1\nE\ncat /tmp/a", "cat > /tmp/b <<E\n1\nE\ncat /tmp/b"),
    ("cd", "cd ."), ("cat a | head -5 b", "cat a"), ("print(f(3))", "print(f)(3)"),
])  # fmt: skip
def test_commands_that_differ_in_more_are_spelled_apart(one: str, other: str) -> None:
    """Law: words, what is expanded, what is written, what a pipe carries and how commands hang together stay."""
    assert spell_command(one) != spell_command(other)


@given(st.text("ab 1'\"$(`)|&;<>\n\\#-=?/.{}:", max_size=60))
def test_any_line_has_a_spelling(line: str) -> None:
    """Law: any line can be spelled, and what is spelled is as long as the line and its signs at most."""
    assert len(spell_command(line)) <= 4 * len(line) + 1


def test_a_query_loses_what_makes_it_unlike_others() -> None:
    """Law: a cache-buster and a moment leave a query; a page, a day, a version and an id stay."""
    assert spell_query("http://x/y?_=17&a=b&ts=9&v=1764205013") == spell_query("http://x/y?a=b&cb=x")
    for query in ("page=2", "t=2026-11-27", "v=2.1", "id=9f3c2a1b7d", "time=10:00:00"):
        assert spell_query(f"http://x/y?{query}") == f"http://x/y?{query}"
    assert shell_commands.is_run_header("Date: Thu, 27 Nov 2026 01:02:11 GMT")
    assert not shell_commands.is_run_header("Authorization: Bearer 9f3c2a1b7d")


def test_a_wait_is_short() -> None:
    """Law: a long text under the name of a wait is content."""
    assert tells_run("timeout", "30s")
    assert not tells_run("timeout", "the server gives up " * 3)
    assert not tells_run("message_id", "9f3c2a1b7d")
    assert re.fullmatch(r"make log ; tail log", spell_command("make >/tmp/1; tail /tmp/1"))


WRITING = """echo x > a.txt;printf on > /sys/class/leds/l/trigger;jq . a >> b;tee -a log < x;cat a | tee b;ls &> a
sort -o a a;sort --output=a a;curl -o f http://x;curl -sO http://x;curl -sX PUT http://x;curl -sd a http://x;> a
curl 'http://x/0?turn=on';sed 1d -i a;sed --in-place s/a/b/ f;sed -n -Ei p f;yq -i .a f;git log --output=a
awk '{print > "o"}' a"""
LOOKING = """ls;cat a 2>/dev/null;cat a >&2;grep x a 2>&1;jq . a > /dev/null;cat a | tee;sort -k2 -n a;sed -n 1,5p a
curl -so /dev/null http://x;curl -fsSL http://x;curl -X GET http://x?page=2;curl --output - http://x;ls > $null
awk '$3 > 5 {print $1}' a;[ 1 -gt 0 ];git diff --output-indicator-new=x"""


@pytest.mark.parametrize("around", ["{}", "cd /srv && {}", "sudo {}", "{}; true", "if true; then {}; fi", "ssh h {}"])
def test_a_command_that_writes_a_file_does_not_only_look(around: str) -> None:
    """Law: a redirection to a file, an option that writes one and what is sent make a look a deed; what is thrown away
    does not."""
    writing, looking = (re.split("[;\\n]", commands) for commands in (WRITING, LOOKING))
    assert [c for c in writing if read_deed(around.format(c)) in (Deed.LOOKS, Deed.ASKS)] == []
    assert [c for c in looking if read_deed(around.format(c)) is not Deed.LOOKS] == []


@pytest.mark.parametrize(
    "line", ["kubectl get pods > a; cat a", "kubectl get pods | tee a | grep b", "docker logs x | grep e > a"]
)
def test_what_another_system_was_asked_may_be_kept(line: str) -> None:
    """Law: a line that asks how another system stands asks, though it keeps the answer in a file."""
    assert read_deed(line) is Deed.ASKS


@pytest.mark.parametrize("name", ["x", "y", "xt", "x_t", "id", "page", "zoom"])
def test_a_field_that_says_what_is_asked_stays(name):
    """Law: a coordinate is no cache-buster: two tiles of a map are two."""
    assert spell_query(f"http://a/tile?{name}=1&k=2") != spell_query(f"http://a/tile?{name}=3&k=2")


@pytest.mark.parametrize("one", ["http://a/b", "http://a/b?c=1"])
def test_a_place_on_a_page_is_that_page(one):
    """Law: an anchor and a slash at the end name no other page; the route of an application does."""
    assert {spell_query(one + end) for end in ("", "/", "#", "#top", "#part-2", "/#top")} == {one}
    assert spell_query(f"{one}#/cart") != spell_query(f"{one}#/login")


@pytest.mark.parametrize("path", ["a.py", "/r/a.py", "../a.py", "../../a.py", "r/s/a.py"])
def test_a_path_has_one_spelling(path):
    """Law: a folder that is entered and left again, this folder, and a second slash are no part of a path."""
    head, _, name = path.rpartition("/")
    folder = f"{head}/" if head else ""
    assert {spell_path(f"{folder}{way}{name}") for way in ("", "x/../", "x/.././", "./")} == {path}
    assert spell_path(path.replace("/", "//")) == path
