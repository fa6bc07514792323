"""The loops: keyed queue, reconciler, SLO loop and status writer. They speak to ports only."""
