"""Packing without departures: pods of fractions of GPUs arrive one by one and stay; what share of the GPUs is in use?

This is the experiment of "Beware of Fragmentation" (USENIX ATC'23) on Alibaba's openb trace. Start with
`replay.replay_orders`. `fleet` has the nodes as arrays, `demand` the shapes that fragmentation is weighed by, `rivals`
the placements that exist only to be compared with, `product` makeway's own `frag` placement in array form.
"""
