"""`mlx-stack-serve serve`: three processes, so that whatever of a server dies, all of it goes, and nothing stays.

    terminal ── supervisor ──pipe──▶ keeper ──pipe──▶ driver ──▶ Ray, Serve, replicas, HAProxy
                  ▲                    │                 │
                  └──────── news ──────┴─────────────────┘

supervisor   what was started in the terminal: signals, and the lines on the terminal (`supervisor.py`). No Ray in it
keeper       leads a session of its own, into which all else is born; it ends them all, by process id (`keeper.py`)
driver       `serve run CONFIG`, which listens for "stop" (`driver.py`)

A stop (TERM, INT, HUP, or the supervisor's death, which closes its pipe) is three steps with one clock: the Routers
drain (`deployments/graph/stopping.py`), Serve and Ray end as they do on Ctrl-C, and what is left is killed. Whoever of
the three is killed, the next one in line does it: the keeper for the supervisor, the supervisor for the keeper, the
keeper for the driver. What even that leaves (all were killed at once) the next start clears (`folder.py`).
"""
