"""Scenarios: a small cluster, a few jobs, what happens to them and what must come of it, each in one file.

`document` is the file as it is written, `case` what it means (a file with variants or a sweep is several cases). A
`port.Driver` plays a case and gives a `history`; `virtual` is the one on a virtual clock, tests have one on a live
cluster. `expectations` says whether the history is as the file wants it, `invariants` watches what must hold in every
scenario. `scenario.yaml` beside this file is the policy under which they run. docs/scenarios.md is the format.
"""
