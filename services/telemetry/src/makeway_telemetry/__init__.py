"""What the GPUs do: readings and health.

- `sampler` runs on each node: reads the cards by NVML (or simulated ones), publishes to `gpu.samples`, and tells the
  scheduler when a card fails or recovers.
- `collector` runs once: gives the readings to Prometheus and keeps the newest of each GPU in `gpu_readings`.

Both are processes of their own, `python -m makeway_telemetry sampler` and `... collector`, and install apart: neither
imports the other. A reading that is not known is missing everywhere, never 0. Start reading at `sampler.app` and
`collector.app`.
"""
