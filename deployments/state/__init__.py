"""What outlives a request: the state actor that all Router replicas share.

    drive ─ Ask ─▶ RequestState ─ Asked ─▶ Link ─ Step: items and asks ─▶ SessionState, one step at a time
                     (client)              (link)     (records)            │ (actor, transaction)
    drive ◀─ Grant | Rejection ◀────────── Link ◀─ Reply ──────────────────┤ reliability.admission decides
                                                                           ▼
    drive ─ Usage, Verdict ─▶ Settled ───▶ Link, with the next step      Journal: written down, then answered

Steps are sent through a Unix socket on the actor's node (`unix_socket`), else through Ray.
"""
