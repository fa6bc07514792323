"""The licences of what the operator's image installs, as SPDX expressions.

``python -m supply.licenses`` writes docs/licenses.md; a test fails where it is not current, or where a licence is not
among the allowed ones.
"""

import importlib.metadata
import re

from supply.requirements import REQUIREMENTS, ROOT, pins

PAGE = ROOT / "docs/licenses.md"

ALLOWED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MPL-2.0",  # holds file by file: it binds who changes those files, and nobody here does
    "PSF-2.0",
}

_SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "MIT License": "MIT",
}
"""What older metadata writes instead of an SPDX identifier."""


def license_of(name: str) -> str:
    """The licence that an installed distribution declares. Raises ValueError where it declares none."""
    metadata = importlib.metadata.metadata(name)
    fields: list[str] = [*metadata.get_all("License-Expression", []), *metadata.get_all("License", [])]
    classifiers: list[str] = metadata.get_all("Classifier", [])
    for declared in (*fields, *(c.rsplit(" :: ", 1)[-1] for c in classifiers if c.startswith("License ::"))):
        if declared:
            return _SPELLINGS.get(declared, declared)
    raise ValueError(f"{name} declares no licence: read its files, and drop it where there is none")


def identifiers(expression: str) -> set[str]:
    """The licences in an SPDX expression, whatever joins them."""
    return set(re.split(r"\s+(?:AND|OR|WITH)\s+", expression.strip("()")))


def page() -> str:
    """The text of docs/licenses.md."""
    rows = [f"| {pin.name} | {pin.version} | {license_of(pin.name)} |" for pin in pins(REQUIREMENTS.read_text())]
    return "\n".join(
        [
            "# Licences of the dependencies",
            "",
            "Everything that `requirements.txt` installs into the operator's image, with the licence that its own",
            "metadata declares. Tierkeeper itself is Apache-2.0. `make generate` writes this page; a test holds",
            "it current and refuses a licence outside of the list in `supply/licenses.py`.",
            "The base image brings its own.",
            "",
            "| package | version | licence |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
