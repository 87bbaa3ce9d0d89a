"""The node agent: makes one node's runs what its plan says, and tells what became of them.

Start with `node.Node`, which holds all runs; `reconcile.decide` is the pure part: plan and known runs in, actions out.
A run lives in a `run.Run`, backed by its folder (`run_folder`) and its shim (`shim`; the C code is in
`services/executor/shim`), which outlives this process. `gpu_watch` proves GPUs empty, `outlet` sends facts, `report`
repeats what is unsettled, `log_shipping` sends logs to admission, `recovery` finds what an earlier executor left.
`app` wires it all; `python -m makeway_executor` runs it.

Words: a *tombstone* is the end of a run that never started; a run is *settled* once it has ended and each of its GPUs
is proven empty; it is *booked* once it has left the plan.
"""
