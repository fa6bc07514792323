"""``python -m e2e.tools``: build every program that tests and scenarios use, and print where each lies."""

import sys

from e2e import tools
from e2e.artifacts import BuildError

try:
    print(*(build() for build in tools.ALL), sep="\n")
except BuildError as error:
    sys.exit(f"error: {error}")
