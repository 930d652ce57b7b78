"""`make load`: a server with scripted tiers (`scripted.yaml`), and the users of `locustfile.py` on it for a while.

Writes loadtests/results/load.json, load.figures.html and load.html. Against a server of your own run locust itself; see
`locustfile.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import yaml

from loadtests.running import ROOT, handle_end_signals, run_server, short_folder

RESULTS = ROOT / "loadtests" / "results"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m loadtests.load", description=__doc__.partition("\n")[0])
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=120)
    given = parser.parse_args()
    handle_end_signals()
    RESULTS.mkdir(exist_ok=True)
    args = yaml.safe_load((ROOT / "loadtests" / "scripted.yaml").read_text(encoding="utf-8"))
    with short_folder() as folder, run_server(args, folder) as server:
        command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / "locustfile.py"), "--headless"]
        command += ["--host", server.url, "--users", str(given.users), "--spawn-rate", "8", "--only-summary"]
        command += ["--run-time", f"{given.seconds}s", "--html", str(RESULTS / "load.html")]
        command += ["--figures", str(RESULTS / "load.json")]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    sys.exit(code)
