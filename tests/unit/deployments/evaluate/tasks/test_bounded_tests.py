"""Tests of an agent's are run inside of bounds: no network, no process, no file outside, no end of time."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.tasks import bounded_tests
from deployments.evaluate.tasks.bounded_tests import OUTPUT_CHARS, Check, _judge, describe_confinement, run_tests
from deployments.evaluate.tasks.confined_tests import _encode
from tests.support.repository import ROOT
from tests.support.serving import until

# The right answer is a number that the code must return: it isn't known in the sandbox.
IT = (Check("import it", "it.answer()", 20_261),)

# Loads native code under any name.
LOAD = """
import os, sys
from importlib import machinery, util

def name_native(name):
    folder = next(path for path in sys.path if path.endswith("lib-dynload"))
    return next(f"{folder}/{file}" for file in os.listdir(folder) if file.startswith(name + "."))

def load(name, path):
    return util.module_from_spec(util.spec_from_loader(name, machinery.ExtensionFileLoader(name, path)))

"""


def write_code(folder: Path, code: str, answer: object = 20_261) -> None:
    """Code that does something, and answers then."""
    (folder / "it.py").write_text(f"def answer():\n    exec({code!r}, globals())\n    return {answer!r}\n")


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1')",
        "open('/etc/passwd').read()",
        "try:\n    open('/etc/passwd')\nexcept BaseException:\n    pass",
        "open('../out.txt', 'w')",
        "import os; os.open('/etc/passwd', os.O_RDONLY)",
        "import os; os.listdir('/etc')",
        *("import os; os.system('true')", "import os; os.fork()", "import os; os.remove('/tmp/x')"),
        *("import os; os.rename('it.py', '/tmp/x')", "import os; os.symlink('/etc', 'etc')"),
        "import os; os.kill(os.getppid(), 9)",
        "import subprocess; subprocess.run(['true'])",
        "import sys; sys.addaudithook(print)",
        "import pathlib; pathlib.Path('/tmp/evaluate-x').write_text('x')",
        *("open('/proc/self/root/etc/passwd').read()", "open('/proc/self/environ').read()"),
        *("open('../../../../etc/passwd').read()", "import os; os.open('/', os.O_RDONLY)"),
        *("import os; os.posix_spawn('/bin/true', ['true'], {})", "import os; os.link('/etc/passwd', 'x')"),
        *("import os; os.chdir('/')", "import os; os.chmod('.', 0)"),
        "for name in range(30): open(str(name), 'w')",
        "import os\nwhile True: os.mkdir('a'); os.chdir('a')",
        "import shutil; shutil.rmtree('..')",
        *("import _posixsubprocess", "import multiprocessing.shared_memory", "import sqlite3", "import asyncio"),
        *("import gc; gc.get_objects()", "import _xxsubinterpreters", "import ctypes"),
        "import sys; sys.modules.pop('posix'); import posix",
        "import os; open(os.__file__, 'a')",
        # A module under another name, a name that is equal to none, native code out of the folder.
        f"{LOAD}load('x._posixsubprocess', name_native('_posixsubprocess'))",
        f"{LOAD}load('x._ctypes', name_native('_ctypes'))",
        f"{LOAD}load('it', __file__[:-2] + 'so')",
        "class Name(str):\n __eq__ = lambda *_: False\n __hash__ = str.__hash__\n__import__(Name('_posixsubprocess'))",
        # What the fence uses is replaced first.
        "import os; here = os.getcwd(); os.path.realpath = lambda path: here; open('/etc/passwd')",
        "import os; here = os.getcwd(); os.fsdecode = lambda path: here; open('/etc/passwd')",
        "import builtins; builtins.any = builtins.isinstance = lambda *_: True; open('/etc/passwd')",
        "import __main__; __main__.DENIED = __main__.PATHS = (); open('/etc/passwd')",
        "class Path(str):\n def startswith(self, *_): return True\nopen(Path('/etc/passwd'))",
        # A folder's descriptor, and a path that leads back from where the process stands.
        "import os; os.makedirs('a/b'); os.chdir('a/b'); "
        "os.open('../x', os.O_CREAT | os.O_WRONLY, dir_fd=os.open('/' + os.getcwd().strip('/')[:-4], os.O_RDONLY))",
    ],
)
def test_who_wants_out_is_ended(tmp_path, code):
    """Whatever it tries, at once."""
    write_code(tmp_path, code)
    assert "refused: " in run_tests(tmp_path, IT)


@pytest.mark.parametrize("name", ["posix", "_io", "gc"])
def test_no_module_is_made_a_second_time(tmp_path, name):
    """Law: what was taken out of a module that is a part of Python can't be had from a new copy of it."""
    write_code(
        tmp_path,
        "from importlib.machinery import BuiltinImporter, ModuleSpec\n"
        f"BuiltinImporter.create_module(ModuleSpec({name!r}, None))",
    )
    assert "create_builtin" in run_tests(tmp_path, IT)


