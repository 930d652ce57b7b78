"""Orders of repetition without a number, in eight languages, and what only looks like one."""

from itertools import product

import pytest

from reliability.loops import Stage, read_order
from tests.evals.step_cases import StepCase
from tests.support.conversation import CONFIG, stages

#: For each language: what is done, until what comes, and what is worked for instead.
UNTIL = {
    "en": ("Run the test|Attack the goblin|Fish|Retry|Check it|Stay on it|Keep fishing|Pull the lever|Mine"
           "|Rerun tests/test_flaky.py|Please run ./soak.sh|Loop build.log|Retry 192.168.1.10|Open it, and ping node.js"
           "|Can you refresh example.com/tickets|Keep trying v1.2 of the client|Watch it"
           "|Then keep polling https://example.com:8080/a?b=c|Keep rerunning it",
           " until it fails| until you win| till the server answers| until nothing comes| until seats appear"
           "| till it returns 200| until you see a failure| until it crashes| until it says done",
           " until it passes| until they are green| until the bug is fixed| until I am happy| for an hour"
           "| until it works| until it looks right| until it is done| until it compiles| until there are no more errors"
           "| until all of it is passing| until the lint is clean"),
    "de": ("Führe den Test aus|Prüfe den Preis|Klicke auf Weiter|Lies den Sensor|Bitte spiele|Lade die Seite neu",
           ", bis er fehlschlägt|, bis nichts mehr kommt| bis der Server antwortet|, bis 22 Grad erreicht sind",
           ", bis er besteht|, bis alles grün ist|, bis es klappt|, bis der Fehler behoben ist| bis Zeile 20"),
    "fr": ("Lance le test|Vérifie le prix|Clique sur Suivant|Recharge la page|Relance la commande",
           " jusqu'à ce qu'il échoue| jusqu'à ce que le prix baisse| jusqu'à ce qu'il y ait des billets",
           " jusqu'à ce qu'il passe| jusqu'à ce que ça marche| jusqu'à ce que tout soit vert| jusqu'à la ligne 20"),
    "es": ("Ejecuta la prueba|Comprueba el precio|Pulsa Siguiente|Por favor revisa la cola|Actualiza la página",
           " hasta que falle| hasta que baje de 42000| hasta llegar a la última página| hasta que haya entradas",
           " hasta que pase| hasta que todo esté verde| hasta que funcione| hasta la línea 20"),
    "it": ("Esegui il test|Controlla il prezzo", " finché non fallisce| fino a quando scende",
           " finché non passa| finché non funziona"),
    "pt": ("Execute o teste|Verifique o preço", " até cair| até que falhe", " até que passe| até a linha 2"),
    "zh": ("运行测试|检查价格|请点击下一页|刷新页面", "直到失败|直到低于42000|直到最后一页",
           "直到通过|直到修好为止|直到没有错误"),
}  # fmt: skip
SOON = {
    "en": ("Watch the price and buy|Watch it and turn the heater off|Buy 0.1 BTC|Let me know|Please tell me",
           " as soon as it drops| when it falls below 42000| as soon as 22 degrees are reached",
           " as soon as you are done| when the tests pass| as soon as it works"),
    "tell": ("Tell me|Please let me know|Ping me|Message me|Watch it, and tell me|Could you text me",
             " when the price drops below 60k| as soon as a new mail from Bob arrives| once api.example.com answers"
             "| when report.pdf shows up in ~/Downloads| once the oven has reached its temperature",
             " when you are done| as soon as you have finished| once the bug is fixed| when it's ready"
             "| when everything is over| when the commit was made"),
    "de": ("Kaufe 0,1 BTC|Bitte melde dich|Sag mir Bescheid|Benachrichtige mich",
           ", sobald er fällt|, sobald der Server antwortet", ", sobald du fertig bist|, sobald die Tests grün sind"),
    "fr": ("Achète 0,1 BTC|Préviens-moi|Alerte-moi", " dès qu'il baisse| dès que le prix passe sous 9",
           " dès que tu as fini| dès que les tests passent"),
    "es": ("Compra 0,1 BTC|Avísame|Dime", " en cuanto baje| cuando baje de 42000",
           " cuando termines| en cuanto pasen las pruebas"),
    "zh": ("价格下跌时|一旦服务器恢复就", "通知我|立即告诉我", ""),
}  # fmt: skip
OFTEN = {
    "Run the test |Check it |Please check the server and query it ": "several times|hourly|every 30s"
    "|every 5 min|regularly|every five minutes|every couple of minutes|constantly|from time to time|once a minute"
    "|at regular intervals|on repeat",
    "Führe den Test |Prüfe den Server ": "mehrmals aus|ein paar Mal|stündlich|ständig|regelmäßig|alle fünf Minuten",
    "Lance le test |Vérifie le serveur ": "plusieurs fois|régulièrement|en continu|toutes les cinq minutes",
    "Ejecuta la prueba |Revisa el servidor ": "varias veces|continuamente|cada cinco minutos",
    "": "Keep an eye on the price|Monitor the sensor|Überwache den Kurs|Behalte den Kurs im Auge"
    "|Beobachte den Sensor und melde dich, wenn er 22 Grad zeigt|Vigila el precio y compra cuando baje"
    "|Surveille le cours|监控价格|多次运行测试|每天检查|Check the service again and again|Keep polling the service"
    "|Run it over and over until I stop you|Call it repeatedly, please|Prüfe den Dienst immer wieder|每分钟检查一次"
    "|Revisa el servicio cada 5 minutos|Vérifie le service sans arrêt|Notify me when the database is up"
    "|Let me know as soon as db.local answers|Answer new mails as they come in|Answer the mails as they show up"
    "|Reply to the messages as they arrive and be kind|Then handle new issues as soon as they appear"
    "|Please check the service every minute and tell me when it is up",
}  # fmt: skip


