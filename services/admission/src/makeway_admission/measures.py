"""Admission's own series."""

from __future__ import annotations

from typing import Final

from makeway_runtime.metrics import REGISTRY
from prometheus_client import Counter, Gauge, Histogram

SUBMITS: Final = Counter(
    "makeway_submits", "Submits that reached the database, by outcome.", ["outcome"], registry=REGISTRY
)
SUBMIT_SECONDS: Final = Histogram(
    "makeway_submit_seconds",
    "From a submit's headers to its committed answer.",
    registry=REGISTRY,
    buckets=(0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 5.0),
)
STREAMS: Final = Gauge("makeway_streams_open", "Event and log streams that are open.", registry=REGISTRY)
NODE_CHANNELS: Final = Gauge(
    "makeway_node_channels_open", "Nodes that are connected for their logs.", registry=REGISTRY
)
LOG_BYTES: Final = Counter("makeway_log_bytes_stored", "Bytes of logs that nodes sent.", registry=REGISTRY)
