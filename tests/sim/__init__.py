"""The real `drive` in virtual time, against seeded worlds full of faults: `python -m tests.sim --seeds 1000`."""
