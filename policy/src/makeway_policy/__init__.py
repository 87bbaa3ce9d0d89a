"""The brain of makeway: pure functions over frozen values; no IO, clock, randomness or logging.

Start with `decide.decide`: it walks the waiting jobs in queue order and chooses starts, preemptions and holds; `judge`
is one job's turn. `model` has the values, `rules` the configuration (`presets`, `checks`), `state` the indexed state of
a pool with its undo journal, `choices` what is decided. One module owns one rule: `priority`, `protection`,
`placement`, `affinity`, `capacity`, `victims`, `evictions`, `costs`, `quota`, `past_use`, `holds`, `reservation`,
`begin`, `overdue`, `retries`. `index` (with `queue`, `free`, `reach`, `hosts`, `victim_nodes` and `victim_costs` on
`reach_table`, `reserving`, `rights`, `timers`) keeps what is derived from call to call, so that cost follows what
changed; `wakeups` says who is judged again for what, `waking` finds them, `agenda` puts them in queue order.
`lifecycle` applies facts. `explain` (with `what_if`) and `worst_case` answer questions from the same code.
docs/policy.md says what holds.
"""
