"""Text that repeats itself, as text alone: what a cycle is, how long it goes on, and where it may go on for longer.

`long_cycles` finds them, `argument_limits` says how many are too many in the arguments of a call, and `call_place`
where a text is such arguments. Nothing here knows of answers, verdicts or tiers.
"""
