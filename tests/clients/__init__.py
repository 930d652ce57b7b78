"""Published clients, unmodified, against this server: base URL, key and model are all that is configured.

    client ──▶ record (a proxy) ──▶ the server ──▶ tiers `fast` and `standard` ──▶ a weak and a good model (`players`)

Each client is installed by itself with pinned versions (`install`, `requirements/`, `packages/`), is given a small job
(read a file, change it, run a command, answer) and does it with its own tools, or with those of a driver where it has
none (`drivers/`). The weak model errs in five ways on the way; three more runs end in an error of the server: a loop, a
spent budget, a chain that is down. Everything that goes through the proxy is read in the client's own API (`wires/`)
and checked (`checks`).

`python -m tests.clients` runs all of it and `--write` puts the table into docs/clients.md; the tests beside it run the
light ones.

What must never happen: a client that outlives its run, or a bad call that was delivered and isn't in the table.
"""
