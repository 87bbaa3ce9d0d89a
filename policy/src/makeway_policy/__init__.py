"""The brain of makeway: pure functions over frozen values; no IO, clock, randomness or logging.

Start with `decide.decide`: it walks the waiting jobs in queue order and chooses starts, preemptions and holds.
`model` has the values, `rules` the configuration, `state` the indexed state of a pool with its undo journal, `choices`
what is decided. One module owns one rule: `priority`, `protection`, `placement`, `victims`, `quota`, `holds`,
`reservation`. `explain` and `what_if` answer questions from the same code. docs/policy.md says what holds.
"""
