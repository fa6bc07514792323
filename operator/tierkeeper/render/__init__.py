"""A tier's wanted state as Kubernetes objects and its signals as PromQL: dicts and text, nothing else. Pure."""
