"""An open-loop load generator: arrivals follow recorded traffic and never wait for answers."""

from e2e.load.plan import LoadPlan, Phase, TargetPlan
from e2e.load.report import LoadReport, Status, TargetRecords
from e2e.load.runner import run
from e2e.load.trace import Trace

__all__ = ["LoadPlan", "LoadReport", "Phase", "Status", "TargetPlan", "TargetRecords", "Trace", "run"]
