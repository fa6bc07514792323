"""How decisions say figures: plain words with units."""

from __future__ import annotations


def milliseconds(seconds: float) -> str:
    """1.234 s is said "1234 ms"; half a millisecond keeps one digit."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def duration(seconds: float) -> str:
    """Whole minutes from two minutes up, else seconds."""
    if seconds >= 120:
        minutes = seconds / 60
        return f"{minutes:.0f} min" if minutes == int(minutes) else f"{minutes:.1f} min"
    return f"{seconds:.0f} s"


def count(number: float, noun: str) -> str:
    """ "1 request", "12 requests", "2.5 requests"."""
    shown = f"{round(number, 1):g} {noun}"
    return shown if round(number, 1) == 1 else f"{shown}s"


def times(factor: float) -> str:
    return f"{factor:.1f}x"
