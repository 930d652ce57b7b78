"""`mlx-stack-serve evaluate`: whether a model on this machine is good enough for an agent's work, with the evidence.

evaluation_plan   what to do, cell by cell
evaluation_target the server: one of our own for each variant, or any URL
asking/           one chat completion over HTTP, speeds, and the machine
calls/            function-calling cases, and what each layer of the server makes of them
tasks/            small broken repositories, and whoever works on them
cell_journal      finished cells, on disk
figures/          shares with intervals, verdicts, the learned chain, the comparison with an older report
pages/            HTML, Markdown and the plots
"""
