"""Who may repeat itself, by its name."""

import json
import time

import pytest

from reliability.loops import SeenCall, Stage
from reliability.loops.comparison.tool_verbs import polls_by_name as _polls_by_name
from reliability.loops.repeatable_calls import is_poll
from tests.evals.step_cases import StepCase
from tests.support.conversation import CONFIG, stages

#: How clients write the server before the tool.
SERVERS = ("", "mcp__ci__", "mcp_ci_", "ci__", "ci.", "mcp.ci.", "ci/", "ci:", "mcp__my-ci_2__", "plugin:ci:")
OWN_POLLS = (
    "wait_for_job", "watch_run", "waitForSelector", "sleep", "scroll_page", "tail_log", "await_reply", "job_poll",
    "browser_wait_for", "browser_wait", "page_wait_for_text", "job_status", "get_output", "next_page",
    "waitForCI", "get_result", "BashOutput", "scroll_down",
)  # fmt: skip
OWN_CALLS = (
    "get_flight_status", "read_file", "run_tests", "waiter_info", "get_wait_times", "list_watchers", "create_issue",
    "browser_snapshot", "browser_click", "set_sleep_timer", "edit_tail_light", "find_waits",
    "bash", "result", "pool",
)  # fmt: skip


@pytest.mark.parametrize("server", SERVERS)
def test_the_servers_name_hides_no_poll(server: str) -> None:
    """Law: over tools and prefixes: a tool polls by its own name, whatever server's name stands before it; a server
    named like a poll makes none of what only looks."""
    assert not _polls_by_name("")
    assert [name for name in OWN_POLLS if not _polls_by_name(server + name)] == []
    assert [name for name in OWN_CALLS if _polls_by_name(server + name)] == []
    assert [name for name in OWN_CALLS if server and _polls_by_name(server.replace("ci", "watch") + name)] == []


def test_declared_pollers() -> None:
    """A declaration is a name, or a name with a star at one end; whatever the result says."""
    for declared, polls in ((("check_ci",), True), (("check_*",), True), (("*_ci",), True), (("check", "ci_*"), False)):
        assert is_poll(SeenCall("check_ci"), "unknown job", declared) is polls


#: Polls of published agents, and what they answer where nothing is waited for any more.
POLLS = (
    *(SeenCall(name, '{"id": "p1"}') for name in ("write_stdin", "BashOutput", "read_output", "job_status", "wait")),
    SeenCall("process", '{"action": "poll", "session_id": "p1"}'),
)
GONE = """
write_stdin failed: Unknown process id 1|No shell found with ID: 1|Shell 1 is not running|Error: process p1 not found
No such process: 1|No task found with ID: a|error: unknown session 1|Session 1 has already exited|session not found
Process 1 already finished|Process exited with code 0|Invalid session id: 1|Job 1 does not exist|agent x not found
no active process with id 1|{"error": "Unknown job"}|Process p1 is no longer running|bash_id is required
Error: missing required parameter: id|The process has terminated.|Task killed
Wall time: 0.0 s Process exited with code 1
Task t1 has finished with exit code 0.|Command completed with exit code 1|Job failed: OOM|Job j expired
There is no job j
Build b-7 was cancelled|deployment "web" failed|agent a1: terminated
"""
OVER = """
<status>completed</status><exit_code>0</exit_code>|{"status": "completed", "exit_code": 0}|status: failed
{"id": "j", "state": "done"}|{"job": {"id": 7, "status": "SUCCEEDED"}}|<id>7</id><status>failed</status>
{"done": true}|{"state": "SUCCEEDED", "output": "ok"}|Status: finished|{"status": "not_found"}
"""
WAITING = """
(no new output)|Process running with session ID 1|still running|status: running|{"status": "pending"}|connection refused
no output yet|no task output yet|timed out waiting|<status>running</status>|Timeout exceeded: element not found|
curl: (7) Failed to connect|Error from server (NotFound): pods "a" not found|{"status": "running", "done": false}
No output
The job is not finished.|Job j is not completed yet.|Job j: dependency cache not found, building from source
The build has not completed.|Task t1 is not finished; please check again.|Job is not running yet (queued)
Session not active yet|Deployment d is not active. Waiting for approval.|Command is still running. Exit code unknown
Build: 3 tests already completed, 5 to go|agent: pod not ready, container not running|status: completed 3/10 tests
<status>running</status><stdout>agent exited 0 workers of 4</stdout>|Task t1: step 2 already finished, step 3 going
No emails found matching "code".|no messages matching from:bob
Run 12: 1 job completed, 2 jobs not completed|Process running (pid 4), last output: module x not found, retrying
"""


