"""kopf wiring: watch events in, keys into the queue. Nothing here writes to the cluster."""
