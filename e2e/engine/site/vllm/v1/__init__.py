"""Part of the stand-in for the vllm package."""
