"""Logs, the operator's own metrics, and its health pages."""
