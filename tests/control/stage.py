"""A whole operator around fakes of the outside: one cluster, one clock, one tier to play with."""

from dataclasses import dataclass, field

from tests.fakes.edges import FakeClock, FakeMetrics, FakeProbe, FakeRecorder
from tests.fakes.kube import FakeKube, copied
from tierkeeper.control.reconciler import Reconciler
from tierkeeper.control.record import Records
from tierkeeper.control.slo_loop import Rhythm, SloLoop
from tierkeeper.control.snapshot import Snapshots
from tierkeeper.control.store import Store, project
from tierkeeper.obs.health import Health
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.tracing import NO_TRACER
from tierkeeper.ports import AppliedLimits, Kind, Tracer
from tierkeeper.slo.burn import CONTROL_WINDOWS
from tierkeeper.slo.signals import MetricLabels
from tierkeeper.tier import TierKey

GOLD = TierKey("llm", "gold")
POOL = "gold-pool"
LIMIT = "gold-pool-limit"

TIER = {
    "apiVersion": "tierkeeper.dev/v1alpha1",
    "kind": "ServiceTier",
    "metadata": {"name": "gold", "namespace": "llm", "generation": 1},
    "spec": {
        "model": {"id": "Qwen/Qwen3-8B"},
        "slo": {"objectivePercent": 99, "ttftMilliseconds": 1500, "tpotMilliseconds": 100},
        "engine": {"image": "vllm/vllm-openai:v0.32.0", "maxNumSeqs": 16},
        "resources": {"gpusPerReplica": 1},
        "scaling": {"mode": "Auto", "replicas": {"min": 2, "max": 4}, "maxNumSeqs": {"min": 8, "max": 64}},
    },
}


def tier(*, name="gold", namespace="llm", **spec):
    """A ServiceTier; keywords are merged into its spec one level deep."""
    obj = copied(TIER)
    obj["metadata"] |= {"name": name, "namespace": namespace}
    for part, value in spec.items():
        known = obj["spec"].get(part)
        obj["spec"][part] = known | value if isinstance(known, dict) and isinstance(value, dict) else value
    return obj


def agreeing(seqs, tokens=None, *, idle=True):
    """What a pod that obeys these limits says."""
    return AppliedLimits(
        seen_max_num_seqs=seqs,
        seen_token_budget=tokens,
        applied_max_num_seqs=seqs,
        applied_token_budget=tokens,
        idle=idle,
    )


@dataclass
class Stage:
    kube: FakeKube = field(default_factory=FakeKube)
    clock: FakeClock = field(default_factory=FakeClock)
    probe: FakeProbe = field(default_factory=lambda: FakeProbe(default=agreeing(16)))
    source: FakeMetrics = field(default_factory=FakeMetrics)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    woken: list[TierKey] = field(default_factory=list)
    tracer: Tracer = NO_TRACER

    def __post_init__(self):
        self.start_operator()

    def start_operator(self):
        """A fresh process: nothing is remembered, the cluster is what it is."""
        self.store, self.records, self.metrics = Store(), Records(), Metrics()
        self.health = Health(self.clock, stale_seconds=60)
        for (kind, _, _), obj in self.kube.objects.items():
            self.store.put(kind, project(kind, copied(obj)))
        self.store.complete = True
        self.kube.on_change = self._watch
        self.reconciler = Reconciler(
            api=self.kube,
            probe=self.probe,
            clock=self.clock,
            recorder=self.recorder,
            store=self.store,
            records=self.records,
            metrics=self.metrics,
            plugin_source="# the plugin",
            status_interval_seconds=60,
            tracer=self.tracer,
        )
        self.snapshots = Snapshots(
            self.source, self.source, self.clock, MetricLabels(), CONTROL_WINDOWS, self.metrics, self.tracer
        )
        self.loop = SloLoop(
            store=self.store,
            records=self.records,
            snapshots=self.snapshots,
            clock=self.clock,
            rhythm=Rhythm(tick=15, scrape=15, status=60),
            wake=self.woken.append,
            metrics=self.metrics,
            health=self.health,
            tracer=self.tracer,
        )

    def _watch(self, kind, obj, deleted):
        self.store.drop(kind, obj) if deleted else self.store.put(kind, project(kind, obj))

    async def settle(self, key=GOLD, *, ready=True):
        """Reconcile until nothing more is asked for at once; the deployment controller works in between."""
        for _ in range(20):
            again = await self.reconciler.reconcile(key)
            writes = len(self.kube.writes)
            self.kube.run_deployments(ready=ready)
            if again is not None:
                self.clock.advance(again)
            last = await self.reconciler.reconcile(key)
            if last is None and len(self.kube.writes) == writes:
                return
        raise AssertionError("does not settle")

    def get(self, kind, name, namespace="llm"):
        return self.kube.objects.get((kind, namespace, name))

    def status(self, name="gold", namespace="llm"):
        return self.get(Kind.SERVICE_TIER, name, namespace).get("status", {})

    def condition(self, kind, name="gold"):
        return next((c for c in self.status(name).get("conditions", ()) if c["type"] == kind), None)

    def stands(self, kind, name="gold"):
        """``True PoolReady``: status and reason of a condition."""
        found = self.condition(kind, name)
        return f"{found['status']} {found['reason']}" if found else None

    @property
    def replicas(self):
        return self.get(Kind.DEPLOYMENT, POOL)["spec"]["replicas"]

    @property
    def cap(self):
        return int(self.get(Kind.CONFIG_MAP, LIMIT)["data"]["max-num-seqs"])
