"""What one vLLM replica can do: its latency model, its flags by release, its live limits. Pure."""
