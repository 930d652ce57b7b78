"""How short of memory each machine is: sensed per node, observed everywhere.

    sensor ──▶ MemoryPressure actor (one per node) ──▶ MemoryView (each Router replica): header, early escalation
                  ▲ leases        │ reports
                  │               └─▶ MemoryCappedPolicy (Serve's controller): a cap on replicas
            tier replicas

`reliability.memory` decides what a level is and what fits. No request waits for the actor.
"""
