"""The tests: of one module each in `unit/`, of a whole server in `contract/` and `e2e/`, in virtual time in `sim/`."""
