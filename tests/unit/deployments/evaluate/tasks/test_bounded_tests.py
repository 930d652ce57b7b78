"""Tests of an agent's are run inside of bounds: no network, no process, no file outside, no end of time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deployments.evaluate.tasks import bounded_tests
from deployments.evaluate.tasks.bounded_tests import OUTPUT_CHARS, describe_confinement, run_tests


def write_test(folder: Path, code: str) -> None:
    text = f"import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        exec({code!r})\n"
    (folder / "test_it.py").write_text(text)


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1')",
        "open('/etc/passwd').read()",
        "open('../out.txt', 'w')",
        "import os; os.open('/etc/passwd', os.O_RDONLY)",
        "import os; os.listdir('/etc')",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.remove('/tmp/x')",
        "import os; os.rename('test_it.py', '/tmp/x')",
        "import os; os.symlink('/etc', 'etc')",
        "import os; os.kill(os.getppid(), 9)",
        "import subprocess; subprocess.run(['true'])",
        "import ctypes",
        "import sys; sys.addaudithook(print)",
        "import pathlib; pathlib.Path('/tmp/evaluate-x').write_text('x')",
        "open('/proc/self/root/etc/passwd').read()",
        "open('/proc/self/environ').read()",
        "open('../../../../etc/passwd').read()",
        "import os; os.open('/', os.O_RDONLY)",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.link('/etc/passwd', 'x')",
        "import os; os.chdir('/')",
        "import os; os.chmod('.', 0)",
        "for name in range(30): open(str(name), 'w')",
        "import os\nwhile True: os.mkdir('a'); os.chdir('a')",
        "import shutil; shutil.rmtree('..')",
        "import _posixsubprocess",
        "import multiprocessing.shared_memory",
        "import sqlite3",
        "import gc; gc.get_objects()",
        "import _xxsubinterpreters",
        "import sys; sys.modules.pop('posix'); import posix",
        "import os; open(os.__file__, 'a')",
        "import asyncio",
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
    write_test(tmp_path, code)
    result = run_tests(tmp_path)

    assert (result.passed, result.refused) == (False, True)
    assert "refused" in result.output


def test_a_catch_all_doesn_t_help(tmp_path):
    """The process ends; there is nothing to catch."""
    write_test(tmp_path, "try:\n    open('/etc/passwd')\nexcept BaseException:\n    pass")

    assert not run_tests(tmp_path).passed


def test_good_tests_pass_and_may_write_in_the_folder(tmp_path):
    """What a test needs is there: the standard library, the folder, and time."""
    write_test(tmp_path, "import json, re, tempfile; open('x.txt', 'w').write(json.dumps(1))")

    assert run_tests(tmp_path).passed


@pytest.mark.parametrize("code", ["raise ValueError('no')", "import sys; sys.exit(0)", "x = [0] * 10**11"])
def test_what_fails_fails(tmp_path, code):
    """An error, an early end, more memory than there may be."""
    write_test(tmp_path, code)

    assert not run_tests(tmp_path).passed


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import os; os.mkfifo('pipe')",
        "import atexit, sys; atexit.register(sys.exit, 0); assert False",
        "import unittest; unittest.TestResult.wasSuccessful = lambda self: True; assert False",
        "import unittest; unittest.TextTestRunner.run = lambda *_: None",
        "import unittest; unittest.TestCase.run = lambda self, result: result.startTest(self)",
        "import unittest; unittest.TestCase.assertEqual = lambda *_: None",
        "import builtins; builtins.len = lambda found: 0",
        "raise __import__('unittest').SkipTest('no')",
        "import sys; sys.setrecursionlimit(10**9); f = lambda: f(); f()",
        "while True: open('big', 'ab').write(b'x' * 10**6)",
        "open('big', 'wb').truncate(10**12)",
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        "import shutil, os; shutil.rmtree(os.getcwd())\nassert False",
    ],
)
def test_a_verdict_is_not_to_be_had_otherwise(tmp_path, code):
    """Neither by an early end, nor by another test framework, nor by filling the machine."""
    write_test(tmp_path, code)

    assert not run_tests(tmp_path).passed


@pytest.mark.parametrize("name", ["conftest.py", "sitecustomize.py", "usercustomize.py", "unittest.py", "os.py"])
def test_files_that_python_reads_by_itself_change_no_verdict(tmp_path, name):
    """An agent may leave them; the tests are run by what was loaded before."""
    (tmp_path / name).write_text(
        "import sys\n\n\nclass TestCase:\n    pass\n\n\ndef main():\n    sys.exit(0)\n\n\nmain()\n"
    )
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\naddopts = --co\n")
    write_test(tmp_path, "assert False")

    assert not run_tests(tmp_path).passed


def test_a_folder_that_is_gone_is_a_failure(tmp_path):
    """Not an error of the evaluation."""
    root = tmp_path / "root"
    root.mkdir()
    write_test(root, "import os, shutil; shutil.rmtree(os.getcwd())")
    run_tests(root)
    shutil.rmtree(root, ignore_errors=True)

    assert not run_tests(root).passed


def test_endless_output_is_cut(tmp_path):
    """At the largest file that there may be."""
    write_test(tmp_path, "while True: print('x' * 10**6)")
    result = run_tests(tmp_path)

    assert not result.passed
    assert len(result.output) <= OUTPUT_CHARS


def test_tests_are_those_that_were_there_before_anything_ran(tmp_path):
    """Whatever a file of the folder writes, removes or puts in the place of a module while it is loaded."""
    (tmp_path / "sly.py").write_text(
        "import sys, types, pathlib\n\nfor path in pathlib.Path().glob('test_*.py'):\n    path.write_text('')\n"
        "sys.modules['test_it'] = sys.modules['test_later'] = types.ModuleType('test_it')\n"
    )
    (tmp_path / "test_first.py").write_text(
        "import unittest\n\nimport sly\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    )
    write_test(tmp_path, "assert False")

    assert not run_tests(tmp_path).passed


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "import nothing_of_this_name\n", "raise KeyboardInterrupt\n"])
def test_tests_that_can_t_be_loaded_fail_in_words(tmp_path, text):
    """Beside others that pass."""
    write_test(tmp_path, "pass")
    (tmp_path / "test_other.py").write_text(text)
    result = run_tests(tmp_path)

    assert not result.passed
    assert "Error" in result.output or "KeyboardInterrupt" in result.output


def test_no_tests_are_no_pass(tmp_path):
    """An agent that deletes them gains nothing."""
    assert not run_tests(tmp_path).passed


def test_the_time_is_bounded(tmp_path, monkeypatch):
    """What runs on is ended, and its processes with it."""
    monkeypatch.setattr(bounded_tests, "WALL_S", 1.0)
    write_test(tmp_path, "while True: pass")
    result = run_tests(tmp_path)

    assert (result.passed, result.timed_out) == (False, True)


def test_the_output_is_bounded_and_names_no_folder(tmp_path):
    """Nobody is drowned, and no path of this machine is told."""
    write_test(tmp_path, "print('x' * 100_000); raise ValueError(__file__)")
    result = run_tests(tmp_path)

    assert len(result.output) <= OUTPUT_CHARS
    assert str(tmp_path) not in result.output


def test_no_secret_of_ours_is_there(tmp_path, monkeypatch):
    """The environment is an empty one."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-secret")
    write_test(tmp_path, "import os; assert 'OPENROUTER_API_KEY' not in os.environ, os.environ")

    assert run_tests(tmp_path).passed


def test_the_report_says_by_what_they_are_held():
    """Never more than holds here."""
    words = describe_confinement()

    assert "no network by" in words
    assert ("unshare" in words or "sandbox-exec" in words) is bool(bounded_tests._find_wrapper())
