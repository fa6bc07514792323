"""Each way a pod can be is told apart, with a cause a person can act on."""

import pytest

from tierkeeper.api.conditions import ConditionReason
from tierkeeper.control.pods import PodPhase, take_census
from tierkeeper.control.store import project
from tierkeeper.ports import Kind

SCHEDULED = {"type": "PodScheduled", "status": "True"}


def pod(name="gold-pool-abc-1", *, hash_="abc", owner="gold-pool-abc", status=None, **meta):
    return {
        "metadata": {
            "name": name,
            "labels": {"tierkeeper.dev/tier": "gold", "pod-template-hash": hash_},
            "ownerReferences": [{"kind": "ReplicaSet", "name": owner, "controller": True}],
        }
        | meta,
        "status": status or {},
    }


def container(*, state, ready=False, restarts=0, last=None, name="vllm"):
    return {"name": name, "image": "vllm:v0.32.0", "ready": ready, "restartCount": restarts, "state": state} | (
        {"lastState": {"terminated": last}} if last else {}
    )


def running(*containers, ready=False):
    return {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [SCHEDULED, {"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": list(containers),
    }


def only(*pods):
    (view,) = census(*pods).pods
    return view


def census(*pods):
    """As the reconciler takes it from whole pods, and the loop, alike, from what is kept of them."""
    seen, kept = (
        take_census(them, deployment="gold-pool", nudge_annotation="tierkeeper.dev/limit")
        for them in (pods, [project(Kind.POD, one) for one in pods])
    )
    assert seen == kept
    return seen


def test_a_ready_pod_is_capacity():
    view = only(pod(status=running(container(state={"running": {}}, ready=True), ready=True)))
    assert (view.phase, view.ip, view.reason) == (PodPhase.READY, "10.0.0.7", None)


def test_a_pod_that_loads_its_model_is_capacity_to_come():
    assert only(pod(status=running(container(state={"running": {}})))).phase is PodPhase.STARTING


@pytest.mark.parametrize(("since", "lost"), [("18:00:01", False), ("18:00:02", False), ("18:20:00", True)])
def test_a_pod_that_was_ready_since_its_container_started_is_told_from_one_that_starts(since, lost):
    day = "2026-11-29T"
    status = running(container(state={"running": {"startedAt": f"{day}18:00:02Z"}}))
    status["conditions"][1]["lastTransitionTime"] = f"{day}{since}Z"
    view = only(pod(status=status))
    assert (view.phase, view.lost) == (PodPhase.STARTING, lost)


def ready_after(seconds, *, restarts=0, made="12:00:00"):
    """A Ready pod of noon that has been Ready since so many seconds later."""
    status = running(container(state={"running": {}}, ready=True, restarts=restarts), ready=True)
    status["conditions"][1]["lastTransitionTime"] = f"2026-11-30T12:{seconds // 60:02}:{seconds % 60:02}Z"
    return pod(status=status, creationTimestamp=f"2026-11-30T{made}Z")


def test_ready_pods_tell_how_long_a_start_takes():
    assert census(ready_after(90), ready_after(110), ready_after(400)).startup_seconds(most=1800) == 110
    assert census(pod(status=running(container(state={"running": {}})))).startup_seconds(most=1800) is None


def test_neither_a_restart_nor_a_readiness_lost_and_found_is_a_start():
    assert census(ready_after(90), ready_after(50 * 60), ready_after(200, restarts=1)).startup_seconds(most=1800) == 90


def test_a_node_whose_clock_is_behind_makes_no_start_shorter_than_none():
    """The API server says when a pod was made, the node's kubelet when it became Ready."""
    assert census(ready_after(90, made="12:05:00")).startup_seconds(most=1800) is None
    assert census(ready_after(90, made="12:05:00"), ready_after(110)).startup_seconds(most=1800) == 110


def test_a_pod_that_pulls_a_large_image_is_capacity_to_come():
    status = {"phase": "Pending", "conditions": [SCHEDULED], "containerStatuses": []}
    status["containerStatuses"] = [container(state={"waiting": {"reason": "ContainerCreating"}})]
    assert only(pod(status=status)).phase is PodPhase.STARTING


def test_a_pod_without_a_node_carries_the_scheduler_s_words():
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    status = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}],
    }
    view = only(pod(status=status))
    assert (view.phase, view.message) == (PodPhase.UNSCHEDULABLE, said)


