"""The API client against a real HTTP server that plays the API server."""

import json

import pytest
from aiohttp import web
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from tierkeeper.adapters.kube import KubernetesApi, Patience
from tierkeeper.ports import ApiError, Kind


class ApiServer:
    """Answers what ``script`` says, in order (the last one for ever), and remembers the requests."""

    def __init__(self):
        self.script = [(200, {}, {})]
        self.requests = []

    async def handle(self, request):
        self.requests.append(
            (request.method, request.path_qs, request.headers.get("Content-Type"), await request.text())
        )
        status, body, headers = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if status == 0:
            request.transport.close()
        return web.Response(
            status=status or 200, text=body if isinstance(body, str) else json.dumps(body), headers=headers
        )


@pytest.fixture
async def server():
    api = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.port = runner.addresses[0][1]
    yield api
    await runner.cleanup()


@pytest.fixture
async def kube(server):
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    configuration.api_key["BearerToken"] = "bearer s3cret"
    server.waits = []

    async def sleep(seconds):
        server.waits.append(seconds)

    client = KubernetesApi(
        ApiClient(configuration), random=lambda: 0.0, sleep=sleep, patience=Patience(timeout_seconds=2)
    )
    yield client
    await client.close()


async def test_an_absent_object_is_none_and_not_an_error(server, kube):
    server.script = [(404, {"reason": "NotFound", "message": "no"}, {})]
    assert await kube.get(Kind.DEPLOYMENT, namespace="llm", name="gold-pool") is None
    assert server.requests[0][:2] == ("GET", "/apis/apps/v1/namespaces/llm/deployments/gold-pool")


async def test_apply_is_server_side_with_force_and_a_field_manager(server, kube):
    server.script = [(200, {"metadata": {"resourceVersion": "7"}}, {})]
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "llm", "name": "gold-pool"}}
    assert (await kube.apply(obj, field_manager="tierkeeper"))["metadata"]["resourceVersion"] == "7"
    method, path, content_type, body = server.requests[0]
    assert (method, content_type) == ("PATCH", "application/apply-patch+yaml")
    assert path == "/api/v1/namespaces/llm/services/gold-pool?fieldManager=tierkeeper&force=true"
    assert json.loads(body) == obj


async def test_status_and_scale_go_to_their_subresources(server, kube):
    tier = {
        "apiVersion": "tierkeeper.dev/v1alpha1",
        "kind": "ServiceTier",
        "metadata": {"namespace": "llm", "name": "gold"},
        "status": {},
    }
    await kube.apply_status(tier, field_manager="tierkeeper")
    await kube.scale(namespace="llm", name="gold-pool", uid="u1", replicas=3, field_manager="tierkeeper-scale")
    assert [path.partition("?")[0] for _, path, _, _ in server.requests] == [
        "/apis/tierkeeper.dev/v1alpha1/namespaces/llm/servicetiers/gold/status",
        "/apis/apps/v1/namespaces/llm/deployments/gold-pool/scale",
    ]
    body = json.loads(server.requests[1][3])
    assert (body["metadata"]["uid"], body["spec"]) == ("u1", {"replicas": 3})


async def test_a_list_is_read_page_by_page(server, kube):
    server.script = [
        (200, {"metadata": {"continue": "more"}, "items": [{"a": 1}]}, {}),
        (200, {"metadata": {}, "items": [{"a": 2}]}, {}),
    ]
    found = await kube.list(Kind.POD, namespace=None, label_selector="tierkeeper.dev/tier")
    assert found == [{"a": 1}, {"a": 2}]
    assert server.requests[0][1] == "/api/v1/pods?limit=500&labelSelector=tierkeeper.dev/tier"
    assert server.requests[1][1].endswith("&continue=more")


async def test_a_throttled_call_waits_at_least_as_long_as_it_was_told(server, kube):
    server.script = [(429, {"reason": "TooManyRequests"}, {"Retry-After": "7"})] * 2 + [(200, {"ok": True}, {})]
    assert await kube.get(Kind.POD, namespace="llm", name="p") == {"ok": True}
    assert len(server.waits) == 2
    assert min(server.waits) >= 7


async def test_a_long_throttle_is_handed_to_the_caller_instead_of_held(server, kube):
    server.script = [(429, {"reason": "TooManyRequests"}, {"Retry-After": "120"})]
    with pytest.raises(ApiError) as caught:
        await kube.get(Kind.POD, namespace="llm", name="p")
    assert (caught.value.status, caught.value.retry_after, server.waits) == (429, 120.0, [])


async def test_a_dropped_connection_and_a_bad_gateway_are_tried_again(server, kube):
    server.script = [(0, "", {}), (0, "", {}), (503, "<html>bad gateway</html>", {}), (200, {"ok": True}, {})]
    assert await kube.apply({"kind": "Pod", "metadata": {"namespace": "llm", "name": "p"}}, field_manager="x")
    assert server.waits == [0.2, 0.4, 0.8]


async def test_a_refusal_is_not_tried_again_and_says_why(server, kube):
    server.script = [(403, {"reason": "Forbidden", "message": "pods is forbidden"}, {})]
    with pytest.raises(ApiError, match="403 Forbidden: pods is forbidden"):
        await kube.list(Kind.POD, namespace="llm")
    assert len(server.requests) == 1