@pytest.mark.parametrize("call", POLLS, ids=lambda call: call.name)
def test_what_is_gone_is_not_waited_for(call: SeenCall) -> None:
    """Law: a poll whose result says that there is no such job is judged as any call is; one that tells a state, also
    where the job has ended. Who waits, or couldn't be reached, waits on."""

    def polls(results: str) -> set[bool]:
        return {is_poll(call, result) for line in results.strip().split("\n") for result in line.split("|")}

    assert polls(GONE) == {False}
    assert polls(WAITING) == {True}
    assert polls(OVER) == {call.name == "wait"}  # whose own state it may be


#: What a command may stand behind or in, one a line; `{}` is the command.
AROUND = r"""
{}
cd /srv && {}
cd '/a b'&&{}
cd "/a b"; {}
cd /srv || exit 1; {}
(cd /srv && {})
export A=b && {}
A='b c' B=1 {}
A=$(cat k) {}
A=`cat k` {}
A="$B" time -p {}
set -euo pipefail; {}
source venv/bin/activate && {}
. ./env; {}
bash -lc "{}"
/bin/bash -c '{}'
ssh h {}
ssh -4 h {}
ssh h -- {}
ssh -p 2222 -o BatchMode=yes me@h '{}'
ssh -o 'BatchMode yes' h 'cd /srv && {}'
ssh h "sudo {}"
docker exec -it -e A=b c {}
docker compose exec app {}
kubectl exec p -- {}
gcloud compute ssh h --zone=z --command '{}'
vagrant ssh -c '{}'
nohup nice -n 10 {}
timeout -k 5 10 {}
timeout --foreground 10s {}
sudo {}
sudo -- {}
sudo -E -u bob {}
su - bob -c '{}'
su -c '{}' bob
env -i A=b {}
date; {}
test -f a && {}
! {}
if {}; then echo y; fi
while true; do {}; break; done
OUT=$({}); echo $OUT
echo "$({})"
{} 2>&1 | grep x || true
git status; curl -s http://h/health; {} | sed s/a/b/
{} > /tmp/out; head -5 /tmp/out
# why not; is it up?§{}
"""
ASKING = (
    "kubectl get pods", "kubectl -n shop rollout status app", "docker compose ps", "docker-compose -f prod.yml ps",
    "docker --context prod logs app", "aws --region eu-west-1 --output json ec2 describe-instances",
    "az --output json vm list", "gcloud compute instances describe vm-1", "gh pr checks 7",
    "gh api repos/a/b/actions/runs", "terraform show", "systemctl --user status backup",
)  # fmt: skip
CHANGING = (
    "git push", "kubectl delete pod get", "kubectl -n shop apply -f get", "gh pr merge 5 --admin checks",
    "gh pr comment 7 --body view", "gh api -X POST repos/a/b/issues/5/comments -f body=list",
    "az vm create --name list", "aws s3api put-object --key get", "aws sqs send-message --queue-url list --get",
    "gcloud compute instances delete list", "terraform apply -auto-approve", "systemctl restart status",
)  # fmt: skip
OTHERS = ("make", "./pay.sh", "docker run app", "curl -d a=b http://h/pay", "sed -i s/a/b/ ps", "pscp a b", *CHANGING)


def polls(command: str, result: str | None = None) -> bool:
    """Whether a shell command polls, by itself or with this result."""
    return is_poll(SeenCall("bash", json.dumps({"command": command})), result)


@pytest.mark.parametrize("around", [line.replace("§", "\n") for line in AROUND.split("\n") if line])
def test_what_stands_around_a_command_says_nothing_of_it(around: str) -> None:
    """Law: a command that asks is a poll wherever it runs, with its own options, and one that does not is none."""
    assert [command for command in ASKING if not polls(around.replace("{}", command))] == []
    assert [command for command in OTHERS if polls(around.replace("{}", command))] == []


@pytest.mark.parametrize("link", ["; ", " && ", " || ", "\n", " & ", " | "])
@pytest.mark.parametrize("other", OTHERS)
def test_each_command_of_a_line_only_looks(link: str, other: str) -> None:
    """Law: beside a command that does anything else, one that asks makes no poll."""
    assert not [command for command in ASKING if polls(command + link + other) or polls(other + link + command)]


@pytest.mark.parametrize("command", ["cat a | tail -5", "A=1 " * 2_000 + "ps", "", "'", '"$(', "ssh"])
def test_other_commands_are_no_polls(command: str) -> None:
    """A filter asks nobody, and what is too long, too deep or incomplete is not known to ask; an empty one waits."""
    assert polls(command) is (command == "")