def test_a_pod_at_a_gate_has_no_node_and_names_the_gate():
    """As the API server and the scheduler of 1.36 have it, before Kueue admits the pod."""
    said = "Scheduling is blocked due to non-empty scheduling gates"
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": said}
    gated = pod(status={"phase": "Pending", "conditions": [scheduled]})
    gated["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    view = only(gated)
    assert (view.phase, view.reason) == (PodPhase.UNSCHEDULABLE, ConditionReason.UNSCHEDULABLE)
    assert view.message == "pod gold-pool-abc-1 waits at its scheduling gate kueue.x-k8s.io/admission"


def without_a_node(reason, message, *gates):
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return pod(status={"phase": "Pending", "conditions": [scheduled]}) | {"spec": spec}


def test_what_keeps_pods_from_a_node_is_the_schedulers_word_only_where_it_has_spoken():
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert census(without_a_node("Unschedulable", said)).kept_from_a_node_by == f"scheduler: {said}"
    gated = census(without_a_node("SchedulingGated", "blocked", "example.com/quota", "kueue.x-k8s.io/admission"))
    gates = "pod gold-pool-abc-1 waits at its scheduling gate example.com/quota, kueue.x-k8s.io/admission"
    assert gated.kept_from_a_node_by == f"{gates}: whoever set it opens it; see the queue and its quota"
    assert census(pod(status={"phase": "Pending"})).kept_from_a_node_by == ""


def test_a_pod_whose_gate_has_opened_is_capacity_to_come_though_the_scheduler_has_not_looked_yet():
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    opened = pod(status={"phase": "Pending", "conditions": [scheduled]}) | {"spec": {}}
    view = only(opened)
    assert (view.phase, view.message, view.gated) == (PodPhase.STARTING, "", False)


def test_a_pod_that_the_scheduler_has_not_looked_at_is_capacity_to_come():
    assert only(pod(status={"phase": "Pending"})).phase is PodPhase.STARTING


@pytest.mark.parametrize(
    ("state", "reason", "says"),
    [
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
            ConditionReason.IMAGE_PULL,
            "spec.engine.image",
        ),
        (
            {"waiting": {"reason": "ErrImagePull", "message": "unauthorized"}},
            ConditionReason.IMAGE_PULL,
            "spec.pod.imagePullSecrets",
        ),
        (
            {"waiting": {"reason": "SignatureValidationFailed", "message": "no signature"}},
            ConditionReason.IMAGE_PULL,
            "no signature; check spec.engine.image",
        ),
        (
            {"waiting": {"reason": "InvalidImageName", "message": "bad ref"}},
            ConditionReason.INVALID_IMAGE,
            "spec.engine.image",
        ),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}},
            ConditionReason.CONTAINER_CONFIG,
            'secret "hf" not found; create it, or correct its name in the spec '
            "(the model's token: spec.model.tokenSecretRef)",
        ),
        (
            {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            ConditionReason.OUT_OF_MEMORY,
            "spec.resources.memory",
        ),
        (
            {"terminated": {"exitCode": 1, "message": "Traceback\nunknown flag --enable-metrics"}},
            ConditionReason.ENGINE_EXITED,
            "unknown flag --enable-metrics",
        ),
    ],
)
def test_a_failing_pod_names_its_cause_and_what_to_check(state, reason, says):
    view = only(pod(status=running(container(state=state))))
    assert (view.phase, view.reason) == (PodPhase.FAILING, reason)
    assert says in view.message
    assert "gold-pool-abc-1" in view.message


def waits(why, said="", **more):
    return container(state={"waiting": {"reason": why, "message": said}}, **more)


NODE = "its node is to blame (container runtime, GPU driver), or spec.engine.image where every node says so"


@pytest.mark.parametrize(
    ("why", "said", "remedy"),
    [
        ("CreateContainerError", "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=0", NODE),
        ("CreateContainerError", 'failed to reserve container name "vllm_0": name is reserved for "8f3a"', NODE),
        ("CreateContainerError", "context deadline exceeded", NODE),
        ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition", NODE),
        ("RunContainerError", "nvidia-container-cli: initialization error: driver not loaded", NODE),
        (
            "ErrImageNeverPull",
            "Container image is not present with pull policy of Never",
            "spec.engine.imagePullPolicy",
        ),
    ],
)
def test_what_the_node_cannot_do_is_not_told_as_a_secret_that_is_missing(why, said, remedy):
    view = only(pod(status=running(waits(why, said))))
    assert view.phase is PodPhase.FAILING
    assert view.reason is not ConditionReason.CONTAINER_CONFIG
    assert said in view.message
    assert view.message.endswith(remedy)