async def test_a_server_that_stays_down_ends_in_an_error_after_a_few_tries(server, kube):
    server.script = [(502, "<html>oops</html>", {})]
    with pytest.raises(ApiError, match="502 Unknown: <html>oops"):
        await kube.get(Kind.POD, namespace="llm", name="p")
    assert len(server.requests) == 4


async def test_no_error_text_carries_the_token(server, kube):
    server.script = [(401, {"reason": "Unauthorized", "message": "Unauthorized"}, {})]
    with pytest.raises(ApiError) as caught:
        await kube.get(Kind.POD, namespace="llm", name="p")
    assert "s3cret" not in str(caught.value)


async def test_nudging_a_pod_that_is_gone_is_not_an_error(server, kube):
    server.script = [(404, {"reason": "NotFound"}, {})]
    await kube.annotate_pod(namespace="llm", name="p", annotations={"a": "b"})
    assert server.requests[0][2] == "application/merge-patch+json"


async def test_an_event_that_arrived_at_an_earlier_try_counts_as_posted(server, kube):
    server.script = [(503, "", {}), (409, {"reason": "AlreadyExists"}, {})]
    await kube.create_event({"metadata": {"namespace": "llm", "name": "gold.1"}})
    assert len(server.requests) == 2


async def test_an_object_that_the_api_server_cannot_read_is_a_refusal_and_not_an_outage(server, kube):
    said = "failed to create typed patch object (llm/gold-pool): .spec.template.spec.affinity.x: field not declared"
    server.script = [(500, {"kind": "Status", "status": "Failure", "message": said, "code": 500}, {})]
    with pytest.raises(ApiError, match=r"affinity\.x: field not declared") as caught:
        await kube.apply({"kind": "Deployment", "metadata": {"namespace": "llm", "name": "p"}}, field_manager="x")
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>please log in</html>", "no JSON: <html>please log in"),
        ('["ok"]', r"no JSON object: \['ok'\]"),
        ("null", "no JSON object: None"),
        ("[" * 100_000, r"no JSON: \[\["),
    ],
    ids=["page", "list", "null", "deep"],
)
async def test_what_is_no_answer_of_an_api_server_is_an_error_with_a_name(server, kube, body, said):
    server.script = [(200, body, {})]
    with pytest.raises(ApiError, match=f"0 BadAnswer: {said}"):
        await kube.get(Kind.POD, namespace="llm", name="p")


async def test_an_apply_to_another_object_than_the_one_looked_at_is_a_conflict(server, kube):
    """As Kubernetes 1.36 words it."""
    said = {
        "reason": "Invalid",
        "message": 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "u1": field is immutable',
        "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "immutable"}]},
    }
    server.script = [(422, said, {})]
    with pytest.raises(ApiError, match="409 Conflict"):
        await kube.apply({"kind": "ConfigMap", "metadata": {"namespace": "llm", "name": "a"}}, field_manager="x")


async def test_a_namespace_that_is_being_deleted_is_told_from_a_missing_right(server, kube):
    causes = [{"reason": "NamespaceTerminating", "message": "namespace llm is being terminated"}]
    said = {"reason": "Forbidden", "message": "configmaps is forbidden", "details": {"causes": causes}}
    server.script = [(403, said, {})]
    with pytest.raises(ApiError) as caught:
        await kube.apply({"kind": "ConfigMap", "metadata": {"namespace": "llm", "name": "a"}}, field_manager="x")
    assert caught.value.reason == "NamespaceTerminating"


@pytest.mark.parametrize("details", [None, [], {"causes": None}, {"causes": ["odd"]}, {"causes": "odd"}])
async def test_a_refusal_whose_details_are_odd_is_still_a_refusal(server, kube, details):
    server.script = [(422, {"reason": "Invalid", "message": "no", "details": details}, {})]
    with pytest.raises(ApiError, match="422 Invalid: no"):
        await kube.list(Kind.POD, namespace="llm")


@pytest.mark.parametrize("header", ["soon", "-1", "1.5", "", "\u00b2"])
async def test_a_retry_after_that_is_no_number_of_seconds_is_passed_over(server, kube, header):
    server.script = [(429, {"reason": "TooManyRequests"}, {"Retry-After": header}), (200, {"ok": True}, {})]
    assert await kube.get(Kind.POD, namespace="llm", name="p") == {"ok": True}
    assert server.waits == [0.2]


async def test_behind_a_fence_nothing_that_writes_is_sent_nor_sent_again(server, kube):
    may = iter([True, False])
    server.script = [(503, {}, {}), (200, {}, {})]
    with pytest.raises(ApiError, match="another replica may lead by now"):
        await kube.fenced(lambda: next(may)).scale(
            namespace="llm", name="gold-pool", uid=None, replicas=2, field_manager="m"
        )
    assert [method for method, *_ in server.requests] == ["PATCH"]


async def test_a_fence_lets_reads_through(server, kube):
    server.script = [(200, {"items": []}, {})]
    assert await kube.fenced(lambda: False).list(Kind.POD, namespace="llm") == []


async def test_once_is_once(server, kube):
    server.script = [(503, {"message": "down"}, {})]
    with pytest.raises(ApiError, match="down"):
        await kube.once().get(Kind.LEASE, namespace="ops", name="tierkeeper")
    assert [path for _, path, *_ in server.requests] == [
        "/apis/coordination.k8s.io/v1/namespaces/ops/leases/tierkeeper"
    ]
