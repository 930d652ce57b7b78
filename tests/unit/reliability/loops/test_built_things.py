"""What a request says of a thing that is to be built is no order to the agent."""

from itertools import product
from typing import Any

import pytest

from reliability.loops.content import read_order

RATES = [
    "every 5 minutes", "every hour", "each night", "every 30 seconds", "continuously", "over and over", "repeatedly",
    "forever", "until I stop it",
]  # fmt: skip
BUILDS = [
    "Write a script", "Please write a bash script", "Add a cron job", "Implement a worker", "Build a bot",
    "Create a GitHub Action", "Can you make a widget", "I need a service", "I want a bot", "We need to add a job",
    "Develop a daemon", "Change the client", "Refactor the poller", "Fix the heartbeat", "In app.py, add a thread",
    "Your task is to write a tool", "First write a function",
]  # fmt: skip
CLAUSES = [
    "that checks the site {}", "which posts a quote {}", "so that it refreshes {}", "to ping the host {}",
    "that {} rotates the logs", "that runs {} and cleans up", "where the player moves {}",
    "that logs in and checks the feed {}",
]  # fmt: skip


@pytest.mark.parametrize("build", BUILDS)
def test_a_thing_that_is_to_be_built_repeats_and_the_agent_does_not(build: str) -> None:
    """Law: over orders to build, clauses about the thing, and words of repetition."""
    texts = [f"{build} {clause.format(rate)}." for clause, rate in product(CLAUSES, RATES)]
    assert [text for text in texts if read_order(text).endless] == []
    often = [f"{build} {clause.format('10 times')}." for clause in CLAUSES]
    assert [text for text in often if read_order(text).again] == []


OTHERS = """
Make the dashboard refresh its data every 30 seconds.
The widget should poll the API every minute. Implement it.
Implement a retry that keeps polling until the job is done.
Build a pomodoro timer that rings every 25 minutes.
Refactor the worker: it should keep checking the queue.
Send me an e-mail digest every morning: write the lambda for it.
Alert me when the disk is full: add a Prometheus rule for it.
Check the price every hour. Write a script for this.
Ping the server every minute - implement it in Go.
Let the client retry forever.
The client must send a ping every 20 s, otherwise every minute.
Schedule a backup every night.
Configure the scraper to run every hour.
Set up a cron job every hour for cleanup.sh.
Add a health check every 30 seconds to compose.yml.
Schreibe ein Skript, das jede Stunde die Logs rotiert.
Ich brauche ein Skript, das jede Stunde läuft.
Escribe un script que revise el sitio cada 5 minutos.
Necesito un script que revise el sitio cada 5 minutos.
Écris un script qui vérifie le site toutes les 5 minutes.
写一个脚本，每5分钟检查一次网站
实现一个每小时运行的任务
The callback should be invoked 100 times but is invoked only once. Fix it.
The client should retry 5 times.
Make the function retry 3 times.
Schreibe ein Skript, das 10 mal klingelt.
Create a macro to press the key 10 times.
"""


OWN = [
    "Check the service", "Please check the build", "Poll the job", "Can you watch the log",
    "I want you to check the price", "Run the tests", "Fix the script, then run it",
    "Deploy the service and then check it", "Write the report, then check the inbox",
    "Make sure that you check the service", "Write a script that checks the site, then run it",
    "You should check the service", "The service should be checked", "Make a call", "Send a request",
    "Press the button", "Add a coin", "Check the cron job", "I need you to check the queue",
    "Write a script and run it", "The tests must be run",
]  # fmt: skip
ENDS = (".", " and tell me when it is up.", " and write the results into log.txt.")


@pytest.mark.parametrize("own", OWN)
def test_an_order_to_the_agent_itself_is_read_beside_one_to_build(own: str) -> None:
    """Law: what the agent is to do itself has the number or the limits that the order gives it."""
    rates = ("every minute", "every 5 minutes", "again and again", "repeatedly", "continuously")
    texts = [f"{own} {rate}{end}" for rate, end in product(rates, ENDS)]
    assert [text for text in texts if not read_order(text).endless] == []
    often = [f"{own} {count}{end}" for count, end in product(("10 times", "ten times"), ENDS)]
    assert [text for text in often if read_order(text).again != 10] == []


FOREIGN = """
Prüfe den Dienst jede Minute.
Quiero que revises el servicio cada 5 minutos.
Je veux que tu vérifies le service chaque minute.
每分钟检查一次
Check the status every minute: write the results into log.txt.
Write a line into the log every minute.
Monitor the deployment and alert me every hour.
"""
AGAIN = """
Make 10 test runs.
Do 10 timed runs of ./bench.
Perform 10 measurements.
Take 10 readings of it.
Send 10 requests to the endpoint.
Do ten health checks.
Make 10 API calls.
Perform 10 pings of the host.
"""
MADE = """
Make 10 test users.
Generate 10 samples.
Create 10 requests for the catalogue.
Add 10 checks to the parser.
Do 10 exercises.
"""
READ = {
    OTHERS: {"endless": False, "again": 0}, FOREIGN: {"endless": True}, AGAIN: {"again": 10},
    MADE: {"again": 0, "times": 10},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "read"), [(text, read) for block, read in READ.items() for text in block.strip().split("\n")]
)
def test_an_order_is_for_the_agent_or_for_what_it_builds(text: str, read: dict[str, Any]) -> None:
    """Law: what a thing should do is no order to the agent, in five languages; its own work is ordered in four, and
    beside verbs that also build. So many runs, readings or requests are the call itself, so many times; so many users
    or samples are made, and not the call repeated whatever it does."""
    order = read_order(text)
    assert {name: getattr(order, name) for name in read} == read
