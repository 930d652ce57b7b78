"""What outlives a request: the state actor that all Router replicas share.

    drive ─ AdmissionRequest ─▶ RequestState ─▶ Link ─ Step: items, requests ─▶ SessionState,
                                  (client)     (link)       (records)              │ one step at a time
    drive ◀─ Grant | Rejection ◀────────────── Link ◀─ Reply ──────────────────────┤ (actor, transaction)
                                                                                   ▼ reliability.admission
    drive ─ Usage, Verdict ─▶ Settlement ────▶ Link, with the next step    Journal, before the answer

Steps are sent through a Unix socket on the actor's node (`unix_socket`), else through Ray.
"""
