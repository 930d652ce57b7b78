"""ECMA 262's regular expressions, in RE2's dialect."""

import pytest

from reliability.tools.schema.patterns import translate


@pytest.mark.parametrize(("pattern", "text", "matches"), [
    ("^a$", "a\n", False), ("^(?<year>\\d{4})$", "2031", True), ("^(?P<year>\\d{4})$", "2031", True),
    ("^\\d+$", "٣", False), ("^\\w+$", "é", False), ("^\\s$", "\ufeff", True), ("^\\s$", "\v", True),
    ("^[^\\S]$", "\u2003", True), ("^[\\s\\S]$", "x", True), ("^[\\S]$", "\u2003", False), ("^.$", "\u2028", False),
    ("^.$", "😀", True), ("^\\u0041\\x41\\cJ$", "AA\n", True), ("^\\ud83d\\ude00\\u{1F600}$", "😀😀", True),
    ("^[\\u0000-\\u001f]$", "\x07", True), ("^[\\b]$", "\b", True), ("a\\/b", "a/b", True), ("[$]", "$", True),
    ("^[^]$", "\n", True), ("^[]$", "", False), ("^[[:alpha:]]+$", "a", False), ("^[[:alpha:]]+]$", ":al]", False),
    ("^[\\w-.]+$", "a-b.c", True), ("^[+--]$", ",", True), ("^[\\]]$", "]", True), ("^(?:ab|cd)+$", "abcd", True),
    ("^(?=x)x{2,3}$", "xx", True), ("^(?=.*[A-Z])(?=.*\\d)(?!.*\\s).{8,}$", "Abcdefg1", True),
    ("^(?=.*[A-Z])(?=.*\\d)(?!.*\\s).{8,}$", "abcdefg1", False),
    ("^(?=.*[A-Z])(?=.*\\d)(?!.*\\s).{8,}$", "Abcdefg 1", False),
    ("^(?!a|b)\\w$", "c", True), ("^(?!a|b)\\w$", "b", False), ("^\\w+@\\w+\\.\\w+$", "a@b.c", True),
    ("b", "abc", True), ("{x", "{x", True), ("^{a}$", "{a}", True), ("^a{,2}$", "aa", True),
    ("^.{1,2000}$", "a" * 2000, True), ("^.{1,2000}$", "a" * 2001, False), ("^[^x]{3000,}$", "é" * 3000, True),
    ("^[^x]{3000,}$", "é" * 2999, False), ("^a+?$", "aaa", True), ("^\\p{Lu}\\p{Script=Greek}\\p{L}$", "Aαb", True),
    ("\\Aab\\Z", "ab", True), ("\\Bb", "ab", True), ("\\bb", "ab", False), ("^\\$\\{[A-Z]+\\}$", "${A}", True),
    ("", "anything", True),
])  # fmt: skip
def test_patterns_mean_what_ecma_says(pattern, text, matches):
    """Anchors, classes, escapes and groups are read as JSON Schema means them."""
    assert translate(pattern).allows(text) is matches
