"""As much of the vllm package as the plugin reaches for. ``FAKE_VLLM_VERSION`` chooses the release."""

import os

__version__ = os.environ.get("FAKE_VLLM_VERSION", "0.32.0")
