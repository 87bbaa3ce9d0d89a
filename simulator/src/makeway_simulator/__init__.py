"""The simulator: recorded traces on a virtual clock, decided by the policy that the live scheduler uses.

`readers` turn files into a `trace.Trace`. `engine` runs makeway's own policy on it, event by event, with
`makeway_policy.decide`; `rivals` has the preemptive policies that exist only to be compared with, in their authors'
cost model or a real one; `packing` the experiment without departures. `outcome` says what came of a replay, `report`
draws it. `compare`, `tune` and `demo` build on these. Nothing here reads a clock or draws an unseeded lot.
"""
