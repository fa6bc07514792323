"""What scenarios poll: objects as kubectl shows them, and one error that they wait through, whatever was refused."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.errors import ClusterError
from e2e.scenarios.reading import Reader

GOLD: dict[str, Any] = {"metadata": {"name": "gold", "managedFields": [{}]}}
ANSWERS = {
    "/api/v1/namespaces/llm/pods/gold": (200, json.dumps(GOLD | {"kind": "Pod"})),
    "/api/v1/namespaces/llm/pods?labelSelector=a%3Db": (200, json.dumps({"kind": "PodList", "items": [GOLD]})),
    "/api/v1/namespaces/llm/pods/gone": (404, json.dumps({"kind": "Status", "message": 'pods "gone" not found'})),
    "/apis/tierkeeper.dev/v1alpha1/namespaces/llm/servicetiers/gold": (404, "404 page not found\n"),
    "/apis/apps/v1/namespaces/llm/deployments/gold": (429, "Too many requests, please try again later.\n"),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    yield Reader(file)
    server.shutdown()
    server.server_close()


def test_an_object_is_shown_without_who_wrote_its_fields(reader: Reader) -> None:
    assert reader.get("llm", "pods", "gold") == {"kind": "Pod", "metadata": {"name": "gold"}}


def test_the_items_of_a_list_say_their_kind(reader: Reader) -> None:
    assert reader.list("llm", "pods", "a=b") == [{"kind": "Pod", "metadata": {"name": "gold"}}]


@pytest.mark.parametrize(
    ("resource", "name", "words"),
    [
        ("pods", "gone", 'failed: pods "gone" not found'),
        ("servicetiers", "gold", "failed: 404 page not found"),  # the CRD is not there yet
        ("deployments", "gold", "failed: Too many requests"),
    ],
)
def test_a_refusal_is_told_in_the_api_server_s_words(reader: Reader, resource: str, name: str, words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        reader.get("llm", resource, name)
