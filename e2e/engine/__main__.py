"""``python -m e2e.engine serve MODEL [vllm flags]``."""

import sys

from e2e.engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