@pytest.mark.parametrize(
    "code",
    [
        "import json, re, tempfile; open('x.txt', 'w').write(json.dumps(1))",
        "import sys; sys.modules.pop('_bisect', None); import _bisect, decimal, array, unicodedata",
        "import os; assert 'OPENROUTER_API_KEY' not in os.environ, os.environ",
    ],
)
def test_good_tests_pass(tmp_path, monkeypatch, code):
    """What a test needs is there: the standard library with its native modules, the folder to write to, and time. Our
    environment, with its keys, isn't."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-secret")
    write_code(tmp_path, code)

    assert run_tests(tmp_path, IT) == ""


@pytest.mark.parametrize("code", ["raise ValueError('no')", "import sys; sys.exit(0)", "x = [0] * 10**11"])
def test_what_fails_fails(tmp_path, code):
    """An error, an early end, more memory than there may be."""
    write_code(tmp_path, code)

    assert run_tests(tmp_path, IT)


FORGED = (
    *("[null]", "[true]", "[1]", '[{"other": "20261"}]', "[20261.0]", '["20261"]'),
    *("[[20261]]", "[20262]", "[]", "{}", "["),
)


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import os; os.mkfifo('pipe')",
        "import atexit, sys; atexit.register(sys.exit, 0); assert False",
        "import __main__; __main__.leave(0)",
        "import __main__; __main__._encode = lambda *_: 1",
        "import __main__; __main__._ask = lambda *_: True; raise ValueError",
        "import json; json.dumps = lambda *_: '[true]'",
        "import builtins; builtins.type = lambda _: int; raise ValueError",
        "import sys; sys.exit(0)",
        "import threading, os; threading.Thread(target=lambda: os.write(3, b'[1]')).start(); raise ValueError",
        "raise __import__('unittest').SkipTest('no')",
        # Ten seconds of a whole core, until the kernel ends it.
        pytest.param("import sys; sys.setrecursionlimit(10**9); f = lambda: f(); f()", marks=pytest.mark.nightly),
        "while True: open('big', 'ab').write(b'x' * 10**6)",
        "open('big', 'wb').truncate(10**12)",
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        "import shutil, os; shutil.rmtree(os.getcwd())\nassert False",
        *(
            f"import os\nfor n in range(3, 60):\n    try: os.write(n, {text.encode()!r})\n"
            "    except OSError: pass\nos.abort()"
            for text in FORGED
        ),
        *(
            f"import os, __main__\nfor n in range(60):\n    try: os.write(n, {text.encode()!r})\n"
            "    except OSError: pass\n__main__.leave(0)"
            for text in FORGED
        ),
    ],
)
def test_a_pass_needs_the_right_answer(tmp_path, code):
    """Law: neither an early end, nor a changed program, nor bytes written in the place of the answers, nor a full
    machine is a pass: only the right answers are, and the sandbox doesn't know them."""
    write_code(tmp_path, code, answer=20_262)

    assert run_tests(tmp_path, IT)


def test_nothing_in_the_sandbox_is_a_right_answer(tmp_path):
    """Law: neither the frames, nor the memory of the program, nor the files that can be read have the answer."""
    code = (
        "import sys, __main__\nframe, seen = sys._getframe(), []\nwhile frame:\n"
        "    seen += [repr(frame.f_locals), repr(frame.f_globals)]\n    frame = frame.f_back\n"
        "seen += [repr(vars(__main__)), repr(sys.argv)]\nsecret = str(20_000 + 262 - 1)\n"
        "found = any(secret in one for one in seen)"
    )
    (tmp_path / "it.py").write_text(
        f"def answer():\n    names = {{}}\n    exec({code!r}, names)\n    return names['found']\n"
    )
    checks = [Check("import it", "it.answer()", False), Check("import it", "1", 20_261)]

    assert "FAILED: 1 of 2" in run_tests(tmp_path, checks)


