"""Small sabotages of which files a server starts with, of how it stops, and of what is taken for its own.

Each entry is (file, old text, new text, law); the old text stands in the file exactly once.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "deployments/config/config_paths.py",
        "    return given if given is not None else _own_or_built_in(CONFIG)",
        "    return given if given is not None and given.exists() else _own_or_built_in(CONFIG)",
        "a path that is given is taken, also where it is a mistake",
    ),
    (
        "deployments/config/config_paths.py",
        "    return Path(name) if os.path.lexists(name) else BUILT_IN / name",
        "    return BUILT_IN / name if (BUILT_IN / name).exists() else Path(name)",
        "a file of the user's own is never passed over",
    ),
    (
        "deployments/graph/stopping.py",
        "if not one.cut or task is None or task.uncancel() > 0:",
        "if not one.cut or task is None or task.uncancel() > 9:",
        "a client's leaving is never taken for a cut",
    ),
    (
        "deployments/graph/stopping.py",
        "            if self._cut and run.finish is None and run.refusal is None:\n",
        "            if False:\n",
        "what is cut says so",
    ),
    (
        "deployments/graph/stopping.py",
        "        if self.begun:\n            run.refusal",
        "        if self._cut:\n            run.refusal",
        "nothing new is taken",
    ),
    (
        "deployments/graph/stopping.py",
        "                one.task.cancel()\n",
        "                pass\n",
        "what runs on is cut",
    ),
    (
        "deployments/running/folder.py",
        "    for path in ended[-SESSIONS_KEPT:]:\n",
        "    for path in ():\n",
        "the sockets of a run's own Ray go with it",
    ),
    (
        "deployments/running/folder.py",
        "    if not isinstance(session, int) or psutil.pid_exists(session):\n",
        "    if not isinstance(session, int):\n",
        "a number that is somebody else's by now is no reason to kill",
    ),
    (
        "deployments/running/folder.py",
        "            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        "a run that lives is left alone",
    ),
    (
        "deployments/running/folder.py",
        "    if parent is not None and _in_charge(parent):\n        return False\n    return not any",
        "    return True or any",
        "a HAProxy with its server is left alone",
    ),
    (
        "deployments/running/folder.py",
        "given.parent.parent == base and ",
        "",
        "a HAProxy of somebody else is left alone",
    ),
    (
        "deployments/running/process_tree.py",
        "            if os.getsid(process.pid) == session:\n",
        "            if os.getpgid(process.pid) == session:\n",
        "those in other process groups are found too",
    ),
]
