"""A server shaped like vLLM: its HTTP surface, its scheduler, its metrics and its lifecycle, with step times from a
model.

It exists because two CPU cores cannot feed several pools of real engines. Everything that the operator touches
behaves as in vLLM 0.32; only the tokens are made up.
"""
