"""The user's side of makeway.

- ``makeway.main``: the command; one module per group of verbs under ``makeway.commands``
- ``makeway.client``: the typed Python client of the HTTP API
- ``makeway.job``: the job's side: is a stop wanted, checkpoints, acks; the standard library only
- ``makeway.local``: the embedded servers and the supervisor behind ``makeway up``

This package itself imports nothing, so that a job that imports ``makeway.job`` pays for nothing else.
"""
