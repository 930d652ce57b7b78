"""Names and forms of the values that a run reports about itself.

Names are read as words: `executionTimeMs` is `execution_time_ms`. A value must have the form that goes with its name:
`duration: "return flight"` is content. In the patterns `v` is the value; what stands around it is a label and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from reliability.loops.comparison.findings import is_number

# The names of tools and fields are few and come again with every request; longer ones are read as their beginning.
_NAMES_KEPT, _NAME_CHARS = 4_096, 256
T = TypeVar("T")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, as a set."""
    return frozenset(text.split())


def phrase_set(text: str) -> frozenset[str]:
    """Return the phrases of a text, as a set; `|` stands between two."""
    return frozenset(text.split("|"))


def keep_by_name(read: Callable[[str], T]) -> Callable[[str], T]:
    """Keep what `read` finds in the names of tools and fields."""
    kept = lru_cache(_NAMES_KEPT)(read)

    @wraps(read)
    def read_beginning(name: str) -> T:
        return kept(name[:_NAME_CHARS])

    return read_beginning


@keep_by_name
def words_of(name: str) -> tuple[str, ...]:
    """Split a name into its words: `executionTimeMs` and `execution_time_ms` give the same."""
    return tuple(word.lower() for word in _WORD.findall(name[:80]))


STATUS_KEYS = ("status", "state", "phase", "stage", "job_status", "run_status", "build_status")
ONGOING_WORDS = phrase_set(
    "running|in progress|queued|building|starting|waiting|processing|executing|working|deploying|provisioning"
    "|downloading|uploading|installing|compiling|initializing|activating|creating|container creating|loading|training"
    "|evaluating|indexing|validating|syncing|progressing|transferring|rebuilding|stopping|terminating|draining"
    "|opening|closing|preparing|pulling|booting|enqueued|in queue|in review|under review|not started|not ready|warming"
    "|pending approval|pending review|waiting for approval|awaiting approval"
)
#: Words before and behind such a state that only name what it is the state of.
_SUBJECTS = word_set(
    "a the your is are be still currently now status state phase stage health job jobs build task tasks run deployment "
    "pipeline workflow process pod container instance cluster stack model index import export request operation create "
    "update delete rollback up seconds minutes minute hours hour"
)
_STATE_CHARS = 60
#: What says the same in other languages, alone or behind a subject: that it goes on, or that one is to wait.
_WAIT_ELSEWHERE = (
    r"请稍[候后等]|请等待|しばらくお待ちください|お待ちください|(?:잠시만 )?기다려 ?주세요"
    r"|bitte warten|veuillez patienter|patientez|(?:por favor,? )?(?:espere|espera|aguarde)|attendere(?: prego)?"
    r"|подождите|proszę czekać|even geduld"
)
_ONGOING_ELSEWHERE = re.compile(
    r"(?:[^\W\d_]{1,20}\s?[:：=]\s?)?"
    r"(?:(?!(?:nicht|kein\w{0,2}|pas|plus|no|non|não|niet|не|nie)\s)[^\W\d_]{1,15}\s){0,3}"
    r"(?:(?:[\u4e00-\u9fff]{0,6}?(?:正在|仍在|还在))?(?:处理|處理|処理|进行|進行|运行|運行|执行|執行|実行|部署|构建|編譯|编译"
    r"|排队|等待|待機|準備|准备|加载|下载|上传|安装|启动|起動|审核|同步|同期|生成|更新|训练)(?:中|して(?:い)?ます)(?:です)?"
    r"|[\u4e00-\u9fff]{0,6}?(?:正在|仍在|还在)[\u4e00-\u9fff]{1,6}"
    r"|(?:尚未|还没有?|還沒有?|まだ)[\u3040-\u30ff\u4e00-\u9fff]{2,12}"
    r"|(?:처리|진행|실행|대기|빌드|배포|준비|설치|다운로드) ?중(?:입니다|이다)?"
    r"|en (?:cours|attente|progreso|curso|proceso|ejecución|espera|cola|andamento|fila)(?: (?:de |d['’])\w{1,16})?"
    r"|em (?:curso|andamento|progresso|processo|execução|espera|processamento|fila)"
    r"|in (?:corso|esecuzione|attesa|coda|elaborazione|behandeling|uitvoering)"
    r"|in (?:Bearbeitung|Arbeit|Ausführung|Verarbeitung|der Warteschlange)"
    r"|läuft(?: noch| gerade)?|wird (?:gerade |noch )?\w{3,20}|wartet(?: noch)?|ausstehend|(?:is )?(?:nog )?bezig"
    r"|noch nicht (?:fertig|bereit|abgeschlossen)|pas encore (?:prêt|terminée?|fini)"
    r"|aún no (?:está )?(?:listo|terminado)"
    r"|procesando|ejecutando|pendiente|processando|executando|pendente|pågår|w toku|w trakcie|oczekuje"
    r"|bekleniyor|işleniyor|devam ediyor|выполняется|обрабатывается|ожидается|ожидает"
    r"|в (?:процессе|очереди|обработке)|ещё не готово"
    rf"|{_WAIT_ELSEWHERE})(?:\W{{1,3}}(?:{_WAIT_ELSEWHERE}))?\W{{0,3}}",
    re.IGNORECASE,
)


