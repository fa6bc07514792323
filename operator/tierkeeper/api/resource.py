"""The whole ServiceTier object."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tierkeeper.api import API_VERSION, KIND, constraints
from tierkeeper.api.base import ApiModel, Rule
from tierkeeper.api.spec import ServiceTierSpec
from tierkeeper.api.status import ServiceTierStatus


class ServiceTier(ApiModel):
    """One tier of service: a model, a promise, and a pool of vLLM replicas that keeps it."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.NAME_FITS, constraints.DEGRADES_TO_ANOTHER)

    api_version: Literal["tierkeeper.dev/v1alpha1"] = API_VERSION
    kind: Literal["ServiceTier"] = KIND
    metadata: Annotated[dict[str, Any], Field(json_schema_extra={"type": "object"})]
    spec: ServiceTierSpec
    """What is wanted."""
    status: ServiceTierStatus | None = None
    """What is."""

    @property
    def name(self) -> str:
        """``metadata.name``, empty where there is none."""
        return str(self.metadata.get("name", ""))
