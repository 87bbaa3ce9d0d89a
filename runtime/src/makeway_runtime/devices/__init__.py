"""The GPUs of this node: what they are, who is on them, how they do.

Start with `port.Devices`, the protocol; `nvml` is the real driver, `simulated` stands in where there are no cards.
"""
