"""The source root is named ``operator``: it must never shadow the standard library's module of that name."""

import operator
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_operator_folder_is_a_source_root_and_not_a_package():
    assert [p.name for p in (ROOT / "operator").glob("*.py")] == []


def test_the_operator_that_is_imported_is_the_standard_library_one():
    assert Path(operator.__file__).is_relative_to(Path(sys.base_prefix))
    assert operator.add(2, 3) == 5
