"""The outside world behind the ports: Kubernetes, Prometheus, the engines' own pages, clocks."""
