"""The scheduler: facts in, decisions and plans out. One owner a pool, fenced by an epoch.

Its cycle (``cycle.py``), one batch at a time:

1. take every fact that waits (``inbox.py``), and read what they speak of but memory does not know (``recall.py``)
2. apply the facts to the ledger (``apply_*.py``); no lock is held
3. ``makeway_policy.decide`` chooses over the policy's state; ``enact.py`` writes the choices into the ledger
4. one call commits all that was touched (``steps.py``, ``writes.py``): fence, lock, double check, write
5. after the confirmed commit memory is kept, then plans (``plans.py``) and events are published
6. a conflict or an error rolls memory back: the facts are committed alone, and it is decided again

Start reading at ``ledger.py`` (what memory holds) and ``cycle.py``.
"""
