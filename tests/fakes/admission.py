"""How the API server's admission plugins refuse a pod, word for word as in Kubernetes 1.34 to 1.37.

``e2e/scenarios/test_refused_pods_are_named.py`` compares the first three with what a real API server says.
"""

PRIORITY_CLASS = "no PriorityClass with name {name} was found"
RUNTIME_CLASS = 'pod rejected: RuntimeClass "{name}" not found'
SERVICE_ACCOUNT = 'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'


def forbidden(pod: str, said: str) -> str:
    """The whole message, as the Deployment's condition ReplicaFailure quotes it. ``pod`` is a generated name's stem."""
    return f'pods "{pod}" is forbidden: {said}'
