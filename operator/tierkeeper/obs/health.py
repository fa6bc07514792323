"""Health as an answer to two questions: should this process be restarted, and does it serve yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tierkeeper.ports import Clock


@dataclass(slots=True)
class Health:
    """Beats of the parts that must not stop. An outage of Prometheus or of the API server is no reason to restart."""

    clock: Clock
    stale_seconds: float
    """A part that has not beaten for so long is stuck: several ticks, so that one slow tick is none."""
    populated: bool = False
    """True once every kind has been listed."""
    standing_by: bool = False
    """True while another replica leads. Ready means that this one could take over, or no rollout would ever end."""
    _beats: dict[str, float] = field(default_factory=dict)

    def beat(self, part: str) -> None:
        self._beats[part] = self.clock.monotonic()

    def stuck(self) -> Mapping[str, float]:
        """Parts that have stopped, with the seconds since their last beat."""
        now = self.clock.monotonic()
        return {part: now - at for part, at in self._beats.items() if now - at > self.stale_seconds}

    @property
    def live(self) -> bool:
        return not self.stuck()

    @property
    def ready(self) -> bool:
        return (self.populated or self.standing_by) and self.live

    def report(self) -> str:
        stuck = ", ".join(f"{part} silent for {silent:.0f} s" for part, silent in sorted(self.stuck().items()))
        if stuck or self.populated:
            return stuck or "ok"
        return "standing by: another replica leads" if self.standing_by else "watching has not caught up yet"
