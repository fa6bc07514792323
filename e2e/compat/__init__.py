"""Whether Tierkeeper works with the releases it names: Kubernetes, Prometheus and vLLM, each tried for real.

``make compat`` runs it; ``python -m e2e.compat --help`` says how to try one release.
"""