def names_state(text: str, states: frozenset[str]) -> bool:
    """Return whether a short text names one of these states, and what it is the state of, or one in another tongue."""
    if len(text) <= _STATE_CHARS and _ONGOING_ELSEWHERE.fullmatch(text.strip()):
        return True
    words = list(words_of(text)) if len(text) <= _STATE_CHARS else []
    if words[1:] and words[-1] == "up":
        words.pop()
    while words and " ".join(words) not in states and (words[0] in _SUBJECTS or words[0] in states):
        del words[0]
    return " ".join(words) in states


_DURATION_WORDS = word_set("duration elapsed took latency runtime walltime")
_TIMED = word_set(
    "execution exec response processing query request wall cpu run total real user sys taken render inference"
)
_FINE_UNITS = word_set("ms millis milliseconds us micros ns nanos")
_WHOLE_UNITS = word_set("s sec secs second seconds min mins minutes hours")
_STAMPS = word_set("timestamp ts epoch datetime at")
_MOMENT_WORDS = _STAMPS | word_set("time now date created expires")
_READINGS = word_set(
    """updated modified changed last next eta remaining left age uptime timeout interval delay
    departure departs arrival arrives due scheduled deadline progress"""
)
_ID_WORDS = frozenset({"id", "uuid", "guid"})
MARKED = word_set(
    "transaction conversation container operation delivery chunk request req trace span correlation message msg call "
    "execution exec run invocation event response resp log tool use process thread session shell"
)
_PID_WORDS = frozenset({"pid", "ppid", "tid", "nonce"})
_TRIES = word_set("already attempt attempts retry retries retried tries repetition repetitions")


_NUMBER = r"(?<![\d.,])\d{1,12}(?:[.,]\d{1,9})?"
_SMALL = r"(?:ns|us|µs|μs|ms|msecs?|milliseconds?)"
_SECONDS = r"(?:s|secs?|seconds?)"
_FINE = rf"(?:{_SMALL}|{_SECONDS})"
_UNIT = rf"(?:{_SMALL}|{_SECONDS}|m|mins?|minutes?|h|hours?)"
_LINK = r"(?:\s?\(\w{1,8}\))?[\"'\\\s:=#(>]{1,6}"
_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ISO = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
_DAY_MONTH = rf"(?:\d{{1,2}}\s+{_MONTH}|{_MONTH}\s+\d{{1,2}})"
_CTIME = (
    rf"{_DAY},?\s+{_DAY_MONTH}(?:,?\s+\d{{4}})?,?\s+\d\d:\d\d(?::\d\d)?(?:\s+[AP]M)?"
    r"(?:\s+(?:[A-Z]{2,5}\b|[+-]\d{4}))?(?:\s+\d{4})?"
)
_DATED = rf"\d{{1,4}}[-/.](?:\d{{1,2}}|{_MONTH})[-/.]\d{{2,4}}[ T,:]{{1,2}}{_CLOCK}(?:\s?(?:[AP]M|[+-]\d{{4}})\b)?"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_HEX = r"(?=[0-9a-f]{0,64}\d)(?=[0-9a-f]{0,64}[a-f])[0-9a-f]{8,64}"
_LABELS = (
    r"(?:request|req|trace|span|correlation|message|msg|call|execution|exec|run|invocation|event|response|session|"
    r"transaction|conversation|container|operation|delivery|chunk|shell)"
)
#: What an error gives to be quoted: the label begins a clause, and the value is no word and no name.
_QUOTED = (
    r"(?:(?:error|fail|exception|wrong|denied|unavailable|fehler|erreur|échec|falló)[^\n]{0,80}?[.,;(\[<–-]\s?"
    r"(?:ref|reference|referenz|referencia|référence|trace|event|case)"
    r"|\b(?:incident|ticket|support|error[ _-](?:ref|id)))"
)
_REFERENCE = (
    r"(?-i:[A-Z0-9]{6,40}|(?![A-Z]?[a-z]{2,}(?:[A-Z][a-z]{2,})*(?![\w+/]))(?=[a-z+/]{0,40}[A-Z0-9])[A-Za-z0-9+/]{8,80}={0,2})"
    r"(?![\w+/=-])"
)
_TIMED_LABEL = (
    r"(?:exec\w{0,8}|response|processing|query|request|wall|cpu|run|total|real|user|sys|elapsed)[ _-]?time|"
    r"time[ _-](?:taken|spent|elapsed)"
)