@pytest.mark.parametrize("build", ["'{}", '"{}', "$({}", "`{}", "\\{}", "a'{}", '"\\{}', "A={}", "sudo -u{}"])
def test_a_line_is_read_in_bounded_time(build: str) -> None:
    """Law: the longest line that is read takes milliseconds, whatever repeats in it."""
    line = "".join(build.format(" ") for _ in range(4_000))[:4_000]
    start = time.perf_counter()
    assert not polls(line)
    assert time.perf_counter() - start < 0.25


STATES = (
    "running|in progress|queued|building|starting up|warming up|activating|loading|training|indexing|creating"
    "|container creating|create in progress|pending|accepted|not started|not ready|in review|waiting for approval"
)
FORMS = (
    "{}", "{}...", "⏳ {}", "`{}`", '"{}"\n', "status: {}", "state={}", "Job is {}", "Build #8: {}", "{} (0:00:12)",
)  # fmt: skip


def spell(state: str) -> list[str]:
    """Return the spellings of a state: words, constants, names."""
    words = state.split()
    return [state, state.upper(), "_".join(words).upper(), "-".join(words), "".join(map(str.title, words))]


@pytest.mark.parametrize("state", STATES.split("|"))
def test_a_state_of_waiting_is_a_polls_however_it_is_spelled(state: str) -> None:
    """Law: over spellings and forms, also as a field of JSON; a state that is final or says neither is none."""
    for form in FORMS:
        assert [said for said in spell(state) if not polls("./look", form.format(said))] == []
        for said in ("done", "failed", "open", "degraded", "closed", "not running"):
            assert not polls("./look", form.format(said))
    fields = [json.dumps({"status": said}) for said in spell(state) if said != "accepted"]
    assert state == "accepted" or [field for field in fields if not polls("./look", field)] == []


@pytest.mark.parametrize(("said", "waits"), [
    ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234 (apt-get)", True),
    ("    Blocking waiting for file lock on build directory", True),
    ("Error: Error acquiring the state lock\n\nError message: resource temporarily locked", True),
    ("failing", False), ("missing", False), ("building 7 is closed", False), ("not yet", True), ("0/3 ready", True),
    ('{"done": false}', True), ('{"isReady": false, "id": 7}', True),
    ('{"title": "Buy milk", "id": 7, "done": false}', False), ('{"done": true}', False), ("false", False),
    ("The door is locked.", False),
])  # fmt: skip
def test_a_result_that_says_wait_is_a_polls(said: str, waits: bool) -> None:
    """One word that tells how a job stands, and a lock that somebody else holds."""
    assert is_poll(SeenCall("bash", '{"command": "make"}'), said) is waits


ACTED = ("queued", "Accepted.", "processing", "SUBMITTED", "in progress", '{"id": "SM1", "status": "queued"}')
ACTING = (
    ("send_sms", {"to": "+1"}), ("mcp__mail__sendEmail", {"to": "a"}), ("transfer_money", {"to": "b"}),
    ("submit_form", {"x": 1}), ("create_order", {"sku": "a"}), ("mailer", {"to": "a", "body": "hi"}),
    ("payment", {"amount": "5"}), ("payment", {"amount": 5}), *(("bash", {"command": command}) for command in CHANGING),
    ("bash", {"command": "cd /srv && kubectl apply -f x && kubectl get pods"}),
    ("bash", {"command": "git push && sleep 5"}), ("bash", {"command": "curl -s -X POST http://x/pay"}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), ACTING)
def test_what_changes_the_world_is_no_poll(name: str, arguments: dict[str, object]) -> None:
    """Law: a state that it answers says that it is done; only what was turned away may come again."""
    call = SeenCall(name, json.dumps(arguments))
    assert [said for said in ACTED if is_poll(call, said)] == []
    assert is_poll(call, "429 Too Many Requests")
    found = stages(StepCase(name, json.dumps(arguments), "queued").build(6, "Please do the work of TASK.md."))
    assert found.index(Stage.BREAK) == CONFIG.break_threshold - 1


@pytest.mark.parametrize("name", ["get_job", "check_order_payment", "payment_state", "transcribe", "fetch_sent_mail"])
@pytest.mark.parametrize("said", ACTED)
def test_a_tool_that_looks_polls_by_its_result(name: str, said: str) -> None:
    """Law: the same results, of a tool that reads or whose name tells nothing, are a poll's."""
    assert is_poll(SeenCall(name, '{"id": 7, "comment": "x"}' if name == "get_job" else "{}"), said)


