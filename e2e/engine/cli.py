"""The ``vllm`` command: ``vllm serve MODEL ...`` and ``vllm --version``, with vLLM's exit codes and error texts."""

import asyncio
import importlib.metadata
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from e2e.engine.config import EngineConfig
from e2e.engine.flags import Version, VllmArgumentParser, add_serve_flags
from e2e.engine.life import serve
from e2e.engine.plugins import load_general_plugins

SITE = Path(__file__).with_name("site")
VERSION_VARIABLE = "ENGINE_VLLM_VERSION"


def main(argv: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """The exit code: 0 after a shutdown, 1 when the engine cannot start, 2 on a bad command line (as SystemExit)."""
    version = install_vllm_names(environment)
    parser = VllmArgumentParser(prog="vllm", description="vLLM CLI", allow_abbrev=False)
    parser.add_argument("-v", "--version", action="version", version=importlib.metadata.version("vllm"))
    commands = parser.add_subparsers(required=True, dest="subparser", parser_class=VllmArgumentParser)
    serve_parser = commands.add_parser("serve", usage="vllm serve [model_tag] [options]", allow_abbrev=False)
    add_serve_flags(serve_parser, version)
    args = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(asctime)s [%(name)s] %(message)s"
    )
    try:
        config = EngineConfig.build(args, environment, version)
    except (ValueError, RuntimeError):
        traceback.print_exc()
        return 1
    load_general_plugins(environment)
    return asyncio.run(serve(config))


def install_vllm_names(environment: Mapping[str, str]) -> Version:
    """Makes ``import vllm`` and the version of the distribution ``vllm`` work in this process.

    ``ENGINE_VLLM_VERSION`` (such as 0.30.1) imitates another release: the version, the flags and the scheduler's
    attributes follow it, the metric families stay those of 0.32.
    """
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))
    version = environment.get(VERSION_VARIABLE)
    if version:
        place = Path(tempfile.mkdtemp(prefix="vllm-version-"))
        info = place / f"vllm-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
        sys.path.insert(0, str(place))
    major, minor, *_ = importlib.metadata.version("vllm").split(".")
    return int(major), int(minor)
