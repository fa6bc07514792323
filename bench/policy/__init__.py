"""The policy bench: recorded and shaped traffic, on which the control law and its peers are compared."""