@pytest.mark.parametrize("why", ["CreateContainerError", "CreateContainerConfigError", "PreStartHookError"])
def test_a_container_that_its_node_cannot_make_is_tried_again_and_does_not_stall_the_tier_at_once(why):
    view = only(pod(status=running(waits(why, "context deadline exceeded"))))
    assert (view.reason, view.hopeless) == (ConditionReason.CONTAINER_CREATE, False)
    assert why in only(pod(status=running(waits(why)))).message


@pytest.mark.parametrize(
    ("said", "of_the_token"),
    [
        ('secret "hf" not found', True),
        ("couldn't find key token in Secret llm/hf", True),
        ('configmap "extra" not found', False),
        ("couldn't find key mode in ConfigMap llm/extra", False),
    ],
)
def test_a_secret_or_configmap_or_a_key_of_it_that_is_missing_waits_for_a_person(said, of_the_token):
    view = only(pod(status=running(waits("CreateContainerConfigError", said))))
    assert (view.reason, view.hopeless) == (ConditionReason.CONTAINER_CONFIG, True)
    assert f"{said}; create it, or correct its name in the spec" in view.message
    assert ("spec.model.tokenSecretRef" in view.message) is of_the_token


ENDED_WELL = {"exitCode": 0, "reason": "Completed"}
ENDED_WELL |= {"startedAt": "2026-11-30T12:00:00Z", "finishedAt": "2026-11-30T12:00:20Z"}


@pytest.mark.parametrize(
    "trouble",
    [
        waits("ImagePullBackOff", "not found", name="proxy"),
        waits("InvalidImageName", "bad ref", name="proxy"),
        waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", name="proxy"),
        waits("CreateContainerConfigError", 'secret "mesh" not found', name="proxy"),
        waits("RunContainerError", "exec: no such file", name="proxy"),
        waits("PostStartHookError", "exited with 1", name="proxy"),
        waits("CrashLoopBackOff", name="proxy", restarts=3, last=ENDED_WELL),
        container(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, name="proxy"),
    ],
    ids=lambda one: str(one["state"]),
)
def test_of_a_container_that_somebody_adds_no_field_of_the_spec_is_blamed(trouble):
    engine = container(state={"running": {}}, ready=True)
    view = only(pod(status=running(engine, trouble)))
    assert view.phase is PodPhase.FAILING
    assert "container proxy" in view.message
    assert view.message.endswith("see whoever adds this container to the tier's pods")
    assert "spec." not in view.message