def _compile_patterns(*sources: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(source, re.IGNORECASE) for source in sources)


VOLATILE_FORMS = _compile_patterns(
    rf"(?<![\d-])(?P<v>{_ISO})",
    rf"(?<![\d-])(?P<v>{_DATED})",
    r"(?<!\d)(?P<v>20\d{6}[T_-]\d{6}Z?)\b",
    rf"\b(?P<v>{_CTIME})",
    rf"^(?P<v>{_MONTH}\s+\d{{1,2}}\s+{_CLOCK})",
    rf"\[(?P<v>{_CLOCK})\]",
    rf"^(?P<v>{_CLOCK})",
    rf"\b(?:at|time|timestamp){_LINK}(?P<v>{_CLOCK})",
    rf"(?:timestamp|ts|time|epoch|at|date){_LINK}(?P<v>1\d{{9}}(?:\d{{9}}|\d{{6}}|\d{{3}}|\.\d{{1,9}})?)\b",
    rf"\b(?P<v>{UUID})\b",
    r"\b(?P<v>0x[0-9a-f]{6,16})\b",
    rf"{_LABELS}[ _-]?(?:id|uuid|guid){_LINK}(?P<v>[\w+/-]{{1,128}}={{0,2}})",
    rf"\bhost[ _-]?id{_LINK}(?P<v>[\w+/-]{{40,128}}={{0,2}})",
    rf"{_QUOTED}(?: (?:id|code|number|no\.?))?{_LINK}(?P<v>{_REFERENCE})",
    rf"\b(?:{_LABELS}|id|uuid|guid|nonce){_LINK}(?P<v>{_HEX})\b",
    r"\b(?P<v>(?:req|call|msg|trace|span|resp|run|evt|toolu|chatcmpl)[_-](?=[a-z0-9]{0,64}\d)[a-z0-9]{6,64})\b",
    r"\[ref=(?P<v>(?:s\d{1,6})?e\d{1,6})\]",
    r"\buid=(?P<v>\d{1,6})(?=_\d)",
    rf"\bp?pid{_LINK}(?P<v>\d{{1,10}})\b",
    r"(?<=[a-z])\[(?P<v>\d{2,7})\](?=:)",
    r"^\[\d{1,3}\] (?P<v>\d{2,7})$",
    r"\b(?:ba|da|z|k|c)?sh: (?:line )?(?P<v>\d{1,9}):",
    rf"\b(?:execution|exec)_count{_LINK}(?P<v>\d{{1,9}})\b",
    r"\b(?:In|Out) ?\[(?P<v>\d{1,6})\]",
    r"(?P<v>(?:/private)?/(?:tmp|var/folders)/[\w./-]{0,200}\d[\w.-]{0,80})",
    r"/tmp/(?P<v>tmp\w{6,10})",
    # How often it was tried says nothing of the world.
    rf"\b(?:attempts?|tr(?:y|ies)|retr(?:y|ies)|strikes?|repetitions?)(?: (?:no\.?"
    rf"|number))?{_LINK}#?(?P<v>\d{{1,6}})\b",
    rf"\bcall (?:no\.?|number|#){_LINK}?(?P<v>\d{{1,6}})\b",
    r"\b(?P<v>\d{1,6})(?:st|nd|rd|th)?(?: (?:consecutive|identical|repeated|failed|equal))? "
    r"(?:times?|attempts?|tries|retries|repetitions?)\b",
    r"\balready[ _][a-z]{1,16}[\"': =]{1,4}(?P<v>\d{1,6})\b",
    r"\b(?:warning|loop|repeat\w{0,8}|identical)\b[^\n]{0,80}?\bcount[=: ]{1,2}(?P<v>\d{1,6})\b",
    r"(?P<v>\d{1,9}) (?:more )?(?:char(?:acter)?s|bytes|lines|tokens) (?:were |was )?(?:truncated"
    r"|omitted|elided|hidden)",
)
DURATIONS = _compile_patterns(
    rf"(?:duration|elapsed|took|latency|runtime|{_TIMED_LABEL})\w{{0,16}}{_LINK}(?:was |of )?"
    rf"(?P<v>{_NUMBER}(?:\s?{_UNIT}\b)?)",
    rf"\b(?:in|after)\s(?P<v>{_NUMBER}\s?{_SMALL}|\d{{1,9}}[.,]\d{{1,9}}\s?{_SECONDS}|\d{{1,9}}s)\b",
    rf"[(\[](?P<v>{_NUMBER}\s?{_FINE})[)\]]",
    rf"(?<![\d.])(?P<v>\d{{1,9}}\s?{_SMALL})\b",
    rf"\btime[=:\s]\s?(?P<v>{_NUMBER}\s?{_FINE})\b",
    rf"(?P<v>{_NUMBER}\s?{_UNIT})(?=\selapsed\b)",
    rf"(?<![\d.])(?P<v>\d{{1,9}}\.\d{{1,9}}\s?{_FINE})\b",
    r"\b(?P<v>\d{1,6}m\d{1,2}\.\d{1,9}s)\b",
)
ONGOING_NEAR = re.compile(
    r"\b(?:still|running|waiting|queued|building|downloading|installing|remaining|eta|so far|left|"
    r"in[ _-]progress|retry(?:ing)?)\b",
    re.IGNORECASE,
)
READING_NEAR = re.compile(
    r"(?<![a-z])(?:updated|modified|changed|last|next|eta|due|scheduled|arriv[a-z]{1,4}|depart[a-z]{1,4})(?![a-z])"
    r"[^.;,\n]*$",
    re.IGNORECASE,
)
_DURATION_TEXT = re.compile(
    rf"\s*(?:{_NUMBER}\s?{_UNIT}?|\d+m\d+\.\d+s|\d+:\d\d(?::\d\d)?(?:\.\d+)?)\s*", re.IGNORECASE
)
MOMENT = re.compile(rf"{_ISO}|{_CTIME}|1\d{{9,18}}(?:\.\d+)?", re.IGNORECASE)
_MOMENT_TEXT = re.compile(rf"\s*(?:{MOMENT.pattern}|{_CLOCK})\s*", re.IGNORECASE)
_RANDOM_TEXT = re.compile(rf"(?:[a-z]+[_-])?(?:{UUID}|{_HEX})", re.IGNORECASE)
_EPOCH_FROM = 1_000_000_000


