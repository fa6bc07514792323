"""Every setting of the operator, with its unit and why one would change it. Read from TIERKEEPER_* variables."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tierkeeper.slo.signals import MetricLabels


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"

    @classmethod
    def _missing_(cls, value: object) -> LogLevel | None:
        """In any case of letters."""
        return cls.__members__.get(str(value).upper())


class Settings(BaseSettings):
    """Settings of ``tierkeeper run``. Wrong values fail at start with the field, the value and the rule."""

    model_config = SettingsConfigDict(env_prefix="TIERKEEPER_", frozen=True, extra="ignore", allow_inf_nan=False)

    prometheus_url: str = "http://prometheus-operated.monitoring.svc:9090"
    """Base URL of the Prometheus HTTP API that scrapes the pools."""

    prometheus_token_file: str | None = None
    """File with a bearer token, read anew for each request so that a rotated token is picked up."""

    prometheus_timeout_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for one query. Must stay below the tick, so that a slow Prometheus costs one tick and no more."""

    scrape_interval_seconds: int = Field(default=15, ge=1)
    """How often Prometheus scrapes the pools. The shortest control window is 1 minute and needs four scrapes."""

    tick_seconds: float = Field(default=15.0, gt=0)
    """How often the SLO loop looks and decides. Deciding more often than the pools are scraped gains nothing."""

    namespace_label: str = "namespace"
    """Label under which Prometheus keeps the pod's namespace."""

    tier_label: str = "tier"
    """Label under which Prometheus keeps the pod's ``tierkeeper.dev/tier`` label.

    A PodMonitor with ``podTargetLabels`` writes ``tierkeeper_dev_tier``.
    """

    pod_label: str = "pod"
    """Label under which Prometheus keeps the pod's name."""

    watch_namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces to watch, comma-separated; empty: the whole cluster."""

    resync_seconds: float = Field(default=600.0, gt=0)
    """Every tier is reconciled at least this often, whatever the watch says."""

    workers: int = Field(default=4, ge=1)
    """How many tiers are reconciled at the same time; one tier never by two workers."""

    status_interval_seconds: float = Field(default=60.0, ge=0)
    """Numbers alone rewrite a tier's status at most this often; conditions and decisions are written at once."""

    lease: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$")
    """``namespace/name`` of the Lease that says which of several replicas acts; empty: this is the only one."""

    lease_duration_seconds: int = Field(default=15, ge=1, le=300)
    """A standby takes over this long after the last renewal that it saw. Longer bridges longer outages of the API."""

    lease_renew_deadline_seconds: int = Field(default=10, ge=1, le=300)
    """A leader that has not renewed for so long ends its process. At most 4/5 of the duration: clocks run unevenly,
    and a last request may still be on its way."""

    lease_retry_seconds: int = Field(default=2, ge=1, le=20)
    """Between two renewals, and between two looks of a standby. At least two must fit into the renew deadline."""

    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO
    metrics_port: int = Field(default=9095, ge=0, le=65535)
    health_port: int = Field(default=8080, ge=0, le=65535)

    @field_validator("prometheus_url")
    @classmethod
    def _is_base_url(cls, url: str) -> str:
        remedy = "must be the base URL of a Prometheus, such as http://prometheus.monitoring.svc:9090: correct it"
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError as error:  # a port above 65535, a bracket without its pair
            raise ValueError(f"{remedy} ({error})") from error
        if not usable or parts.query or parts.fragment:
            raise ValueError(remedy)
        return url

    @field_validator("watch_namespaces")
    @classmethod
    def _are_names(cls, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        """A pattern would be watched by kopf and listed by nobody."""
        for name in namespaces:
            if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
                raise ValueError(f"{name!r} is no namespace: give whole names separated by commas, no pattern")
        return namespaces

    @model_validator(mode="before")
    @classmethod
    def _split_namespaces(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(raw := values.get("watch_namespaces"), str):
            values["watch_namespaces"] = tuple(part.strip() for part in raw.split(",") if part.strip())
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.prometheus_timeout_seconds >= self.tick_seconds:
            raise ValueError(
                f"prometheus_timeout_seconds ({self.prometheus_timeout_seconds:g}) must be below tick_seconds "
                f"({self.tick_seconds:g}): lower TIERKEEPER_PROMETHEUS_TIMEOUT_SECONDS or raise TIERKEEPER_TICK_SECONDS"
            )
        if self.scrape_interval_seconds > 15:
            raise ValueError(
                f"scrape_interval_seconds ({self.scrape_interval_seconds}) must be at most 15: the shortest control "
                "window is 60 s and a rate needs four scrapes in it; scrape the pools more often"
            )
        if self.lease_renew_deadline_seconds > 0.8 * self.lease_duration_seconds:
            raise ValueError(
                f"lease_renew_deadline_seconds ({self.lease_renew_deadline_seconds}) must be at most 4/5 of "
                f"lease_duration_seconds ({self.lease_duration_seconds}), or two replicas may act at once: lower "
                "TIERKEEPER_LEASE_RENEW_DEADLINE_SECONDS or raise TIERKEEPER_LEASE_DURATION_SECONDS"
            )
        if 2 * self.lease_retry_seconds > self.lease_renew_deadline_seconds:
            raise ValueError(
                f"lease_retry_seconds ({self.lease_retry_seconds}) must be at most half of "
                f"lease_renew_deadline_seconds ({self.lease_renew_deadline_seconds}), or one lost renewal ends the "
                "leader: lower TIERKEEPER_LEASE_RETRY_SECONDS"
            )
        MetricLabels(self.namespace_label, self.tier_label, self.pod_label)
        return self
