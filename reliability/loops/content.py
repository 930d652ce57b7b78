"""What a message says, and whether the user said it.

Not the user's are tool results in a user-role message and what stands beside them, reminders that a harness wraps in
its tags, and our own nudges. Parts that are no text stand in a text by their digest; a long one is sampled first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from reliability.loops import built_things
from reliability.loops.built_things import DOES_ELSEWHERE, LEADS, MADE_AGAIN, REPEATED, SAYS_WHERE, is_of_built_thing
from reliability.loops.comparison.findings import digest, dumps
from reliability.loops.comparison.volatile_fields import phrase_set
from reliability.loops.endless_orders import orders_repetition
from reliability.loops.nudges import NUDGES
from reliability.tools.turns import HARNESS_TAGS

Message = dict[str, Any]

_SAMPLE_CHARS = 8_192
#: Every message that this server injects starts like this, so that it is never mistaken for the user.
NOTICE = "[Reliability notice"
#: A text that is made of such elements and nothing else; each is read once.
_WRAPPED = re.compile(rf"(?:\s*+(?><({'|'.join(HARNESS_TAGS)})>.*?</\1>))++\s*+", re.DOTALL)
#: How messages begin that a harness writes in the user's name: the state of the files, the result of a check.
_REPORTS = re.compile(
    r"\s*(?:I have \*added these files|I updated the files\b|These files have been added"
    r"|Here are summaries of some files|Here are (?:some )?READ ONLY files|I am working with you on code in a git repo"
    r"|The above context|\[?(?:Tool|Command) (?:result|output)|<(?:tool_response|function_results?|observation|output)>"
    r"|Observation ?\d{0,3}:|\[\w+ for '[^'\n]{0,200}'\] Result)",
    re.IGNORECASE,
)
#: How a part begins in which a harness (qwen-code's) restores something behind a summary.
_RESTORES = re.compile(
    r"\s*(?:Recently accessed file \(|The following files were recently accessed|Recent visual snapshots preserved)"
)
#: A time of day or a date: the same words at another time ask the same.
CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?)?|\b\d\d?:\d\d(?::\d\d)?(?: ?[ap]m)?\b", re.IGNORECASE
)
#: How a harness urges on an agent that has answered without a call, or can't read what it has answered.
_URGES = re.compile(
    r"(?:\[[^\]\n]{0,60}\d:\d\d[^\]\n]{0,20}\]|[\W\d])*+(?:please |now )?(?:continue|go on|keep (?:going|working)"
    r"|proceed|carry on|error|no tool|you (?:did not|didn't|have (?:not|sent|mis\w+)|haven't|must|need to|forgot)"
    r"|(?:re)?try again|no (?:valid |executable )?(?:tool|function|action|command|code)(?: call| block)?s? "
    r"(?:was|were|are|found|in your)"
    r"|(?:remember to |always )?(?:use|call|invoke|provide|give|respond with|answer with|output) "
    r"(?:(?:a|an|the|your|one|exactly|only|of|at least|valid|available|next) ){1,4}(?:tools?|functions?|actions?"
    r"|commands?|json)"
    r"|(?:invalid|malformed|unparsable|empty|missing) (?:tool|function|action|format|response|output|json|answer)"
    r"|(?:format|pars(?:e|ing|er))(?:ting)? error|(?:i |we )?(?:could not|couldn't|cannot|can't|failed to) parse"
    r"|(?:your|the) (?:last |previous |latest )(?:output|response|answer|reply|message)"
    r"|your (?:output|response|answer|reply|message) (?:was|is|did|does|has|had|could|must|contains?|lacks?|isn't"
    r"|wasn't)|if you (?:have|are) (?:completed|finished|done)|what is (?:the|your) next (?:step|action|command)"
    r"|determine (?:exactly|the next|which))\b",
    re.IGNORECASE,
)
_GO_ON = phrase_set(
    "|continue|please continue|go on|please go on|keep going|proceed|please proceed|go ahead|carry on|resume|ok|okay"
    "|next|keep working|continue working|continue working on it|please continue working on it"
    "|please continue working on the task"
)
_GO_ON_CHARS = max(map(len, _GO_ON))
NUMBER_MAX, _REQUEST_CHARS, _CLAUSE_CHARS, _SHORT_CHARS = 200, 2_000, 160, 40
_NUMBER = re.compile(r"(?<![\w.,:/#$€£-])\d{1,3}(?![\w%°]|[.,:/-]\d)|[^\W\d_]+")
#: Money, times, sizes and shares, which say how much, and the plural that says how many.
_UNIT = (
    r"(?:euros?|eur|dollars?|usd|bucks?|pounds?|gbp|yen|cents?|francs?|rupees?|pesos?|coins?|credits?"
    r"|(?:milli|micro)?seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|nights?|weeks?|months?|years?|o'clock|am|pm"
    r"|sekunden?|minuten?|stunden?|tagen?|wochen?|jahren?|words?|characters?|chars|tokens?|bits?|bytes?"
    r"|[kmgt]i?b|[cmk]?m|[mk]?g|ml|px|fold|percent|prozent|degrees?|grad)\b"
)
_PLURAL = (
    r"(?:(?!(?:for|of|in|to|at|on|with|and|from|that|so|by)\b)[\w'-]{1,20} ){0,2}?"
    r"(?!(?:this|was|has|its|does|plus|always|perhaps)\b)(?:[a-z-]{3,20}(?<!s)s|dice"
    r"|people|children|(?:wo)?men|mice|feet|teeth|sheep)\b"
)
_MEASURES, _MANY = re.compile(rf"[ -]?{_UNIT}"), re.compile(rf" {_PLURAL}")
#: Before a number that only names one of them, where no plural follows ("close ticket 88"), or tells an age.
_NAMED_BY = re.compile(
    r"\b(?:rooms?|tickets?|issues?|invoices?|pages?|lines?|chapters?|steps?|versions?|ports?|pull requests?|pr|tasks?"
    r"|numbers?|nr|no|ids?|bugs?|cases?|levels?|tables?|seats?|gates?|flights?|channels?|users?|accounts?|builds?"
    r"|releases?|questions?|problems?|sections?|parts?|phases?|stories|story|items?|records?|orders?|jobs?|runs?|errors?"
    r"|codes?|status|python|node|java|turns|turned|aged?|zimmer|seite|zeile|rechnung|aufgabe)[ .:#]{0,3}$"
)
#: A verb of doing whose number follows, in its own clause or list.
_DOES = re.compile(
    rf"(?:{LEADS}(?:add|append|allocate|approve|archive|ask\b.{{0,30}} with|assign|attach|attack|bake|bet|book|brew"
    r"|bring|build|buy|cancel|cast|chop|claim|clear|click|clone|close|collect|copy|craft|create|cut|deal|delete|deploy"
    r"|deposit|dig|discard|dispense|do|drag|draw|drop|eat|feed|fetch|fill|fire|flip|fold|gather|generate|get|give|go"
    r"|grab|harvest|have|hire|insert|invite|issue|jump|label|launch|load|log|mail|make|mine|mint|move|open|order|pay"
    r"|perform|pick|place|plant|play|post|pour|prepare|press|print|process|produce|provision|pull|purchase|push|put"
    r"|record|recruit|refill|register|remove|rent|reserve|review|ring|roll|run|schedule|scroll|sell|send|set up|share"
    r"|shoot|skip|spawn|spend|spin|stack|start|step|submit|summon|swap|swipe|take|tap|throw|toss|trade|train"
    r"|turn(?: on| off)?|type|unlock|upload|use|vote|walk|water|write|(?:bau|bestell|buch|drück|erstell|füg|gieß|hol"
    r"|kauf|klick|leg|mach|nehm|öffn|pflanz|reservier|samm?l|schick|schreib|send|start|würfl|zieh)(?:e|en)?|gib|nimm|wirf"
    r"|(?:achet|achèt|ajout|appui|cliqu|command|cré|donn|envoi|génèr|insèr|lanc|ouvr|réserv)(?:e[sz]?|er)|fais|mets"
    r"|prends|abre|agrega|añade|compra|crea|dame|envía|genera|haz|inserta|manda|pide|pon|pulsa|reserva|tira|toma|aggiungi"
    rf"|ordina|adicione|compre|crie|envie|ponme|show|tell|{DOES_ELSEWHERE})"
    r"|\b(?:needs?|wants?|(?:'d|would|'ll|will) (?:like|have|take)|möchten?|brauche"
    r"|quiero|necesito|je veux|voudrais))\b"
    r"(?:(?!\b(?:for|to|at|in|on|of|about|under|over|above|below|than|from|within|per|if|when|because|while|whose|that"
    r"|which|who|is|are|was|were|has|have|with|number|priority|für|um|auf|unter|über|aus|wenn|weil|dass|sobald|pour|sous"
    rf"|quand|si|para|cuando|que|{SAYS_WHERE})\b)[^,])"
    r"{0,60}(?:,(?:[^,]{0,40},)* (?:[^,]{0,40}\b(?:and|und|et|y) )?)?$"
)
#: Words that order one thing after another, and what is checked, before the number of such things.
_EACH = re.compile(
    rf"\b(?:each|every) (?!{_UNIT}|time\b|\d|few|other)|\ball (?:of )?(?:the|these|those|my|our|its|their)\b"
    r"|\b(?:them|they|these|those) all\b|\ball (?!this|is|was|has|does)(?:[\w-]+ )?\w{2,}s\b|\bwhich of\b"
    r"|\bwhich (?:[\w-]+ )?[\w-]{2,}(?<!s)s (?:are|can|have|do|were|still|may)\b"
    r"|\bone (?:by|after) (?:one|another|the other)\b|\bone at a time\b|\b(?:jede[nrsm]?|alle[nr]?|nacheinander|chaque"
    r"|tous les|toutes les|cada|tod[ao]s|ogni|tutt[ie])\b(?! \d)|每个|每一|所有|哪些"
)
_CHECKS = re.compile(
    r"\b(?:check|verify|validate|test|try|ping|probe|look up|scan|fetch|query|resolve|call|read|open|compare|review"
    r"|find|visit|confirm|make sure|list|show|tell me|see|which|(?:über)?prüfe?|vérifie[rz]?|comprueba|verifi(?:ca|que)"
    r")\b"
)
#: Words behind `|` count only before a word for "times": elsewhere they are other words ("due", "sei", "sex").
_NUMBERS = """
2 two twice zwei zweimal dos deux
3 three thrice drei dreimal tres trois | tre três трижды три trzy drie
4 four vier viermal cuatro quatre | quattro quatro fyra четыре cztery
5 five fünf fünfmal cinco cinq | cinque fem пять pięć vijf
6 six sechs sechsmal seis | sei sex шесть sześć zes
7 seven sieben siebenmal siete sept | sette sete sju семь siedem zeven
8 eight acht achtmal ocho huit | otto oito åtta восемь osiem acht
9 nine neun neunmal nueve neuf | nove nio девять dziewięć negen
10 ten zehn zehnmal diez dix | dieci dez tio десять dziesięć tien
11 eleven elf onze | once
12 twelve dozen zwölf zwölfmal dutzend doce docena douze douzaine | dodici doze tolv двенадцать dwanaście twaalf
13 thirteen dreizehn trece treize
14 fourteen vierzehn catorce quatorze
15 fifteen fünfzehn quince quinze | quindici femton пятнадцать piętnaście vijftien
16 sixteen sechzehn dieciséis seize
17 seventeen siebzehn siebzehnmal diecisiete
18 eighteen achtzehn dieciocho
19 nineteen neunzehn neunzehnmal diecinueve
20 twenty zwanzig zwanzigmal veinte vingt | venti vinte tjugo двадцать dwadzieścia twintig
30 thirty dreißig treinta trente | trenta trinta trettio тридцать trzydzieści dertig
40 forty vierzig cuarenta quarante
50 fifty fünfzig cincuenta cinquante | cinquanta cinquenta femtio пятьдесят pięćdziesiąt vijftig
60 sixty sechzig sesenta soixante
100 hundred hundert cien cent | cento cem hundra сто sto honderd
"""
_ROWS = [row.partition("|") for row in _NUMBERS.strip().split("\n")]
_NUMBER_WORDS = {word: int(words.split()[0]) for words, _, _ in _ROWS for word in words.split()[1:]}
_COUNTS = {word: int(words.split()[0]) for words, _, more in _ROWS for word in more.split()} | _NUMBER_WORDS
_TENS = re.compile(r"\b(twenty|thirty|forty|fifty|sixty)[- ](one|two|three|four|five|six|seven|eight|nine)\b")
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = "一二三四五六七八九十"
_FIGURE = re.compile(rf"[\d{_CHINESE}]")
#: How often: "10", "1,000", "10-12", "ten (10)", "ten", before what is repeated, or behind "x" or a verb of making.
_COUNT_FORM = r"1000|1[,.]000|\d{1,3}|[^\W\d_]{2,14}"
_COUNT = f"({_COUNT_FORM})"
_START = r"(?<![\w.,:/#$€£-])"
_TIMES = re.compile(
    rf"{_START}(?:(?:\d{{1,3}} ?(?:-|–|to|or|bis|à|a) ?)?{_COUNT}\)? ?-?"
    r"(?:(?:more|further|weitere|test|timed|warm-?up) |\w{4,12}(?:ate|ive|ical) )?"
    rf"{REPEATED}"
    r"|(\d{1,3})x\b|([^\W\d_]{4,20})(?<=mal)\b|(twice|thrice)\b"
    r"|(?<!\d )[x×] ?(\d{1,3})(?= ?(?:$|[.,;!?)\n]))"
    rf"|(?:loop|series|batch) of {_COUNT}\b"
    rf"|(?:take|run|do|make|collect|record|gather|perform|get|give \w+) {_COUNT}\)? (?:[\w-]{{2,12}} ){{0,2}}?"
    r"(?:samples|trials|tries|data points|trial runs|flips|rolls|spins|tosses)\b"
    rf"|(?:draw|roll|flip|toss|generate|create|add|insert|make|do|perform|execute|send) "
    rf"(?P<made>{_COUNT_FORM}) (?!{_UNIT})(?={_PLURAL}))"
    r"|(?<![\d.第])(\d{1,3}) ?[次遍回번]|([一二三四五六七八九十]{1,3}) ?[次遍回]"
)
#: Between two of them, where the one comes to the other; behind it, a comparison or a rate.
_JOINED = re.compile(r"\b(?:runs|rounds|trials|samples|times) (?:and|plus) (?:then )?$")
_COMPARES = re.compile(r" (?:as|a|an|the|per|out|more|less|better|(?!over\b)\w{2,12}er)\b")
#: Before it: a report of what has happened, a question why, a ban.
_REPORTS_TIMES = re.compile(
    r"^(?!.*\b(?:until|before)\b).*(?:\b(?:why|warum|pourquoi|don't|do not|never|nicht|jamais)\b"
    r"|\b(?:fail(?:s|ed|ing)|crash(?:es|ed|ing)|happen(?:s|ed)|occur(?:s|red)|appears|broke|breaks|went|died|hung|ran|took"
    r"|(?:the|these|those|last|past|previous)"
    r"|(?:has|have|had|was|were|been|i|we|it|they|he|she|that|this) (?:\w{1,12} )?(?!need)\w{2,12}ed)"
    r"(?: (?:it|them|this|already|about|around|at least|up to))? $)"
    r"|^\W*(?:(?:and|but|so|because|while|then|when|if) )?(?!.*\b(?:want|needs?|should|must|shall|would|like|could|can"
    r"|will|please|ha(?:ve|s) to)\b)(?:(?:(?:i|we|they|he|she|it|this|that|there)(?!'(?:d|ll)\b)"
    r"|you(?= did| were| have|'ve))\b"
    r"|(?:the|my|our) [\w-]+ (?:[\w-]+ )?(?:is|are|was|were|has|have|gets?|runs?|calls?|fires?|loops?|does|do)\b)"
)
_SENTENCE = re.compile(r"[.;:!?]+(?:\s|$)|[\n。！？]|,\s(?!(?:bis|sobald|wenn)\b)")
_LINE = re.compile(r"[.;:!?]+\s|[\n。！？]")


def text_of(content: Any) -> str:
    """Return the text of a message's content; parts that are no text stand in it by their digest."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        return dumps(content)
    texts = ((part, _read_text(part)) for part in content)
    return "\n".join(_mark_part(part) if text is None else text for part, text in texts)


