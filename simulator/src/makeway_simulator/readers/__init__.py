"""Readers of recorded traces: one module a format, gzip as it comes. `table` has what they share; start with `load`."""
