"""The peers: how others scale, each by its own published law with its defaults, and tunable by its settings.

They change replicas only; max-num-seqs and the token budget stay where the tier starts. ``catalog.peer`` makes a policy
of a law's settings. A peer runs at its own ``interval_seconds``: give that to the run as the length of a tick.
"""
