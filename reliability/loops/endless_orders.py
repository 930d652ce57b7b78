"""Whether a request orders repetition without a number: to go on until something comes, to wait for it, or to look
again and again. What is worked for ("run the tests until they pass") orders none, nor does a report or a ban.
"""

from __future__ import annotations

import re

from reliability.loops.built_things import is_of_built_thing

_MANY = r"(?:\d{1,3} ?|(?:two|three|four|five|six|ten|fifteen|twenty|thirty|sixty|few|other|couple(?: of)?|half an?) )"
_UNIT = r"(?:sec(?:ond)?|min(?:ute)?|hour|hr|day|night|morning|tick)s?\b"
#: Of a language: verbs of what may be repeated; what orders it alone; verbs of what waits for its moment; "tell me";
#: "until", behind the first; "when", behind the others; what is worked for, or done by the model itself; and words for
#: many times or a rate, behind the first or before it.
_ENGLISH = (
    r"(?:keep (?:on )?)?(?:re-?)?(?:run(?:n?ing)?|(?:press|click|tap|swipe|scroll|skip|flip|roll|toss|spin|draw|poll"
    r"|check|ping|query|refresh|reload|wait|move|walk|turn|raise|lower|loop|mash|hit|retry|try|repeat|test|play|call|attack"
    r"|fight|fish|dig|mine|pull|push|cast|stay on|look at|watch|monitor|observe)(?:p?ing)?)",
    r"keep an? (?:close )?(?:eye|watch) on|monitor(?= (?:the|my|our|this|these|all)\b)",
    r"buy|sell|bid|trade|watch|observe|(?:order|book|reserve|turn|switch|restart)\b(?!.*\b(?:once|when)\b)",
    r"alert me|notify me|warn me|(?:tell|ping|message|text|remind) me|let me know",
    r"until|till|'til|til",
    r"as soon as|the moment|when(?:ever)?|once(?! more\b| again\b)|(?<=alert me )if|(?<=notify me )if|(?<=warn me )if",
    r"(?:i|we|possible|\w+ing (?:it|this|the))\b|.*(?<!says )(?<!reads )\b(?:pass|passes|passing|works?|working|green"
    r"|fixed|done|finished|completed?|succeeds?|successful|builds|good|understand|cause|sure|correct|right|bugs?|solved"
    r"|resolved|compiles|clean|no (?:more )?(?:errors?|failures?|warnings?|issues?))",
    r"(?:several|multiple|many|a few|a couple of) times|hourly|daily|regularly|constantly|continually|periodically"
    r"|frequently|from time to time|now and then|at (?:regular|[\w-]+ [\w-]+) intervals|in a loop|on repeat"
    rf"|(?:once|twice|\d+ times) (?:a|per) {_UNIT}",
)
_FOREIGN = (
    (
        r"(?:(?:über)?prüf|frag|klick|drück|führ|start|ruf|lad|aktualisier|wart|würfl|wiederhol|spiel|zieh|scroll|test"
        r"|versuch|probier|schau|kontrollier|mess|angl|gieß)(?:e|en|t)?|lies|sieh|miss|wirf",
        "beobachte|überwache|behalte .{1,40} im auge",
        r"(?:(?:ver)?kaufe?|bestelle?|buche?|schalte?|dreh)\b(?!.*, wenn\b)",
        r"(?:sag|gib)e? (?:mir )?bescheid|melde dich|(?:benachrichtige|informiere|warne) mich|sag mir(?=,? sobald)",
        r"bis(?= (?:er|sie|es|der|die|das|du|nichts|man|eine?)\b)|(?<=, )bis",
        "sobald|wenn",
        r"(?:ich|wir)\b|.*\b(?:besteh\w*|bestanden|grün|durchl\w+|funktionier\w*|klappt|läuft|laufen|fertig|erledigt"
        r"|behoben|gelöst|sauber|korrekt|richtig|stimmt|kompilier\w*|keine? (?:fehler|warnung)\w*|geht)",
        r"mehrmals|mehrfach|(?:ein )?paar ?mal|wiederholt|minütlich|stündlich|täglich|laufend|ständig|dauernd"
        r"|regelmäßig|im (?:minuten|stunden)takt|jeden tag",
    ),
    (
        r"(?:vérifi|(?:re)?lanc|exécut|cliqu|appui|appuy|recharg|actualis|consult|jou|regard|test|réessai|essai|répèt|tir)"
        r"(?:e[sz]?)|attends|lis",
        "surveille[sz]?|garde .{0,40}œil",
        "achète|vends?|commande|réserve|éteins|allume|observe",
        "(?:préviens|avertis|alerte|informe|dis(?=-moi dès)|notifie|prévenez)-moi",
        r"jusqu'à(?: ce qu(?:e\b|(?='))| la dernière)",
        r"dès qu(?:e\b|(?='))|quand|lorsque",
        r"(?:je|nous)\b|tu\b|.*\b(?:pass(?:e|ent)(?! (?:sous|au|en|à)\b)|marche\w*|fonctionne\w*|réussi\w*|verte?s?"
        r"|termin\w*|corrig\w*|fini\w*|résolu\w*|compile\w*|correct\w*|prête?s?|(?:plus|sans) (?:aucune |d')?erreurs?)",
        "plusieurs fois|régulièrement|constamment|périodiquement|en (?:continu|permanence|boucle)",
    ),
    (
        r"(?:comprueb|revis|verifi(?:c|qu)|ejecut|puls|presion|recarg|actualiz|consult|esper|jueg|tir|prueb|reintent|repit"
        r"|mir|execut|rod|cliqu|tent|controll|esegu|clicc|prem|ricaric|aspett)(?:[aei]|ue)|haz clic",
        "vigila|monitorea|supervisa|monitora|monitore|sorveglia",
        "(?:com|ven)(?:pra|de)|reserva|apaga|enciende|observa|compre|venda|acquista|vendi",
        "av[ií]same|dime|notif[ií]came|inf[oó]rmame|al[eé]rtame|avise-me|me avise|avvisami|fammi sapere",
        r"hasta (?:que|llegar)|finché|fino a quando|até(?= que\b| \w+r(?:em)?\b)",
        "en cuanto|tan pronto como|cuando|assim que|quando|non appena|appena",
        r"(?:termines|acabes|hayas|estés|você|hai)\b|.*\b(?:pas(?:e|en)(?! de\b)|pass\w+|funzion\w*|funcion\w*"
        r"|verd[ei]s?|termin\w*|corr(?:ig|eg|ij)\w*|list[oa]s?|compil\w*|corret?ct?\w*|sin errores|senza errori)",
        "varias veces|continuamente|constantemente|regularmente|periódicamente|várias vezes|più volte|regolarmente",
    ),
)
_BEGINS = (
    r"(?:^|\b(?:and|then|und|dann|y|et|puis|luego) )\W{0,4}(?:(?:please|just|now|(?:can|could|would|will) you|bitte"
    r"|por favor) ){0,3}"
)
_SPAN, _ALL = r"(?:(?!\b(?:and|then|that|which|whether|if|dass|ob|que|qui|si)\b).){0,60}?", r".{0,80}?"
#: A question when, a thing of the past, and the model's own end, behind "tell me when".
_ASKS = (
    r"(?!you\b|du\b|(?:did|does|do|is|are|was|were|to)\b"
    r"|(?:it|that|this|everything|all)(?:'s| is| are) (?:ready|over)\b|.*(?:\b(?:was|were|did)\b|\b(?:is|are)\W*$))"
)


