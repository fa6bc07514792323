"""The scheduler class that the engine runs: whoever patches it here patches the engine."""

from e2e.engine.scheduler import Scheduler

__all__ = ["Scheduler"]
