"""NVIDIA Dynamo's planner: its real code from PyPI, stepped as a policy.

Source: ai-dynamo 1.2.1 (``dynamo.planner.core.PlannerStateMachine``: no I/O, no clock), aggregated mode. It is not a
dependency of ours: see ``MISSING`` for how to install it. It takes the targets for means and never sees a quantile.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from tierkeeper.engine.flags import DEFAULT_BATCHED_TOKENS
from tierkeeper.engine.latency import Profile
from tierkeeper.sim.peers.figures import Figures, StepReport
from tierkeeper.tier import TierSpec

LOAD_SECONDS = 5.0
PROMPT_SECONDS = 60
"""Window of the mean prompt by which waiting requests are turned into waiting tokens."""

TTFT_SECONDS, ITL_SECONDS = 0.5, 0.05
"""Placeholders where the tier does not promise that objective: the planner must be given both. They are the defaults of
``ttft_ms`` and ``itl_ms`` in ``PlannerConfig``, 500 and 50."""

MISSING = (
    "NVIDIA Dynamo's planner is not installed. It takes 1.2 GB, so give it a virtual environment of its own beside "
    "tierkeeper[sim]: pip install ai-dynamo==1.2.1 ai-dynamo-runtime==1.2.1 scikit-learn pmdarima filterpy prophet "
    "plotly prometheus-api-client"
)


def installed() -> bool:
    """Whether the planner's packages are here."""
    return importlib.util.find_spec("dynamo") is not None


@dataclass(frozen=True, slots=True)
class DynamoSettings:
    """Fields of ``PlannerConfig``; the defaults are those of 1.2.1 but where said."""

    target: Literal["sla", "latency", "throughput"] = "sla"
    """Its default, ``throughput``, ignores the SLA."""
    load_scaling: bool = True
    """Default off; with the target ``sla`` its documentation has both loops on."""
    throughput_scaling: bool = True
    throughput_seconds: int = 180
    load_predictor: Literal["arima", "constant", "kalman", "prophet"] = "arima"
    down_sensitivity: int = 80
    itl_share: float = 1.0
    """Share of the tier's TPOT threshold that is given as ``itl_ms``: where a margin for the tail is put by hand."""
    profile: Profile | None = None
    """Step times that seed its regression, as its profiler does in production. None: it learns as it runs."""
    kv_tokens: int = 262_144
    """KV cache of an engine, which it knows from the deployment."""