@pytest.mark.parametrize("name", ["conftest.py", "sitecustomize.py", "usercustomize.py", "json.py", "os.py"])
def test_files_that_python_reads_by_itself_change_no_verdict(tmp_path, name):
    """An agent may leave them; what asks was loaded before."""
    (tmp_path / name).write_text("import sys\n\nsys.exit(0)\n")
    write_code(tmp_path, "assert False")

    assert run_tests(tmp_path, IT)


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "import nothing_of_this_name\n", "raise KeyboardInterrupt\n"])
def test_code_that_can_t_be_loaded_fails_in_words(tmp_path, text):
    """What is wrong with it is printed; a folder that is gone is a failure, and not an error of the evaluation."""
    (tmp_path / "it.py").write_text(text)
    output = run_tests(tmp_path, IT)

    assert "Error" in output or "KeyboardInterrupt" in output
    shutil.rmtree(tmp_path)
    assert run_tests(tmp_path, IT)


KILLED = """
import sys
from pathlib import Path
from deployments.evaluate.tasks.bounded_tests import run_tests
from deployments.evaluate.tasks.bounded_tests import Check

run_tests(Path(sys.argv[1]), [Check("import it", "it.answer()", 1)])
"""


def test_the_code_doesn_t_outlive_an_evaluation_that_was_killed(tmp_path):
    """Law: code that waits, and so uses no CPU time, ends when the evaluation is killed."""
    write_code(tmp_path, "import time; open('begun', 'w').close(); time.sleep(600)")
    evaluation = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], cwd=ROOT)
    until((tmp_path / "begun").exists, "the code runs")
    started = psutil.Process(evaluation.pid).children(recursive=True)
    evaluation.kill()
    evaluation.wait()

    _, alive = psutil.wait_procs(started, timeout=30)
    assert not alive


def test_the_time_and_the_output_are_bounded(tmp_path, monkeypatch):
    """What runs on is ended, and its processes with it; nobody is drowned, and no path of this machine is told."""
    write_code(tmp_path, "print('x' * 100_000); raise ValueError(__file__)")
    output = run_tests(tmp_path, IT)
    monkeypatch.setattr(bounded_tests, "WALL_S", 1.0)
    write_code(tmp_path, "while True: pass")

    assert 0 < len(output) <= OUTPUT_CHARS
    assert str(tmp_path) not in output
    assert "ended after 1 s" in run_tests(tmp_path, IT)


def test_the_report_says_by_what_they_are_held():
    """Never more than holds here."""
    words = describe_confinement()

    assert "no network by" in words
    assert ("unshare" in words or "sandbox-exec" in words) is bool(bounded_tests._find_wrapper())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def is_right(said: bytes, answer: object) -> bool:
    return _judge([Check("", "", answer)], said) == ""


@given(PLAIN, PLAIN)
def test_a_value_is_right_where_it_is_the_answer_with_its_types(value: object, other: object) -> None:
    """Law: what is encoded is the same; another value is right only where Python writes the two alike, but for the
    order of a mapping."""
    said = json.dumps([_encode(value)]).encode()
    assert is_right(said, value)
    assert not is_right(said, other) or sorted(repr(value)) == sorted(repr(other))


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode), PLAIN)
def test_bytes_that_are_no_answers_are_wrong(text: bytes, answer: object) -> None:
    """Law: whatever bytes come, they are answers or wrong, and nothing raises. A form that the sandbox doesn't use is
    no answer, and no questions are no pass."""
    assert _judge([Check("", "", answer)] * 2, text)
    for forged in ("", "1", "{}", '{"a": 1}', "[" * 100_000, "[" + "1" * 5000 + "]", "[1, 1]"):
        assert not is_right(forged.encode(), 1)
        assert _judge([], forged.encode())


def test_what_isnt_plain_is_never_right() -> None:
    """Law: an object, a tuple, a key that is no text, and a value that is too deep are the same as no plain value."""
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    values = (object(), {1}, b"", type("Any", (int,), {})(1), (1,), {1: 2}, deep)
    encoded = [_encode(value) for value in values]
    assert [list(one) for one in encoded[:-1] if isinstance(one, dict)] == [["other"]] * 6
    assert not is_right(json.dumps([encoded[-1]]).encode(), deep)
