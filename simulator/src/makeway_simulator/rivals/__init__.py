"""Preemptive policies for gangs that exist only to be compared with: SRTF, SRSF, Tiresias' two-dimensional LAS.

`loop.run` is the event loop; `shortest` and `attained` decide what runs. The setting is that of Muri (SIGCOMM'22): at
every event the whole assignment is made anew. In the peer's cost model a running job loses its start-up time at every
event, preempted or not; in the resume model it pays once, when it starts, resumes or moves.
"""