@dataclass(slots=True)
class DynamoLaw:
    """One planner over one tier. Raises ModuleNotFoundError, with what to install, where the packages are missing."""

    spec: TierSpec
    settings: DynamoSettings = field(default_factory=DynamoSettings)
    _core: ModuleType = field(init=False)
    _steps: ModuleType = field(init=False)
    _planner: Any = field(init=False)
    _tick: Any = None
    _wanted: int | None = None

    def __post_init__(self) -> None:
        self._core, self._steps, config = _modules()
        tokens = self.spec.engine.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS
        capabilities = self._core.EngineCapabilities(
            num_gpu=self.spec.resources.gpus_per_replica,
            max_num_batched_tokens=tokens,
            max_num_seqs=self.spec.engine.max_num_seqs,
            context_length=self.settings.kv_tokens,
            max_kv_tokens=self.settings.kv_tokens,
        )
        self._planner = self._core.PlannerStateMachine(
            config.PlannerConfig(**self._config()), self._core.WorkerCapabilities(decode=capabilities)
        )
        if self.settings.profile is not None:
            self._planner.load_benchmark_fpms(agg_fpms=self._benchmark(self.settings.profile, tokens))

    def desired(self, *, now: float, figures: Figures) -> int:
        if self._tick is None:
            self._tick, self._wanted = self._planner.initial_tick(now), figures.replicas
        while self._tick is not None and self._tick.at_s <= now + 1e-6:
            effects = self._planner.on_tick(self._tick, self._input(now, figures))
            if effects.scale_to is not None and effects.scale_to.num_decode is not None:
                self._wanted = int(effects.scale_to.num_decode)
            self._tick = effects.next_tick
        return figures.replicas if self._wanted is None else self._wanted

    def _config(self) -> Mapping[str, object]:
        settings, gpus = self.settings, self.spec.resources.gpus_per_replica
        bounds, objective = self.spec.scaling.replicas, self.spec.objective
        ttft, tpot = (objective.ttft_seconds, objective.tpot_seconds) if objective else (None, None)
        return {
            "mode": "agg",
            "optimization_target": settings.target,
            "ttft_ms": 1000 * (TTFT_SECONDS if ttft is None else ttft),
            "itl_ms": 1000 * settings.itl_share * (ITL_SECONDS if tpot is None else tpot),
            "max_gpu_budget": bounds.max * gpus,
            "min_endpoint": bounds.min,
            "decode_engine_num_gpu": gpus,
            "enable_load_scaling": settings.load_scaling,
            "enable_throughput_scaling": settings.throughput_scaling,
            "throughput_adjustment_interval_seconds": settings.throughput_seconds,
            "load_predictor": settings.load_predictor,
            "load_scaling_down_sensitivity": settings.down_sensitivity,
            "report_interval_hours": None,
            "live_dashboard_port": 0,
        }

    def _input(self, now: float, figures: Figures) -> Any:
        tick, counts = self._tick, {"ready_num_decode": figures.ready, "expected_num_decode": figures.replicas}
        observed = None
        if tick.need_traffic_metrics and figures.reachable:
            observed = self._observed(figures, tick.traffic_metrics_duration_s)
        steps = None
        if tick.need_worker_fpm:
            prompt = figures.means(PROMPT_SECONDS).prompt_tokens or 0.0
            reports = figures.steps().items()
            decode = {(name, 0): self._report(name, step, prompt_tokens=prompt) for name, step in reports}
            steps = self._core.FpmObservations(decode=decode)
        return self._core.TickInput(
            now_s=now, worker_counts=self._core.WorkerCounts(**counts), traffic=observed, fpm_observations=steps
        )

    def _observed(self, figures: Figures, seconds: float) -> Any:
        """What finished within the interval, as in production: completions, with their mean lengths."""
        means = figures.means(round(seconds))
        requests = (means.finished_per_second or 0.0) * seconds
        return self._core.TrafficObservation(seconds, requests, means.prompt_tokens or 0.0, means.output_tokens or 0.0)

    def _report(self, name: str, step: StepReport, *, prompt_tokens: float) -> Any:
        scheduled = self._steps.ScheduledRequestMetrics(
            num_prefill_requests=int(step.prefill_tokens > 0),
            sum_prefill_tokens=step.prefill_tokens,
            num_decode_requests=step.sequences,
            sum_decode_kv_tokens=step.kv_tokens,
        )
        queued = self._steps.QueuedRequestMetrics(
            num_prefill_requests=step.waiting, sum_prefill_tokens=int(step.waiting * prompt_tokens)
        )
        return self._steps.ForwardPassMetrics(
            worker_id=name, wall_time=step.wall_seconds, scheduled_requests=scheduled, queued_requests=queued
        )

    def _benchmark(self, profile: Profile, tokens: int) -> list[Any]:
        """Steps over the grid that its profiler would run: prompts of four sizes beside batches up to the cap."""
        batches = range(1, self.spec.engine.max_num_seqs + 1, max(1, self.spec.engine.max_num_seqs // 8))
        return [
            self._report(f"{batch}-{prefill}", _modeled(profile, batch=batch, prefill=prefill), prompt_tokens=0.0)
            for prefill in (0, tokens // 4, tokens // 2, tokens)
            for batch in batches
        ]


def _modeled(profile: Profile, *, batch: int, prefill: int, context: int = 1_260) -> StepReport:
    """One step by the profile; the context is the mean of the Azure 2023 conversations: 1,155 + 211 / 2 tokens."""
    seconds = (
        profile.base_seconds
        + batch * (profile.per_sequence_seconds + profile.per_context_token_seconds * context)
        + profile.per_prefill_token_seconds * prefill
    )
    return StepReport(wall_seconds=seconds, prefill_tokens=prefill, sequences=batch, kv_tokens=batch * context)


def _modules() -> tuple[ModuleType, ModuleType, ModuleType]:
    """The planner's core, its step metrics and its configuration, quiet: it logs each tick."""
    os.environ["DYNAMO_SKIP_PYTHON_LOG_INIT"] = "1"
    logging.getLogger("dynamo").setLevel(logging.CRITICAL)
    names = ("planner.core", "common.forward_pass_metrics", "planner.config.planner_config")
    try:
        core, steps, config = (importlib.import_module(f"dynamo.{name}") for name in names)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{MISSING} (no module {error.name})", name=error.name) from error
    return core, steps, config
