"""Ports, labels and settings that the chart spells out are the ones that the operator and its pools have."""

from typing import Any

import pytest

from tests.charts.cases import CASES
from tierkeeper.adapters.tracing import ENDPOINTS
from tierkeeper.engine.flags import HTTP_PORT
from tierkeeper.render.names import MANAGED_BY_LABEL, MANAGER, TIER_LABEL
from tierkeeper.render.pod import PORT_NAME
from tierkeeper.settings import Settings

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

POOLS = {
    "matchLabels": {MANAGED_BY_LABEL: MANAGER},
    "matchExpressions": [{"key": TIER_LABEL, "operator": "Exists"}],
}
OPERATOR = ("Deployment", "tierkeeper-system/tierkeeper")


def environment(objects: Any, values: dict[str, Any] | None = None) -> dict[str, str]:
    """The plain variables of the operator's container."""
    (container,) = objects(values)[OPERATOR]["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_every_variable_is_a_setting_and_the_defaults_are_the_operators_own(
    objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environment(objects)
    assert {name.removeprefix("TIERKEEPER_").lower() for name in given} <= set(Settings.model_fields)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert Settings().model_dump(exclude={"log_format"}) == Settings.model_construct().model_dump(
        exclude={"log_format"}
    )


def test_the_lease_that_the_operator_asks_for_is_the_one_it_may_write(
    objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(objects, CASES["standby"]).items():
        monkeypatch.setenv(name, value)
    asked = Settings()
    (rule,) = objects(CASES["standby"])["Role", "tierkeeper-system/tierkeeper-lease"]["rules"]
    assert asked.lease == f"tierkeeper-system/{rule['resourceNames'][0]}"
    assert (asked.lease_duration_seconds, asked.lease_renew_deadline_seconds, asked.lease_retry_seconds) == (60, 40, 5)


def test_defaults_of_the_lease_are_the_operators_own(objects: Any) -> None:
    given = environment(objects, CASES["lease-of-one"])
    told = {name: int(value) for name, value in given.items() if name.startswith("TIERKEEPER_LEASE_")}
    assert len(told) == 3
    assert told == {name: Settings.model_fields[name.removeprefix("TIERKEEPER_").lower()].default for name in told}


def test_a_token_file_is_where_the_secret_is_mounted(objects: Any) -> None:
    pod = objects(CASES["prometheus-token"])[OPERATOR]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    file = next(each["value"] for each in container["env"] if each["name"] == "TIERKEEPER_PROMETHEUS_TOKEN_FILE")
    mount = next(each for each in container["volumeMounts"] if each["name"] == "prometheus-token")
    volume = next(each for each in pod["volumes"] if each["name"] == "prometheus-token")
    assert file == f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"


def test_monitors_find_the_pools_and_label_them_as_the_operator_asks(objects: Any) -> None:
    monitor = objects(CASES["metric-labels"])["PodMonitor", "tierkeeper-system/tierkeeper-pools"]["spec"]
    assert monitor["selector"] == POOLS
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == PORT_NAME
    written = {each["sourceLabels"][0]: each["targetLabel"] for each in endpoint["relabelings"]}
    asked = environment(objects, CASES["metric-labels"])
    assert written == {
        "__meta_kubernetes_namespace": asked["TIERKEEPER_NAMESPACE_LABEL"],
        "__meta_kubernetes_pod_name": asked["TIERKEEPER_POD_LABEL"],
        "__meta_kubernetes_pod_label_tierkeeper_dev_tier": asked["TIERKEEPER_TIER_LABEL"],
    }
    assert endpoint["interval"] == f"{asked['TIERKEEPER_SCRAPE_INTERVAL_SECONDS']}s"


def test_the_service_monitor_finds_the_service_and_the_service_the_pod(objects: Any) -> None:
    found = objects(CASES["monitors"])
    service = found["Service", "tierkeeper-system/tierkeeper-metrics"]
    monitor = found["ServiceMonitor", "tierkeeper-system/tierkeeper"]["spec"]
    template = found[OPERATOR]["spec"]["template"]
    assert service["metadata"]["labels"].items() >= monitor["selector"]["matchLabels"].items()
    assert template["metadata"]["labels"].items() >= service["spec"]["selector"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    ports = {each["name"] for each in template["spec"]["containers"][0]["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports


def test_network_policies_let_operator_and_pools_speak_and_prometheus_look(objects: Any) -> None:
    found = objects(CASES["network-policies"])
    operator = found["NetworkPolicy", "tierkeeper-system/tierkeeper"]["spec"]
    pools = found["NetworkPolicy", "chat/tierkeeper-pools"]["spec"]
    pod = found[OPERATOR]["spec"]["template"]["metadata"]["labels"]
    assert pod.items() >= operator["podSelector"]["matchLabels"].items()
    assert pools["podSelector"] == POOLS

    to_pools = operator["egress"][-1]
    assert to_pools["to"] == [{"namespaceSelector": {}, "podSelector": POOLS}]
    (from_clients,) = pools["ingress"]
    assert to_pools["ports"] == from_clients["ports"] == [{"port": HTTP_PORT, "protocol": "TCP"}]
    caller = from_clients["from"][0]
    assert caller["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "tierkeeper-system"}
    assert pod.items() >= caller["podSelector"]["matchLabels"].items()

    prometheus = CASES["network-policies"]["networkPolicy"]["prometheus"]["peers"]
    assert operator["ingress"][1]["from"] == operator["egress"][2]["to"] == prometheus
    assert from_clients["from"][1:2] == prometheus


def test_a_collector_is_named_by_the_standard_variable_and_reached_at_its_port(objects: Any) -> None:
    assert environment(objects, CASES["tracing"])[ENDPOINTS[-1]] == "http://otel-collector.monitoring.svc:4318"
    egress = objects(CASES["tracing-by-network-policy"])["NetworkPolicy", "tierkeeper-system/tierkeeper"]["spec"][
        "egress"
    ]
    named = CASES["tracing-by-network-policy"]["networkPolicy"]["tracing"]["peers"]
    assert egress[3] == {"ports": [{"port": 443, "protocol": "TCP"}], "to": named}
    anywhere = CASES["tracing"] | {"networkPolicy": {"operator": {"enabled": True}}}
    egress = objects(anywhere)["NetworkPolicy", "tierkeeper-system/tierkeeper"]["spec"]["egress"]
    assert egress[3] == {"ports": [{"port": 4318, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://prometheus-operated.monitoring.svc:9090", 9090),
        ("https://metrics.example/select/0", 443),
        ("http://metrics.example", 80),
        ("http://[fd00::9]:8481/prometheus", 8481),
        ("http://[fd00::9]", 80),
    ],
)
def test_the_port_of_prometheus_is_read_from_its_address(url: str, port: int, objects: Any) -> None:
    found = objects({"prometheus": {"url": url}, "networkPolicy": {"operator": {"enabled": True}}})
    egress = found["NetworkPolicy", "tierkeeper-system/tierkeeper"]["spec"]["egress"]
    assert egress[2]["ports"] == [{"port": port, "protocol": "TCP"}]
