"""Router replicas and the state actor over a faulty wire, in virtual time: `python -m tests.sim.links --seeds 1000`."""
