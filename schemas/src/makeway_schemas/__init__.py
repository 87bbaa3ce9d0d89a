"""Contracts of makeway: everything two services must agree on, and nothing else.

Where to start reading:

- ``topics``      every Kafka topic with its key, partitions, retention and clean-up policy
- ``job_spec``    what a user may ask for (one generated JSON Schema is the list of fields)
- ``facts``       what travels to the scheduler: past-tense facts, many to a message
- ``plans``       what travels to a node: the complete, numbered desired state
- ``events``      what travels to users: the history of a job
- ``states``      the states of jobs, runs, leases, GPUs and nodes, and the allowed moves
- ``api``         the models of the HTTP API
- ``migrations``  the SQL schema: tables, constraints, triggers, the batch commit, roles

Nothing here does IO except ``migrate`` (Alembic) and ``generate`` (writes the JSON Schemas).
"""