def _read_forms(language: tuple[str, ...]) -> str:
    does, watches, acts, tells, until, when, worked, often = language
    comes = rf"\b ?+(?!{worked}\b)"
    return (
        rf"(?:{does})\b{_SPAN}(?<!\w)(?:{until}){comes}"
        rf"|(?:{watches})\b|(?:{acts})\b{_ALL}\b(?:{when}){comes}(?!(?:you|du)\b)"
        rf"|(?:{tells}),? (?:{when})(?:\b|(?=')){comes}{_ASKS}"
        rf"|(?:{does})\b{_SPAN}\b(?<!the )(?<!my )(?<!our )(?:{often})\b(?! (?:\w+ed|in|per)\b)"
        rf"|(?:{often}),? (?:{does})\b"
    )


_ENDLESS = re.compile(
    rf"{_BEGINS}(?:{'|'.join(map(_read_forms, (_ENGLISH, *_FOREIGN)))}).*"
    rf"|{_BEGINS}(?:answer|reply to|respond to|handle|process|greet|sort|label|triage|review|forward|take|serve"
    r"|translate|summari[sz]e|archive|log|post|read|watch|pick up|work on|deal with)\b.{3,60}? "
    r"as (?:soon as )?(?:they|it|new ones) (?:come|arrive|appear|show up|get (?:sent|here)|drop)s?\b|"
    r"\b(?:again and again|over and over|time and again|repeatedly|continuously|indefinitely|endlessly|forever"
    rf"|(?:every|each) {_MANY}?{_UNIT}|every \d{{1,3}} ?[smh]\b"
    r"|until (?:i|we) (?:stop|say|tell|interrupt|cancel|call)|until (?:further notice|(?:you're|you are|being) told"
    r"|stopped)|(?:don't|do not|never) stop (?:until|\w+ing)"
    r"|(?<!\w )keep (?:on )?(?:\w{2,10}ing and )?(?:poll|check|press|click|watch|monitor|refresh|ask|call|runn|send"
    r"|ping|query|repeat|scroll|tapp|add|mov|retry|test|roll|play|stepp|hitt)ing)\b"
    r"|\b(?:immer wieder|immer weiter|ununterbrochen|jede (?:sekunde|minute|stunde)|bis ich|hasta que te"
    r"|jusqu'à ce que je|alle (?:\d{1,3}|zwei|drei|fünf|zehn|paar) (?:sek|min|stunden)\w*|una y otra vez|sin parar"
    r"|encore et encore|cada (?:(?:\d{1,3}|dos|tres|cinco|diez) )?(?:segundo|minuto|hora)s?|sans (?:arrêt|cesse)"
    r"|(?:chaque|toutes les) (?:(?:\d{1,3}|deux|trois|cinq|dix) )?(?:seconde|minute|heure)s?)\b"
    r"|每(?:隔)?\w{0,3}(?:秒|分钟|小时|天)|不断|反复|一直|^\W*(?:请|帮我)*(?:(?:监控|监视|密切关注|盯着)(?!脚本|程序|系统|服务|面板|工具|功能)"
    r"|(?:多次|几次)?(?:运行|执行|检查|查询|点击|按|刷新|等待|重试|读取)(?!.*(?:是否|被))[^。]{0,20}(?:多次|几次|(?:直到|直至)(?!.*(?:通过|成功|修|完成|正确|正常|没有)))"
    r"|多次(?:运行|执行|检查|测试)|(?!.*(?:完成|做完|修|结束|通过))[^。]{2,40}(?:时|后|就)(?:请|立即|马上)?(?:(?:通知|告诉|提醒)我|买入|卖出))"
)
#: Words before it that make it a complaint, a report or a ban.
_TELLS = re.compile(
    r"\b(?:fail(?:s|ed|ing)|crash(?:es|ed|ing)|breaks|broke|happen(?:s|ed|ing)|occur(?:s|red|ring)|gets|got|goes|went"
    r"|sees|saw|dies|hangs|restarts|reloads|complains|loses|throws|raises|returns|keeps|not|never|\w+n't|why|stop|avoid"
    r"|without|instead|(?:is|are|was|were|been|being) \w+(?:ed|ing|en)|nicht|nie|niemals|warum|no|nunca|jamais|pas)\b"
    r"|不要|别"
)


def orders_repetition(text: str, begin: int, end: int) -> bool:
    """Return whether the clause that begins and ends there, in small letters, orders repetition without a number."""
    clause = text[begin:end]
    found = _ENDLESS.search(clause)
    if found is None or _TELLS.search(clause, 0, found.start()):
        return False
    if is_of_built_thing(text, begin + found.start(), begin + found.end()):
        return False
    return bool(clause[: found.start()].strip()) or not _TELLS.search(clause, found.end())