def test_a_sidecar_that_ends_well_again_and_again_is_in_a_loop_and_never_done():
    """Kubernetes lists it among the init containers; it is told by its restart policy, and the same at each turn."""

    def seen(state):
        proxy = container(state=state, restarts=3, last=ENDED_WELL, name="proxy")
        status = running(waits("PodInitializing")) | {"initContainerStatuses": [proxy]}
        return only(pod(status=status) | {"spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}})

    turns = [seen(state) for state in ({"terminated": ENDED_WELL}, {"waiting": {"reason": "CrashLoopBackOff"}}, AGAIN)]
    ((phase, reason, said),) = {(turn.phase, turn.reason, turn.message) for turn in turns}
    assert (phase, reason) == (PodPhase.FAILING, ConditionReason.CRASH_LOOP)
    assert "container proxy ended with exit code 0, and is to run as long as its pod; " in said
    assert "`kubectl logs --previous -c proxy`" in said


@pytest.mark.parametrize("restarts", [0, 3])
def test_an_engine_that_ends_with_code_0_says_where_its_last_words_are(restarts):
    """One whose core died ends so, and the kubelet keeps the end of a log only where the code is another."""
    view = only(pod(status=running(container(state={"terminated": ENDED_WELL}, restarts=restarts))))
    said = "ended with exit code 0, and is to run as long as its pod; read `kubectl logs --previous`"
    assert view.message.endswith(said)


CRASHED = {"exitCode": 1, "message": "CUDA out of memory."}
CRASHED |= {"startedAt": "2026-11-30T12:00:00Z", "finishedAt": "2026-11-30T12:00:20Z"}


def crashing(state, *, restarts=3, last=CRASHED, ready_changed="11:59:00", beside=()):
    """A pod of noon whose engine crashed after 20 s and was started again at 12:01."""
    status = running(container(state=state, restarts=restarts, last=last), *beside)
    status["conditions"][1]["lastTransitionTime"] = f"2026-11-30T{ready_changed}Z"
    return pod(status=status)


AGAIN = {"running": {"startedAt": "2026-11-30T12:01:00Z"}}


def test_a_crash_loop_is_the_same_while_the_container_has_ended_waits_and_runs_for_a_moment():
    runs = only(crashing(AGAIN))
    waits = only(crashing({"waiting": {"reason": "CrashLoopBackOff"}}))
    ended = only(crashing({"terminated": CRASHED}))
    assert runs == waits == ended
    assert (runs.phase, runs.reason, runs.hopeless) == (PodPhase.FAILING, ConditionReason.CRASH_LOOP, True)
    assert "CUDA out of memory; read `kubectl logs --previous`" in runs.message


def test_the_first_end_is_no_loop_and_the_restart_after_it_is_capacity_to_come():
    ended = only(crashing({"terminated": CRASHED}, restarts=0))
    assert (ended.reason, ended.hopeless) == (ConditionReason.ENGINE_EXITED, False)
    assert only(crashing(AGAIN, restarts=1)).phase is PodPhase.STARTING


def test_a_container_that_could_not_be_started_never_ran_whatever_its_times_say():
    refused = {"reason": "StartError", "exitCode": 128, "message": "exec: no such file"}
    refused |= {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": "2026-11-30T12:00:20Z"}
    assert only(crashing(AGAIN, last=refused)).reason is ConditionReason.CRASH_LOOP


def test_a_container_that_cannot_be_started_is_in_a_loop_from_its_second_try_on_as_any_other():
    """A node whose GPU driver is gone: the kubelet waits with RunContainerError, then with CrashLoopBackOff."""
    refused = {"reason": "StartError", "exitCode": 128, "message": "nvidia-container-cli: driver not loaded"}
    refused |= {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": "2026-11-30T12:00:20Z"}
    fails, waits = ({"waiting": {"reason": why}} for why in ("RunContainerError", "CrashLoopBackOff"))
    first = only(crashing(fails, restarts=0, last=refused))
    assert (first.reason, first.hopeless) == (ConditionReason.ENGINE_EXITED, False)
    second = only(crashing(fails, restarts=1, last=refused))
    assert second == only(crashing(waits, restarts=1, last=refused))
    assert (second.reason, second.hopeless) == (ConditionReason.CRASH_LOOP, True)
    assert f"could not be started: nvidia-container-cli: driver not loaded; {NODE}" in second.message
    assert "kubectl logs" not in second.message


def test_a_pod_whose_containers_the_kubelet_has_not_told_of_yet_has_not_lost_anything():
    view = only(pod(status=running()))
    assert (view.phase, view.lost) == (PodPhase.STARTING, False)


def test_an_end_of_which_the_kubelet_knows_nothing_is_no_failed_start():
    """Its node was away: the container is not there any more."""
    unknown = {"reason": "ContainerStatusUnknown", "exitCode": 137, "startedAt": None, "finishedAt": None}
    ended = only(crashing({"terminated": unknown}, last=None))
    assert (ended.reason, ended.hopeless) == (ConditionReason.ENGINE_EXITED, False)
    assert only(crashing(AGAIN, last=unknown)).phase is PodPhase.STARTING


def test_an_engine_that_served_for_a_while_and_crashed_is_in_no_loop_while_it_starts_again():
    """It was Ready from 12:01 on, and ended 20 minutes later: no start has failed."""
    served = CRASHED | {"finishedAt": "2026-11-30T12:21:00Z"}
    ended = only(crashing({"terminated": served}, last=None, ready_changed="12:21:00"))
    assert (ended.reason, ended.hopeless) == (ConditionReason.ENGINE_EXITED, False)
    again = {"running": {"startedAt": "2026-11-30T12:21:01Z"}}
    assert only(crashing(again, last=served, ready_changed="12:21:00")).phase is PodPhase.STARTING


def test_an_engine_that_served_for_a_minute_between_two_crashes_is_in_a_loop():
    served = CRASHED | {"finishedAt": "2026-11-30T12:01:30Z"}
    again = {"running": {"startedAt": "2026-11-30T12:01:31Z"}}
    assert only(crashing(again, last=served, ready_changed="12:01:30")).reason is ConditionReason.CRASH_LOOP


def test_an_engine_that_crashed_long_ago_served_and_hangs_is_lost_and_in_no_crash_loop():
    view = only(crashing(AGAIN, ready_changed="18:00:00"))
    assert (view.phase, view.lost) == (PodPhase.STARTING, True)


def test_an_engine_is_judged_by_itself_and_not_by_a_sidecar_that_runs_all_the_time():
    mesh = container(state={"running": {"startedAt": "2026-11-30T11:00:00Z"}}, ready=True)
    assert only(crashing(AGAIN, beside=[mesh])).reason is ConditionReason.CRASH_LOOP
    starts = only(crashing(AGAIN, restarts=1, beside=[mesh]))
    assert (starts.phase, starts.lost) == (PodPhase.STARTING, False)


def test_an_engine_that_is_ready_again_is_in_no_crash_loop_though_a_sidecar_keeps_its_pod_from_serving():
    mesh = container(state={"running": {"startedAt": "2026-11-30T11:00:00Z"}})
    ready = container(state=AGAIN, ready=True, restarts=3, last=CRASHED)
    status = running(ready, mesh)
    status["conditions"][1]["lastTransitionTime"] = "2026-11-30T11:59:00Z"
    assert only(pod(status=status)).phase is PodPhase.STARTING


def test_an_engine_that_may_not_read_its_model_says_so():
    last = {"exitCode": 1, "message": "GatedRepoError: 403 Client Error. Access to model x is restricted"}
    view = only(
        pod(status=running(container(state={"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3, last=last)))
    )
    assert view.phase is PodPhase.FAILING
    assert "no access to the model; check the token of spec.model.tokenSecretRef" in view.message


@pytest.mark.parametrize("restarts", [0, 1])
def test_an_engine_that_ended_with_code_0_has_failed_too(restarts):
    view = only(pod(status=running(container(state={"terminated": {"exitCode": 0}}, restarts=restarts))))
    assert view.phase is PodPhase.FAILING


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_an_init_container_that_did_its_work_at_a_later_try_is_no_failure(restarts):
    """A mesh or a vault puts it in; after a reboot of the node it runs once more."""
    done = container(state={"terminated": {"exitCode": 0, "reason": "Completed"}}, ready=True, restarts=restarts)
    status = running(container(state={"running": {}}, ready=True), ready=True)
    assert only(pod(status=status | {"initContainerStatuses": [done]})).phase is PodPhase.READY


def test_an_init_container_that_does_its_work_once_more_is_no_failure():
    """As after each reboot of its node: it has come to a good end every time so far."""
    well = CRASHED | {"exitCode": 0, "reason": "Completed"}
    again = container(state={"running": {}}, restarts=3, last=well)
    waits = container(state={"waiting": {"reason": "PodInitializing"}})
    assert only(pod(status=running(waits) | {"initContainerStatuses": [again]})).phase is PodPhase.STARTING


@pytest.mark.parametrize(
    ("state", "ready", "unmade"),
    [
        ({"running": {}}, False, False),
        ({"running": {}}, True, True),
        ({"waiting": {"reason": "PodInitializing"}}, False, True),
        ({"terminated": {"exitCode": 0}}, True, True),
    ],
    ids=["it downloads the model", "a sidecar", "its own image is pulled", "done"],
)
def test_a_pod_waits_for_image_or_volumes_unless_an_init_container_is_at_work(state, ready, unmade):
    waits = container(state={"waiting": {"reason": "PodInitializing"}})
    view = only(pod(status=running(waits) | {"initContainerStatuses": [container(state=state, ready=ready)]}))
    assert (view.phase, view.unmade) == (PodPhase.STARTING, unmade)


@pytest.mark.parametrize("state", [{"terminated": {"exitCode": 1}}, {"waiting": {"reason": "CrashLoopBackOff"}}])
def test_an_init_container_that_fails_keeps_its_pod_from_starting(state):
    status = running() | {"initContainerStatuses": [container(state=state, restarts=1)]}
    assert only(pod(status=status)).phase is PodPhase.FAILING


def test_a_pod_that_a_node_rejected_is_no_replica_any_more():
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}
    view = only(pod(status=status))
    assert view.phase is PodPhase.GONE
    assert "no healthy devices" in view.message


def test_a_terminating_pod_is_neither_capacity_nor_to_come():
    served = running(container(state={"running": {}}, ready=True), ready=True)
    going = census(pod(deletionTimestamp="2026-01-01T00:00:00Z", status=served))
    assert (going.ready, going.starting, going.failing) == (0, 0, 0)


def test_pods_of_another_deployment_with_the_same_labels_do_not_count():
    mine = pod()
    theirs = pod(name="other-abc-1", owner="other-abc")
    longer = pod(name="gold-pool-two-abc-1", owner="gold-pool-two-abc")
    bare = pod(name="bare", ownerReferences=[])
    assert only(mine, theirs, longer, bare).name == "gold-pool-abc-1"
