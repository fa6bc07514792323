"""Write the table of values in the chart's README from the comments in values.yaml.

``python charts/values_table.py`` rewrites the table; a test fails where it is not current. The comment directly above a
value is its description. What counts as one value comes from values.schema.json: down to where it names no properties.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "tierkeeper"
START, END = (
    "<!-- values: `python charts/values_table.py` writes this table from values.yaml -->",
    "<!-- end of values -->",
)


def leaves(node: yaml.MappingNode, schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, int, yaml.Node]]:
    """Each value as (dotted name, line of its key from 0, its node). Raises KeyError for one without a schema."""
    for key, value in node.value:
        name, below = f"{above}{key.value}", schema["properties"][key.value]
        if isinstance(value, yaml.MappingNode) and "properties" in below:
            yield from leaves(value, below, f"{name}.")
        else:
            yield name, key.start_mark.line, value


def comment_above(lines: list[str], line: int) -> str:
    """The block of comment lines that ends right above a line, as one text."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(text.lstrip().removeprefix("#").strip() for text in lines[first:line])


def shown(node: yaml.Node) -> str:
    """A default as one would write it on one line."""
    value = yaml.safe_load(yaml.serialize(node))
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict | list) and value:
        return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()
    return json.dumps(value)


def table(chart: Path = CHART) -> str:
    """The Markdown table. Raises ValueError for a value without a comment."""
    text = (chart / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"{chart}/values.yaml holds no mapping")
    rows = ["| value | default | what it does |", "|---|---|---|"]
    for name, line, node in leaves(root, schema):
        description = comment_above(text.splitlines(), line).replace("|", "\\|")
        if not description:
            raise ValueError(f"{name} in values.yaml has no comment above it: describe it there")
        rows.append(f"| `{name}` | `{shown(node)}` | {description} |")
    return "\n".join(rows)


def with_table(readme: str, rows: str) -> str:
    """The README with its table replaced. Raises ValueError where the two marks are not there."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the README has no table between {START} and {END}")
    return f"{before}{START}\n\n{rows}\n\n{END}{after}"


def main() -> None:
    """Rewrite the table in place."""
    readme = CHART / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), table()), encoding="utf-8")


if __name__ == "__main__":
    main()
