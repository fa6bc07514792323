"""End-to-end support: a real local Kubernetes, images, engines and scenarios. Needs Linux; nothing here ships."""
