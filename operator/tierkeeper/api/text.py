"""YAML as people read it."""

from __future__ import annotations

import yaml


class _Readable(yaml.SafeDumper):
    """No anchors where a value occurs again, and texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  (the signature is PyYAML's)
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def to_yaml(value: object) -> str:
    """One YAML document, keys in the order given."""
    return str(yaml.dump(value, Dumper=_Readable, sort_keys=False, allow_unicode=True, width=120))
