"""Kafka: one set of safe options and the two ways to read.

- `connection`: options every client gets; nothing else creates a client.
- `topics`: topics exist because `ensure_topics` made them from the one list, never by themselves.
- `publisher.Publisher`: publishes groups of messages; all acknowledged, or `PublishUncertain`.
- `loop.HotLoop`: reads assigned partitions without a group, for topics where milliseconds count.
- `stream`: the same handlers on FastStream consumer groups, for the other topics.
- `delivery.Delivery`: what both do with a batch: retries, isolation, dead letters. Start reading here.
"""
