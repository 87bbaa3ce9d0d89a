"""What every service of makeway stands on.

Start reading at `service.run`: it sets up logs, tracing, health and signals, and runs a `Service` until it is told to
stop or its watchdog finds it stuck. `settings.ServiceSettings` is the base of every service's settings.

- `kafka`: one set of safe options; `Publisher`, `HotLoop` for hot topics, FastStream for the others.
- `postgres`: pool, transactions with a known outcome, advisory locks, named queries, the outbox.
- `devices`: the GPUs of this node, by NVML or simulated.
- `cloudevents`, `tracing`, `logs`, `health`, `metrics`, `retry`: what their names say.

The sub-packages need the extras of their name (`kafka`, `postgres`, `nvml`); nothing here imports them, so that a node
installs no database driver.
"""
