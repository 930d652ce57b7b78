"""`mlx-stack-serve serve`: three processes, so that whatever of a server dies, all of it goes, and nothing stays.

    terminal ── supervisor ──pipe──▶ session leader ──pipe──▶ driver ──▶ Ray, Serve, replicas, HAProxy
                  ▲──────── news ──────────┴─────────────────────┘

A stop (TERM, INT, HUP, or the supervisor's end, which closes its pipe) has one clock: the Routers drain, Serve and Ray
end as on Ctrl-C, the rest is killed. If one of the three is killed, the next in line does it; if all are, the next
start clears what is left (`folder.py`).
"""
