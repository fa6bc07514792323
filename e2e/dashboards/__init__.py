"""Pictures of the shipped Grafana dashboards, from their own panels and queries over a live Prometheus."""