GOES_ON = """处理中|正在处理|部署中，请稍候|任务正在运行|尚未完成|處理中|処理中|実行中です|まだ終わっていません
처리 중|진행 중입니다|en cours|en cours de traitement|la tâche est en cours|en attente|pas encore terminé
en progreso|el trabajo está en curso|procesando|pendiente|em andamento|aguarde|in corso
il lavoro è in esecuzione|in Bearbeitung|In Bearbeitung, bitte warten|läuft noch|der Auftrag läuft noch
wird verarbeitet|noch nicht fertig|in behandeling|pågår|w toku|işleniyor|выполняется|задание в очереди
Status: en cours|状态：进行中"""
SAYS_MORE = """错误：找不到文件|没有找到结果|文件中没有结果|已完成|部署成功|処理が失敗しました|完了|처리 실패
완료|terminé|aucun résultat|échec du traitement|fichier introuvable|completado|error al procesar el archivo
no se encontró|concluído|completato|file non trovato|fertig|Fehler: Datei nicht gefunden|nicht in Bearbeitung
der Dienst läuft nicht|gescheitert|niet gevonden|klart|zakończono|tamamlandı|готово|файл не найден|no en curso
Prozess in Bearbeitung abgebrochen: Fehler 5"""


@pytest.mark.parametrize("form", ["%s", "%s…", '{"status": "%s"}', '{"job": {"id": 7, "state": "%s"}}'])
def test_a_state_says_in_any_language_that_it_goes_on(form: str) -> None:
    """Law: a result that says nothing but that something still goes on makes a poll in any of these languages, and what
    says that it is done, failed or not found makes none."""
    call = SeenCall("get_job", json.dumps({"id": "7"}))
    for said, polled in ((GOES_ON, True), (SAYS_MORE, False)):
        results = {words: form.replace("%s", words) for line in said.split("\n") for words in line.split("|")}
        assert [words for words, result in results.items() if is_poll(call, result) is not polled] == []


LOOKING = (
    "status", "get_status", "check_status", "get_job", "get_build", "download_status", "query_task", "read_state",
    "mcp__ci__getBuild",
)  # fmt: skip
PARTWAY = (
    '{"progress": "50%"}', '{"progress": 50}', '{"progress": 0.4}', '{"id": 7, "percentComplete": 99}', "99.5%",
    '{"download_progress": "3 of 9"}', "50%", '"50%"', "0 of 5 done", "3/9 completed", "Progress: 50%", "3 out of 9",
)  # fmt: skip
DONE_OR_DATA = (
    '{"progress": "100%"}', '{"progress": 100}', '{"progress": 1.0}', '{"progress": true}', '{"progress": "none"}',
    "100%", "5 of 5 done", "9/3 ready", '{"battery": "50%"}', '{"humidity_percent": 40}', '{"volume": 50}', "50",
    "page 1 of 5", "3 of 5 tests failed", "0 of 5 found", "Coverage: 50%", '{"title": "Milk", "id": 7, "progress": 50}',
    "50% of the disk is used", "50% off", "1/2 cup", "3 of 9 done: the build failed",
)  # fmt: skip


@pytest.mark.parametrize("name", LOOKING)
def test_how_far_something_is_makes_a_poll(name: str) -> None:
    """Law: a tool that looks, and says only that a part is done, is asked again as any poll is; what is done, fails or
    measures something else is no waiting."""
    call = SeenCall(name, '{"id": 7}')
    assert [said for said in PARTWAY if not is_poll(call, said)] == []
    assert [said for said in DONE_OR_DATA if is_poll(call, said)] == []
    found = stages(StepCase(name, '{"id": 7}', '{"progress": "50%"}').build(24, "Tell me when the job is finished."))
    warn, limit = CONFIG.poll_limits
    assert (found.index(Stage.WARN), found.index(Stage.BREAK)) == (warn - 1, limit - 1)


@pytest.mark.parametrize("name", ["get_battery", "read_file", "check_coverage", "fetch_page"])
def test_a_share_alone_is_a_reading(name: str) -> None:
    """Law: of a tool that asks for no job a share is what it measures; what acts or changes the world never waits."""
    assert [said for said in ("50%", '"50%"', "3/9", "3 of 9") if is_poll(SeenCall(name), said)] == []
    acting = ("attack", "edit_file", "press_key", "fill", "bash", "send_build", "start_job")
    assert [one for one in acting for said in PARTWAY if is_poll(SeenCall(one), said)] == []