def _mark_part(part: Any) -> str:
    """Write a part that is no text as `PART` reads it; a mark for a prompt cache is none of it."""
    if isinstance(part, dict):
        part = {key: value for key, value in part.items() if key != "cache_control"}
    return f"<part {digest(dumps(_sample(part)))}>"


def _read_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    text = part.get("refusal" if part.get("type") == "refusal" else "text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else None


def _sample(value: Any, depth: int = 8) -> Any:
    """Thin out every long text of the value (most often an image), so that its digest stays cheap."""
    if isinstance(value, str) and len(value) > _SAMPLE_CHARS:
        return [len(value), value[:1024], value[:: len(value) // _SAMPLE_CHARS + 1], value[-1024:]]
    if isinstance(value, dict) and depth:
        return {str(k): _sample(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list) and depth:
        return [_sample(v, depth - 1) for v in value]
    return value


def read_own_text(message: Message) -> str:
    """Return the text of a message, else its refusal, without its tool results, call and reasoning blocks, and without
    what a harness restores in parts of their own."""
    return "\n".join(text for text in _list_texts(message) if not _RESTORES.match(text))


def _list_texts(message: Message) -> list[str]:
    content = message.get("content") or message.get("refusal")
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    return list(filter(None, map(_read_text, parts)))


def drop_elements(text: str) -> str:
    """Drop what a harness adds in its elements; one that doesn't end stays."""
    for tag in HARNESS_TAGS:
        head, *parts = text.split(f"<{tag}>")
        cut = ((part, *part.partition(f"</{tag}>")) for part in parts)
        text = head + "".join(behind if closed else f"<{tag}>{part}" for part, _, closed, behind in cut)
    return text


class Who(Enum):
    """What a user-role message turned out to be."""

    NOBODY = 1  # tool results and what stands beside them, a harness's reminder, our own nudge
    REPORTS = 2  # a harness, in the user's name
    GOES_ON = 3
    SPEAKS = 4


def list_other_parts(message: Message) -> list[Message]:
    """Return the parts of a user-role message that are no text: images, files."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and _read_text(part) is None]


def classify_speaker(message: Message) -> Who:
    """Tell whether a user-role message could be the user's own, is a bare "go on", a harness's report, or nobody's."""
    text = read_own_text(message)
    if text.startswith(NOTICE) or text in NUDGES or _WRAPPED.fullmatch(text):
        return Who.NOBODY
    if _REPORTS.match(text) or (not text and _list_texts(message)):
        return Who.REPORTS
    if list_other_parts(message) or not isinstance(message.get("content") or "", (str, list)):
        return Who.SPEAKS
    words = drop_elements(text).strip().strip(".!… ")
    return Who.GOES_ON if len(words) <= _GO_ON_CHARS and words.lower() in _GO_ON else Who.SPEAKS


def urges_on(message: Message) -> bool:
    """Return whether a message orders no more than to go on, or to use a tool at all."""
    return _URGES.match(read_own_text(message)) is not None


class PersonsOrder(NamedTuple):
    """What a person orders: the largest number that is named, how often a thing is to be done ("ten times", "6x",
    "zehnmal"), each at most `NUMBER_MAX` and 0 where there is none, and whether repetition is ordered without one.
    `again`: `times`, where the very call is to be repeated, whatever it is, and not so many things are to be made.
    `each`: how many things are to be looked at, one after another; 1 where it is each of them, without a number."""

    number: int = 0
    times: int = 0
    endless: bool = False
    again: int = 0
    each: int = 0


NO_ORDER = PersonsOrder()


def read_order(text: str) -> PersonsOrder:
    """Read what a request orders, beside what a harness adds; a longer one than `_REQUEST_CHARS` orders nothing."""
    lower = drop_elements(text).lower()
    if len(lower) > _REQUEST_CHARS:
        return PersonsOrder()
    endless = any(orders_repetition(lower, *span) for span in _find_parts(_SENTENCE, lower))
    times, again = _read_times(lower)
    each = _count_things(lower) or int(_EACH.search(lower) is not None)
    return PersonsOrder(max(times, _read_number(lower)), times, endless, again, each)


def _count_things(lower: str) -> int:
    """Return how many things are to be checked, as the largest number before a plural tells."""
    text = _TENS.sub(_write_figures, lower)
    found = ((match, _to_number(match[0])) for match in _NUMBER.finditer(text))
    return max(
        (
            number
            for match, number in found
            if 1 < number <= NUMBER_MAX
            and not _MEASURES.match(text, match.end())
            and _MANY.match(text, match.end())
            and _CHECKS.search(_LINE.split(text[max(0, match.start() - _CLAUSE_CHARS) : match.start()])[-1])
        ),
        default=0,
    )


def _to_number(word: str) -> int:
    return int(word) if word.isdecimal() else _NUMBER_WORDS.get(word, 0)


def _find_parts(ends: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and ends that one of these ends."""
    begin = 0
    for match in ends.finditer(text):
        yield begin, match.start()
        begin = match.end()
    yield begin, len(text)


def _read_number(lower: str) -> int:
    text, most = _TENS.sub(_write_figures, lower), 0
    for match in _NUMBER.finditer(text):
        number = _to_number(match[0])
        if most < number <= NUMBER_MAX and _counts(text, match):
            most = number
    short = len(text) <= _SHORT_CHARS and not built_things.TELLS_OF.search(text)
    counted = [_read_count(found[1]) for found in built_things.COUNTED.finditer(text)] if short else []
    return max(most, *[number for number in counted if number <= NUMBER_MAX], 0)


def _write_figures(ten: re.Match[str]) -> str:
    return str(_NUMBER_WORDS[ten[1]] + _NUMBER_WORDS.get(ten[2], 1))


def _counts(text: str, number: re.Match[str]) -> bool:
    """Return whether a number says how many are to be made or done. A short request may be the number alone."""
    if _MEASURES.match(text, number.end()):
        return False
    before = text[max(0, number.start() - _CLAUSE_CHARS) : number.start()]
    line = _LINE.split(before)[-1]
    if _REPORTS_TIMES.search(_SENTENCE.split(line)[-1]):
        return False
    if not _DOES.search(line) and (len(text) > _SHORT_CHARS or line not in ("", "a ", "bitte ")):
        return False
    return _NAMED_BY.search(before) is None or _MANY.match(text, number.end()) is not None


def _read_times(lower: str) -> tuple[int, int]:
    most = again = 0
    for begin, end in _find_parts(_SENTENCE, lower):
        part = lower[begin:end]
        if _FIGURE.search(part) is None and _COUNTS.keys().isdisjoint(_WORD.findall(part)):
            continue
        clause = _TENS.sub(_write_figures, part)
        for match in _TIMES.finditer(clause):
            before = clause[max(0, match.start() - _CLAUSE_CHARS) : match.start()]
            added = " more " in match[0] or _JOINED.search(before) is not None
            count = _read_count(next(filter(None, match.groups()))) + most * added
            if match["made"] and count > NUMBER_MAX:
                continue  # "make 404 pages look nicer"
            if _COMPARES.match(clause, match.end()) or _REPORTS_TIMES.search(before):
                continue
            most = max(most, count)
            shown = f"{lower[:begin]}{clause[: match.start()]}"
            repeats = not match["made"] or MADE_AGAIN.match(clause, match.start())
            if count > again and repeats and not is_of_built_thing(shown, len(shown), len(shown)):
                again = count
    return min(most, NUMBER_MAX), min(again, NUMBER_MAX)


def _read_count(word: str) -> int:
    if word[0].isdecimal():
        return int(word.replace(",", "").replace(".", ""))
    if word[0] not in _CHINESE:
        return _COUNTS.get(word, 0)
    tens, ten, ones = word.rpartition("十")
    return 10 * (_CHINESE.find(tens[-1:]) + 1 or 1) * bool(ten) + (_CHINESE.find(ones[-1:]) + 1 if ones else 0)
