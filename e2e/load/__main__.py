"""``python -m e2e.load replay --trace CSV --target NAME=URL ...``."""

import sys

from e2e.load.cli import main

if __name__ == "__main__":
    sys.exit(main())
