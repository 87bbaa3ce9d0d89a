"""The doors of makeway: HTTP API, quota, reads, log and event streams.

Start reading at `app.AdmissionService`, the composition root. A request goes through `server` (bounds, headers), `web`
(errors as problem details), `access` (who asks) and the handlers, one module a noun: `jobs`, `resolve`, `why`,
`commands`, `events`, `logs`, `nodes`, `cluster`, `teams`, `tokens`, `policies`, `preemptions`. A submit goes `jobs` ->
`requests` (fields) -> `class_rules` (what the policy allows) -> `intake` (many in one transaction) -> `facts` (one
message for all that waits). `channel` and `log_store` keep the logs that nodes send; `feed` wakes readers of streams.
"""
