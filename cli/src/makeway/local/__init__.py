"""The local cluster: everything that `makeway up` starts and `makeway down` ends, on one host, as one user.

- `postgres` and `kafka`: the embedded servers, each a folder of data and one process; tests start the same ones.
- `kafka_libraries`: Kafka's jars, fetched once against a lock with checksums.
- `cluster`: the plan of a cluster: folders, secrets, ports, the list of services and their environment.
- `supervisor`: the detached process that starts them in order, restarts what crashes, and stops them in order.
- `commands`: what `up`, `down` and `status` do, without the terminal.
- `processes`, `private_files`: identity of processes across restarts; files that only their owner reads.

Start with `supervisor.py`, whose docstring lists the life of a cluster in numbered steps.
"""
