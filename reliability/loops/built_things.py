"""Whether a request says of a thing that is to be built, and not of the agent's own work, that it repeats.

It does where an order to build it is followed by a clause about it ("write a script that runs every minute"), where it
is set up to repeat (a cron job) or made to ("make the page refresh"), where the sentence says what it should do ("the
widget should poll"), and where a later clause orders to build it ("write the lambda for it"). An order of the agent's
own behind it ("..., then check it every minute") is read as one.
"""

from __future__ import annotations

import re

#: Words for "times", in the languages of orders, and for what is done so many times.
REPEATED = (
    r"(?:times|mal|veces|fois|volte|vezes|разі?в?а?|gånger|razy|keer|kez|kere|kali|kertaa|lần|مر(?:ة|ات)|פעמים|बार"
    r"|runs|iterations|rounds|repetitions|reps|clicks|presses|taps|loops|cycles|laps"
    r"|measurements|readings|screenshots|photos)\b"
)
#: In further languages: verbs of doing whose number follows, and words before a number that says for whom or when. In
#: others: a number with its counter, and words which only tell that there are so many.
DOES_ELSEWHERE = (
    "da(?:mmi|cci|tele)|dai|lancia|compra|crea|invia|apri|premi|metti|prendi|fammi|genera|voglio|vorrei|quero"
    "|gostaria de|dê-me|me dê|envie|abra|aperte|jogue|lance|faça|gere|pegue|preciso de|geef|koop|maak|stuur|druk|gooi"
    "|bestel|voeg|ik wil"
    "|ge|köp|skapa|skicka|öppna|tryck|kasta|beställ|ta|giv|gi|køb|kjøp|lav|åbn|tryk|kast|bestil|daj|kup|zrób|wyślij|otwórz"
    "|naciśnij|rzuć|zamów|dodaj|utwórz|chcę|poproszę|(?:дай|купи|сделай|отправь|открой|нажми|брось|закажи|добавь|создай"
    "|зроби|надішли|відкрий|натисни|кинь|замов|додай|створи)(?:те)?|хочу|dej|udělej|pošli|otevři|stiskni|hoď|objednej"
    "|přidej|vytvoř|chci|adj|vegyél|küldj|nyiss|anna|osta|lähetä|avaa|paina|heitä|tilaa|lisää|luo|dă-mi|cumpără|trimite"
    "|adaugă|creează|δώσε|αγόρασε|στείλε|άνοιξε|πάτησε|πρόσθεσε|cho tôi|mua|tạo|gửi|beri|beli|buat|kirim|tambahkan"
    "|أعطني|اشتر|أضف|أرسل|اضغط|תן|קנה|הוסף|שלח|לחץ"
)
SAYS_WHERE = "per|voor|op|på|för|til|till|dla|na|poniżej|для|на|в|о|ниже|pro|pod|untuk|pentru|για|kun|για|لـ"
COUNTED = re.compile(
    r"(?<![第\d.:])(\d{1,3}|[一二三四五六七八九十]{1,3}) ?(?:[個个](?![人月小])"
    r"|[枚本杯匹台冊皿罐瓶只隻条條件张張颗顆支把份盒包首]"
    r"|つ(?!の)|개(?!월)|캔|병|번|장|잔|권|마리|กระป๋อง|ใบ|ขวด)"
)
TELLS_OF = re.compile("[有?？]|あり|ある|いま[すし]|いる|있|มี")
#: A number of things that are to be made, where they are repetitions.
MADE_AGAIN = re.compile(
    rf"(?:\w+ \S+ (?:[\w-]{{1,20}} ){{0,2}}?{REPEATED}"
    r"|(?:do|make|perform|execute|send) \S+ (?:[\w-]{1,20} ){0,2}?"
    r"(?:pings|requests|calls|checks|queries|lookups|searches|probes|polls|trials|attempts|tries|samples|throws|rolls"
    r"|flips|tosses|spins|draws)\b)"
)
_CHARS = 320  # so much before and behind a word of repetition is looked at
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|[\n。！？]")
_VERBS = (
    r"(?:write|implement|build|create|add|make|develop|code|program|design|change|modify|extend|update|refactor|rewrite"
    r"|fix|set up|configure|schedule|generate|deploy|provide|prepare|draft|(?:need|would like|want|'d like)"
    r"(?! (?:you|that|to)\b)|schreib\w*|erstell\w*|implementier\w*|bau\w*|füge|entwick\w+|programmier\w*|änder\w*"
    r"|richte|brauche\w*|mach\w*|escrib\w+|crea\w*|añad\w+|agreg\w+|haz|desarroll\w+|program[ae]\w*|configur\w+"
    r"|necesit\w+|quier\w+(?! que\b)|modifi\w+|écri\w+|crée\w*|implément\w*|ajout\w+|développ\w+|programm\w+|fais"
    r"|fai[st]es|construi\w+|veux(?! que\b)|besoin)"
)
#: Where an order stands: at the beginning, or behind what leads to it.
LEADS = (
    r"(?:^\W*|[.,:;(–-] ?|\b(?:to|please|you|and|then|us|now|let's|me|i|we|just|also|first|task|must|should|will|bitte"
    r"|und|dann|ich|wir|y|et|por favor|luego|puis|je|nous|j'ai|avons|mir|uns|me|nos) )"
)
#: What begins the clause about the thing, none about the agent or the user.
_RELATES = (
    r"(?:\b(?:that|which|who|whose|where|so)\b(?! (?:far|you|i|we)\b)(?! that (?:you|i|we)\b)"
    r"|, (?:das|der|die|welche[rs]?|damit|so ?dass|um|wo|in dem)\b|\b(?:que|para|donde|qui|pour|où|afin)\b"
    r"|\b(?P<to>to) (?!(?:the|an?|my|our|your|its|this|that|these|it|each|every|me|us|him|her|them)\b)[a-z])"
)
_THINGS = (
    r"(?:cron|script|function|method|class|component|widget|service|daemon|bot|timer|hook|handler|endpoint|feature"
    r"|plugin|dashboard|lambda|workflow|pipeline|backup|health ?check|scheduler|logging|retry|animation|unit test"
    r"|app|program|tool|skript|funktion|dienst|función|fonction|tâche|tarea)"
)
_BUILT = re.compile(
    rf"{LEADS}(?:{_VERBS}\b(?! (?:sure|certain)\b)(?:.{{1,200}}?{_RELATES}|.{{1,40}}?\b{_THINGS}\b)"
    r"|(?:schedule|configure|set up|implement|develop|program|refactor|design|automate)\b"
    r"|(?:make|let|have) (?:the|this|that|our|my|its?|all|each|every|an?) (?!.{0,80}"
    r"\b(?:call|request|move|check|query|test|order|payment|deposit|offer|entry|backup|note|step|guess|list) ?$))"
    r"|(?:写|编写|实现|开发|创建|添加|制作|做)[^。]{0,12}"
    r"(?:脚本|程序|函数|方法|任务|机器人|功能|代码|工具|应用|服务|定时器|类|组件|页面)"
    r"|(?:写|实现|开发|创建|添加|制作)一个$"
)
_SHOULD = re.compile(
    r"(?<!\byou )(?<!\bi )(?<!\bwe )(?<!\bagent )(?<!\bassistant )"
    r"\b(?:should|must|shall|needs? to|has to|have to|is (?:supposed|expected|meant) to|soll(?:te)?|debe|doit)"
    r"(?: (?:only|also|always|now|just|then|not))? (?!be (?:run|done|repeated|pressed|clicked|checked|tested|performed"
    r"|polled|read|measured|taken|sent|tried|watched|monitored|asked)\b)(?=\w)"
)
_SUBJECT = re.compile(
    r"(?:^|[.:;,] |\b(?:and|but|so|because|while|then|when|if) )\W*(?:you|i|we|du|sie|tu|vous|let's)\b"
)
#: Verbs that an order to do something oneself begins with.
_OWN = (
    r"(?:re-?)?(?:run|press|click|tap|check|watch|monitor|ping|query|poll|refresh|call|ask|try|test|look|repeat|keep"
    r"|do it|report|tell|send|prüfe?|führe|rufe|revisa|ejecuta|vérifie|exécute)\b"
)
_OWN_BEHIND = re.compile(rf"(?:[,;:] (?:and )?(?:then )?|\b(?:and )?then )(?:please )?{_OWN}[^,;:]*$")
_OWN_BESIDE = re.compile(rf"\b(?:and|und|y|et) (?:please )?{_OWN}[^,;:]*$")
_BUILDS_IT = re.compile(
    rf"{LEADS}(?:{_VERBS}\b[^.:;!?\n]{{0,60}}"
    r"\b(?:for|of|does|do|dafür|para|pour) ?(?:it|this|that|so|eso|ello|cela)?\b"
    r"(?=\W*(?:$|[.!?\n]))|(?:implement|automate|code|program|build|script) (?:it|this|that)\b)"
)


def is_of_built_thing(text: str, start: int, end: int) -> bool:
    """Return whether what stands there in the text, in small letters, is said of a thing that is to be built."""
    before = _SENTENCE_END.split(text[max(0, start - _CHARS) : start])[-1]
    should = list(_SHOULD.finditer(before))
    if should and not _SUBJECT.search(before[: should[-1].start()][-12:]):
        return True
    built = _BUILT.search(before)
    if built is not None and not _OWN_BEHIND.search(before, built.start()):
        return bool(built["to"]) or not _OWN_BESIDE.search(before, built.end())
    return built is None and _BUILDS_IT.search(text, end, end + _CHARS) is not None