def join(*parts: str) -> list[str]:
    return ["".join(words) + "." for words in product(*(part.split("|") for part in parts))]


def list_wrong(texts: list[str], endless: bool) -> list[str]:
    """List those that are read otherwise, alone or behind another sentence."""
    framed = [text for one in texts for text in (one, f"The thing is slow. {one}")]
    return [text for text in framed if read_order(text).endless is not endless]


@pytest.mark.parametrize(("does", "comes", "works"), [*UNTIL.values(), *SOON.values()])
def test_what_is_waited_for_is_no_work(does: str, comes: str, works: str) -> None:
    """Law: over verbs and conditions of a language, to go on until something comes, or to do something as soon as it
    does, orders repetition; until it is right, or when the work is done, does not."""
    assert list_wrong(join(does, comes), True) == []
    assert list_wrong(join(does, works) if works else [], False) == []


@pytest.mark.parametrize("does", OFTEN)
def test_many_times_and_rates_order_repetition(does: str) -> None:
    """Law: without a number, in four languages, in words or figures."""
    assert list_wrong(join(does, OFTEN[does]), True) == []


OTHERS = """
It failed several times. Fix it.|The app constantly crashes.|Users regularly check the price.|The daily job broke.
I've run it several times already.|Fix the code until the tests pass.|Der Test schlägt ständig fehl.|Send it when ready.
Write a script that monitors the price and buys as soon as it drops.|Le test échoue plusieurs fois.|Summarize chapter 3.
Don't buy it as soon as it drops.|Schreibe ein Skript, das den Preis prüft, bis er fällt.|La prueba falla varias veces.
Push as soon as possible.|Read the file until line 20.|Monitor settings are wrong, fix them.|完成后告诉我
监控脚本有问题|修复代码直到测试通过|Explain how to wait until it fails.
Change the client: it should retry until it fails.|Prüfe, ob er mehrmals läuft
Arbeite, bis die Tests grün sind.|Corrige le code jusqu'à ce que les tests passent.|Arregla el código hasta que pase.
写一个监控价格的脚本|The page refreshes every now and then, why?|Try it once.|Watch the video.|Buy it now.
Once it is merged, delete the branch.|When the price is missing, use 0.|Wenn der Preis fehlt, nimm 0.|Dime cuándo fue.
Run the tests until all succeed.|Run the daily report.|Check that it is called several times.|完成后通知我
检查函数是否被多次调用|Turn the function that polls until it is ready into async.
Watch the order of arguments when calling it.|Dime cuando termines.
Check the docs regularly updated by the team.|Order the list when it is set.
Vérifie que le test passe plusieurs fois|The build fails again and again, find out why.|Run the tests until they pass.
Every minute the server crashes. Fix it.|It keeps failing. I can't keep paying for it.|Notify me when you are done.
Don't call the same tool over and over.|Find a nonstop flight. Wait until I confirm it.
Run the check and mend the code until it passes.|Tests run until the timeout hits. Make them faster.
Write a script that lets me know when the price drops below 60k.|Fix the bot: it tells me as soon as a new mail arrives
Explain how it tells me once it goes above 230|The app should ping me when report.pdf shows up.|Tell me when to call.
Write a server that handles requests as they come in.|Explain how to read events as they arrive|Tell me when it was.
Tell me once more.|Tell me when the next meeting is.|Let me know if the file exists.|Till now it ran.
Keep it as it is until I am back.|Führe ihn aus, bis er besteht.|It keeps failing.|Write a bot that polls hourly.
"""


@pytest.mark.parametrize("text", OTHERS.replace("\n", "|").strip("|").split("|"))
def test_reports_bans_and_programs_order_no_repetition(text: str) -> None:
    """Law: what only tells of repetition, forbids it, or says it of a program has the usual limits."""
    assert not read_order(text).endless


@pytest.mark.parametrize("text", ["Führe ihn aus, bis er fehlschlägt.", "Keep polling it.", "Ping it every hour"])
@pytest.mark.parametrize("result", ["all is well with the database", '{"error": "connection refused by the host"}'])
def test_an_order_of_repetition_without_a_number_has_the_limits_of_a_poll(text: str, result: str) -> None:
    """Law: a person who orders repetition without an end gets it: one nudge and no break before a poll's."""
    warn, limit = CONFIG.poll_limits
    found = stages(StepCase("check_service", '{"name": "db"}', result).build(limit, text))
    assert found[: warn - 1] == [None] * (warn - 1)
    assert found.count(Stage.WARN) <= 1
    assert found.index(Stage.BREAK) == limit - 1
