"""``make demo``: three tiers under recorded production traffic on a real local Kubernetes, with its own checks."""
