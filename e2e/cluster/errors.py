"""The one error of this package."""


class ClusterError(Exception):
    """The cluster could not do what was asked; the message says what, and what to do about it."""