def is_reading(key: str) -> bool:
    """Return whether the name says that the value tells of the world, whatever its form."""
    return not _READINGS.isdisjoint(words_of(key))


def is_volatile(key: str, a: Any, b: Any) -> bool:
    """Return whether a field of this name may hold `a` in one run and `b` in the next, for nothing."""
    words = words_of(key)
    named = set(words)
    if not words or is_reading(key):
        return False
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (a, b))
    if named & _TRIES:
        return whole
    counted = words[-1] == "count" and bool(named & {"execution", "exec"})
    if counted or named & _PID_WORDS or (words[-1] in _ID_WORDS and named & MARKED):
        return all(isinstance(value, (int, str)) and not isinstance(value, bool) for value in (a, b))
    if words[-1] in _ID_WORDS:
        return all(isinstance(value, str) and _RANDOM_TEXT.fullmatch(value) for value in (a, b))
    if _is_duration(words, named) and all(_tells_time(one, _DURATION_TEXT, since_epoch=False) for one in (a, b)):
        # A bare `time` says too little to be a duration, unless both are fractions or name their unit; whole seconds
        # that have grown are the age of something in the world.
        measured = words != ("time",) or (type(a) is type(b) and isinstance(a, (float, str)))
        return measured and not (whole and words[-1] in _WHOLE_UNITS and b > a)
    stamped = words[-1] in _MOMENT_WORDS or not named.isdisjoint(_STAMPS)
    return stamped and all(_tells_time(one, _MOMENT_TEXT, since_epoch=True) for one in (a, b))


def _is_duration(words: tuple[str, ...], named: set[str]) -> bool:
    timed = "time" in named and bool(named & _TIMED)
    alone = words in (("time",), ("seconds",))
    return timed or alone or words[-1] in _FINE_UNITS or bool(named & _DURATION_WORDS)


def _tells_time(value: Any, form: re.Pattern[str], *, since_epoch: bool) -> bool:
    if isinstance(value, str):
        return form.fullmatch(value[:80]) is not None
    return is_number(value) and (value >= _EPOCH_FROM) is since_epoch
