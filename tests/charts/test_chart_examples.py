"""The chart's sets of values to start from install as they are, and keep what their first lines promise."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "charts/tierkeeper/examples"
GUIDE = ROOT / "docs/how-to/install.md"


def example(name: str) -> dict[str, Any]:
    values: dict[str, Any] = fast_yaml.load((EXAMPLES / f"{name}.yaml").read_text())
    return values


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_example_renders(path: Path, objects: Any) -> None:
    assert objects(example(path.stem))


def test_air_gapped_pulls_from_one_private_registry_by_digest(render: Any) -> None:
    text = render(example("air-gapped")).stdout
    images = re.findall(r"^\s+image: \"?([^\"\n]+)", text, flags=re.MULTILINE)
    assert images == [f"registry.internal.example/tierkeeper/operator@sha256:{'0' * 64}"]


def test_beside_the_stock_stack_everything_it_looks_for_carries_its_release_label(objects: Any) -> None:
    values = example("kube-prometheus-stack")
    found = objects(values)
    looked_for = {
        key: document for key, document in found.items() if key[0] in ("PodMonitor", "ServiceMonitor", "PrometheusRule")
    }
    assert {"PodMonitor", "ServiceMonitor"} <= {kind for kind, _ in looked_for}
    assert {document["metadata"]["labels"]["release"] for document in looked_for.values()} == {"kube-prometheus-stack"}


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL))
def test_every_piece_of_values_in_the_guide_installs(block: str, objects: Any) -> None:
    assert objects(fast_yaml.load(block))
