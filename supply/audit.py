"""Whether a dependency that requirements.txt pins has a known vulnerability, by pip-audit.

``python -m supply.audit`` ends with 1 where one is known. Where the advisory service cannot be asked, as on a machine
without internet, it says so and ends with 0; ``--strict``, for a release, ends with 1 there too.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supply.requirements import REQUIREMENTS

Report = dict[str, Any]
"""pip-audit's own: ``dependencies``, each with its ``vulns``, or with the ``skip_reason`` that nobody knows it."""

_UNREACHED = ("ConnectionError", "Could not connect", "ConnectTimeout", "ReadTimeout", "ServiceError")
"""What pip-audit says where the service does not answer, or with an error."""


class AuditError(Exception):
    """pip-audit did not work; the message is the end of what it said."""


def ask(requirements: Path, *options: str) -> Report | None:
    """pip-audit's report on a hashed requirements file; None where the service could not be reached.

    ``options`` are more of pip-audit's own. Raises AuditError for any other failure.
    """
    command = [sys.executable, "-m", "pip_audit", f"--requirement={requirements}", "--require-hashes"]
    command += ["--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=5", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    try:
        report: Report = json.loads(done.stdout)
    except ValueError:
        if any(words in done.stderr for words in _UNREACHED):
            return None
        raise AuditError(f"pip-audit ended with code {done.returncode}: {done.stderr.strip()[-2000:]}") from None
    return report


def verdict(report: Report | None, *, strict: bool = False) -> tuple[int, str]:
    """The exit code and what to print. A dependency that the service does not know counts as not asked about."""
    dependencies = report["dependencies"] if report else []
    asked = [each for each in dependencies if "skip_reason" not in each]
    if not asked:
        return int(strict), "NOT AUDITED: the advisory service was not reached, so nothing is known of vulnerabilities."
    found = [_line(each, vulnerability) for each in asked for vulnerability in each["vulns"]]
    if found:
        return 1, "\n".join([*found, "Raise these versions (pyproject.toml, `make lock`), or stop using them."])
    unknown = sorted(each["name"] for each in dependencies if "skip_reason" in each)
    text = f"Audited {len(asked)} dependencies: no known vulnerability."
    return int(strict and bool(unknown)), f"{text} Not known to the service: {', '.join(unknown)}." if unknown else text


def _line(dependency: Report, vulnerability: Report) -> str:
    fixed = ", ".join(vulnerability["fix_versions"]) or "no release yet"
    names = ", ".join([vulnerability["id"], *vulnerability["aliases"]])
    about = vulnerability["description"][:200]
    return f"{dependency['name']} {dependency['version']}: {names}, fixed in {fixed}. {about}"


def main(arguments: Sequence[str], requirements: Path = REQUIREMENTS) -> int:
    """Ask, print and return the exit code; 2 where pip-audit itself failed."""
    parser = argparse.ArgumentParser(prog="python -m supply.audit", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail where something could not be asked about")
    parser.add_argument("--osv-url", metavar="URL", help="ask an OSV service here instead of the package index")
    chosen = parser.parse_args(arguments)
    service = ["--vulnerability-service=osv", f"--osv-url={chosen.osv_url}"] if chosen.osv_url else []
    try:
        code, text = verdict(ask(requirements, *service), strict=chosen.strict)
    except AuditError as error:
        code, text = 2, str(error)
    print(text, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
