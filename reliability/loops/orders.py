"""How often a person asks for a thing: a number, so many times, or again and again.

The largest number of a request counts for steps alone (see `leading_steps`). "Ten times" and orders without a number
("every minute", "until I stop you") hold for any call. A complaint ("it fails again and again") is no order: it is told
by the words before it.
"""

from __future__ import annotations

import re

NUMBER_MAX, REQUEST_CHARS = 200, 2_000
_NUMBER = re.compile(r"(?<![\w.,:/#$€£-])\d{1,3}(?![\w%°]|[.,:/-]\d)")
_NUMBERS = """
2 two twice zwei zweimal dos deux
3 three thrice drei dreimal tres trois
4 four vier viermal cuatro quatre
5 five fünf fünfmal cinco cinq
6 six sechs sechsmal seis
7 seven sieben siebenmal siete sept
8 eight acht achtmal ocho huit
9 nine neun neunmal nueve neuf
10 ten zehn zehnmal diez dix
11 eleven elf once onze
12 twelve dozen zwölf zwölfmal dutzend doce docena douze douzaine
13 thirteen dreizehn trece treize
14 fourteen vierzehn catorce quatorze
15 fifteen fünfzehn quince quinze
16 sixteen sechzehn dieciséis seize
17 seventeen siebzehn siebzehnmal diecisiete
18 eighteen achtzehn dieciocho
19 nineteen neunzehn neunzehnmal diecinueve
20 twenty zwanzig zwanzigmal veinte vingt
30 thirty dreißig treinta trente
40 forty vierzig cuarenta quarante
50 fifty fünfzig cincuenta cinquante
60 sixty sechzig sesenta soixante
100 hundred hundert cien cent
"""
_NUMBER_WORDS = {word: int(number) for number, *words in map(str.split, _NUMBERS.strip().split("\n")) for word in words}
_TENS = re.compile(r"\b(twenty|thirty|forty|fifty|sixty)[- ](one|two|three|four|five|six|seven|eight|nine)\b")
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = "一二三四五六七八九十"
_FIGURE = re.compile(rf"[\d{_CHINESE}]")
_TIMES = re.compile(
    r"(?:(?<![\w.,:/#$€£-])(?:(\d{1,3}|[^\W\d_]{3,12}) ?-?(?:times|mal|veces|fois|volte|vezes|раза?)\b"
    r"|(\d{1,3})x\b|([^\W\d_]{4,20})(?<=mal)\b)"
    r"|(?<![\d.])(\d{1,3}) ?[次遍回번]|([一二三四五六七八九十]{1,3}) ?[次遍回])"
    r"(?! (?:as|a|an|the|per|out|more|less|better|\w{2,12}er)\b)",
)
_CLAUSE = re.compile(r"[.;:!?\n。！？]+|,\s")
_ENDLESS = re.compile(
    r"\b(?:again and again|over and over|time and again|repeatedly|continuously|indefinitely|endlessly|forever"
    r"|(?:every|each) (?:\d{1,3} |few |other )?(?:second|minute|hour|day|night|morning|tick)s?"
    r"|until (?:i|we) (?:stop|say|tell|interrupt|cancel|call)|until (?:further notice|(?:you're|you are|being) told"
    r"|stopped)|(?:don't|do not|never) stop (?:until|\w+ing)"
    r"|(?<!\w )keep (?:on )?(?:\w{2,10}ing and )?(?:poll|check|press|click|watch|monitor|refresh|ask|call|runn|send"
    r"|ping|query|repeat|scroll|tapp|add|mov|retry|test|roll|play|stepp|hitt)ing)\b"
    r"|\b(?:immer wieder|immer weiter|ununterbrochen|jede (?:sekunde|minute|stunde)|alle \d{1,3} (?:sek|min|stunden)\w*"
    r"|bis ich|una y otra vez|sin parar|cada (?:\d{1,3} )?(?:segundo|minuto|hora)s?|hasta que te|encore et encore"
    r"|sans (?:arrêt|cesse)|(?:chaque|toutes les) (?:\d{1,3} )?(?:seconde|minute|heure)s?|jusqu'à ce que je)\b"
    r"|每(?:隔)?\w{0,3}(?:秒|分钟|小时)|不断|反复|一直",
)
#: Words before it that make it a complaint, a report or a ban.
_TELLS = re.compile(
    r"\b(?:fail(?:s|ed|ing)|crash(?:es|ed|ing)|breaks|broke|happen(?:s|ed|ing)|occur(?:s|red|ring)|gets|got|goes|went"
    r"|sees|saw|dies|hangs|restarts|reloads|complains|loses|throws|raises|returns|keeps|not|never|\w+n't|why|stop|avoid"
    r"|without|instead|(?:is|are|was|were|been|being) \w+(?:ed|ing|en)|nicht|nie|niemals|warum|no|nunca|jamais|pas)\b"
    r"|不要|别",
)


def read_number(text: str) -> int:
    """Read the largest number that a short request names, in digits or in words; 0: none."""
    if len(text) > REQUEST_CHARS:
        return 0
    lower = text.lower()
    named = [_NUMBER_WORDS.get(word, 0) for word in _WORD.findall(lower)]
    named += [_NUMBER_WORDS[tens] + _NUMBER_WORDS[ones] for tens, ones in _TENS.findall(lower)]
    return max((n for n in (*named, *map(int, _NUMBER.findall(text))) if n <= NUMBER_MAX), default=0)


def read_times(text: str) -> int:
    """Read how often a short request says that a thing is to be done ("ten times", "6x", "zehnmal"); 0: it doesn't."""
    lower = text.lower() if len(text) <= REQUEST_CHARS else ""
    if _FIGURE.search(lower) is None and _NUMBER_WORDS.keys().isdisjoint(_WORD.findall(lower)):
        return 0
    named = (_read_count(next(filter(None, match.groups()))) for match in _TIMES.finditer(lower))
    return max((number for number in named if number <= NUMBER_MAX), default=0)


def _read_count(word: str) -> int:
    if word.isdecimal():
        return int(word)
    if word[0] not in _CHINESE:
        return _NUMBER_WORDS.get(word, 0)
    tens, ten, ones = word.rpartition("十")
    return 10 * (_CHINESE.find(tens[-1:]) + 1 or 1) * bool(ten) + (_CHINESE.find(ones[-1:]) + 1 if ones else 0)


def orders_endless(text: str) -> bool:
    """Return whether a short request orders repetition without a number."""
    lower = text.lower() if len(text) <= REQUEST_CHARS else ""
    return _ENDLESS.search(lower) is not None and any(map(_orders_endless, _CLAUSE.split(lower)))


def _orders_endless(clause: str) -> bool:
    found = _ENDLESS.search(clause)
    if found is None or _TELLS.search(clause, 0, found.start()):
        return False
    return bool(clause[: found.start()].strip()) or not _TELLS.search(clause, found.end())
