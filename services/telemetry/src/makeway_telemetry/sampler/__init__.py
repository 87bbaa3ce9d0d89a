"""The sampler: one a node. Start at `app.Sampler`."""
