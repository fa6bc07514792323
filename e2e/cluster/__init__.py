"""A whole real Kubernetes on one Linux machine, without Docker: `python -m e2e.cluster up`.

One Go binary holds etcd, the control plane, the node agents and DNS; containerd runs the pods. Only the standard
library is used here, so that it runs before any Python package is installed.
"""

from e2e.cluster.errors import ClusterError

__all__ = ["Cluster", "ClusterError"]

from e2e.cluster.cluster import Cluster
