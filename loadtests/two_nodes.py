"""`serve run CONFIG` on two Ray nodes of this machine, of which the second may be killed: for `loadtests/chaos.py`.

    python -m loadtests.two_nodes CONFIG     # the flags of serve.env in the environment, RAY_TMPDIR short

SIGUSR1 kills all processes of the second node at once, as a power cut does; two seconds later there is a new one. What
ran there is started again by Serve where there is room.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AWAY_S = 2.0
# Loopback by another name: Ray puts the machine's address in the place of 127.0.0.1, and then finds nobody there.
ADDRESS = "127.0.0.2"
NODE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80 << 20, "node_ip_address": ADDRESS}


@contextlib.contextmanager
def run_cluster() -> Iterator[Any]:
    """Run the cluster; at the end all of its processes are gone."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


def main(config: str) -> int:
    """Serve until SIGINT or SIGTERM."""
    with socket.socket() as probe:
        try:
            probe.bind((ADDRESS, 0))
        except OSError:
            sys.exit(f"two nodes need the address {ADDRESS}; on macOS: sudo ifconfig lo0 alias {ADDRESS}")
    # Ray keeps to one machine with this flag, and takes a second node for a second machine.
    os.environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)
    cut = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: cut.set())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with run_cluster() as cluster:
        program = str(Path(sys.executable).with_name("serve"))
        server = subprocess.Popen([program, "run", config], env={**os.environ, "RAY_ADDRESS": cluster.address})
        try:
            while server.poll() is None:
                if cut.wait(0.1):
                    cut.clear()  # before the kill: what is asked for during the outage is another one
                    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        server.wait(AWAY_S)  # the outage; a server that ends in it is not waited for
                    cluster.add_node(**NODE)
        except KeyboardInterrupt:
            pass
        finally:
            server.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
