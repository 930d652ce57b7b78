"""How short of memory each machine is: sensed per node, observed everywhere.

    sensor ──▶ MemoryPressure actor (one per node) ──▶ MemoryView (each Router replica): header, early escalation
                  ▲ leases        │ reports
                  │               └─▶ MemoryCappedPolicy (Serve's controller): a cap on replicas
            tier replicas

What a level is, and what fits, is decided in `reliability.memory.pressure`, `reliability.memory.leases` and
`reliability.memory.replicas`; here are the sensors, the actor that holds the state, and the three that ask it. Nobody
asks it on the way of a request.
"""
