"""``tierkeeper crd``: the CRD, or the API reference, on standard output."""

from __future__ import annotations

import argparse
import sys

from tierkeeper.api.crd import crd_yaml
from tierkeeper.api.reference import reference

HELP = "print the CustomResourceDefinition of ServiceTier"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--docs", action="store_true", help="print the API reference as Markdown instead")


def execute(arguments: argparse.Namespace) -> int:
    sys.stdout.write(reference() if arguments.docs else crd_yaml())
    return 0
