"""`python -m e2e.cluster`."""

import signal
import sys

from e2e.cluster.cli import main

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... status | head -1` ends quietly
sys.exit(main(sys.argv[1:]))
