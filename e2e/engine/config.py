"""Everything that the engine is told: the flags, the profile and the faults to show."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.engine.flags import Version, validate_buckets
from e2e.engine.profiles import Profile, profile_from_environment
from e2e.engine.scheduler import SchedulerConfig


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine. ``startup_seconds`` passes before the port answers; ``slow_factor`` multiplies every step."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    scheduler: SchedulerConfig
    profile: Profile
    max_model_len: int
    version: Version = (0, 32)
    num_blocks: int = 0
    api_keys: tuple[str, ...] = ()
    shutdown_timeout: float = 0
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    startup_seconds: float = 0.0
    slow_factor: float = 1.0
    fault_endpoint: bool = False

    @classmethod
    def build(cls, args: argparse.Namespace, environment: Mapping[str, str], version: Version) -> "EngineConfig":
        """From parsed flags and the environment.

        Raises ValueError on settings that vLLM refuses, RuntimeError where the imitated GPU memory is too small.
        """
        model = args.model_tag or args.model
        profile = profile_from_environment(environment)
        num_blocks = args.num_gpu_blocks_override or profile.kv_tokens // profile.block_size
        keys = args.api_key or [key for key in [environment.get("VLLM_API_KEY")] if key]
        config = cls(
            model=model,
            served_names=tuple(args.served_model_name or [model]),
            host=args.host,
            port=args.port,
            scheduler=SchedulerConfig(
                args.max_num_seqs, args.max_num_batched_tokens, getattr(args, "max_num_active_seqs", None)
            ),
            profile=profile,
            max_model_len=args.max_model_len,
            version=version,
            num_blocks=num_blocks,
            api_keys=tuple(keys),
            shutdown_timeout=getattr(args, "shutdown_timeout", 0),
            max_num_queued_reqs=getattr(args, "max_num_queued_reqs", None),
            max_num_queued_tokens=getattr(args, "max_num_queued_tokens", None),
            buckets=validate_buckets(getattr(args, "custom_histogram_buckets", {})),
            startup_seconds=float(environment.get("ENGINE_STARTUP_SECONDS", "0")),
            slow_factor=float(environment.get("ENGINE_SLOW_FACTOR", "1")),
            fault_endpoint=environment.get("ENGINE_FAULTS") == "1",
        )
        config.check(oom_above=environment.get("ENGINE_OOM_ABOVE"))
        return config

    def check(self, *, oom_above: str | None) -> None:
        """The refusals of a vLLM start-up. ``oom_above``: the largest max-num-seqs that the imitated memory carries."""
        flags = self.scheduler
        if flags.max_num_seqs < 1 or flags.max_num_batched_tokens < flags.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({flags.max_num_batched_tokens}) must be greater than or equal to "
                f"max_num_seqs ({flags.max_num_seqs}), and that at least 1."
            )
        if flags.max_num_active_seqs is not None and flags.max_num_active_seqs > flags.max_num_seqs:
            raise ValueError(
                f"max_num_active_seqs ({flags.max_num_active_seqs}) cannot be greater than "
                f"max_num_seqs ({flags.max_num_seqs})."
            )
        kv_tokens = self.num_blocks * self.profile.block_size
        if kv_tokens < self.max_model_len:
            raise RuntimeError(
                f"To serve at least one request with the model's max seq len ({self.max_model_len}), more KV cache is "
                f"needed, which is larger than the available KV cache memory ({kv_tokens} tokens)."
            )
        if oom_above is not None and flags.max_num_seqs > int(oom_above):
            raise RuntimeError(
                f"CUDA out of memory occurred when warming up sampler with {flags.max_num_seqs} dummy requests. "
                "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
            )
