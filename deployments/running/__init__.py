"""`mlx-stack-serve serve`: three processes, so that whatever of a server dies, all of it goes, and nothing stays.

    terminal ── supervisor ──pipe──▶ session leader ──pipe──▶ driver ──▶ Ray, Serve, replicas, HAProxy
                  ▲                        │                     │
                  └────────── news ────────┴─────────────────────┘

A stop (TERM, INT, HUP, or the end of the supervisor, which closes its pipe) has three steps with one clock: the Routers
drain, Serve and Ray end as on Ctrl-C, and the rest is killed. If one of the three processes is killed, the next one in
line does it. If all are killed at once, the next start clears what is left (`folder.py`).
"""
