"""V10, V11: a locale that knows ASCII alone, and texts that do not keep to it."""

import os
import subprocess
import sys

import pytest

PLAIN = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
TIER = """\
apiVersion: tierkeeper.dev/v1alpha1
kind: ServiceTier
metadata: {name: gold, namespace: llm, annotations: {note: "\N{ROCKET}"}}
spec:
  model: {id: /models/\u901a\u4e49\u5343\u95ee-7B}
  engine: {image: "vllm/vllm-openai:v0.32.0", maxNumSeqs: 16}
  scaling: {mode: Auto, replicas: {min: 1, max: 2}, maxNumSeqs: {min: 8, max: 64}}
"""


def python(*arguments, given=b"", **more):
    environment = {"PATH": os.environ["PATH"]} | PLAIN | more
    return subprocess.run(
        [sys.executable, *arguments], input=given, env=environment, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize("source", ["a file", "-"])
def test_v10_a_chinese_model_path_is_planned_as_utf_8(tmp_path, source):
    file = tmp_path / "gold.yaml"
    file.write_text(TIER, encoding="utf-8")
    done = python("-m", "tierkeeper", "plan", "-" if source == "-" else str(file), given=TIER.encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert "/models/\u901a\u4e49\u5343\u95ee-7B" in done.stdout.decode("utf-8")


def test_an_error_that_repeats_a_strange_value_is_still_an_error_message():
    done = python("-m", "tierkeeper", "plan", "-", given=TIER.replace("mode: Auto", "mode: \u81ea\u52a8").encode())
    assert done.returncode == 1
    assert b"spec.scaling.mode" in done.stderr
    assert b"Traceback" not in done.stderr


LOG = """
import logging
from tierkeeper.obs.logs import configure_logs
from tierkeeper.settings import LogFormat
configure_logs(format=LogFormat(%r), level="INFO")
logging.info("scale gold-pool: 2 \\u2192 3 \\u2013 the pod says: 50 \\u00b5s \\U0001f680")
try:
    raise RuntimeError("\\u901a\\u4e49")
except RuntimeError:
    logging.exception("will try again")
"""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "", "PYTHONCOERCECLOCALE": "1"}], ids=["LC_ALL=C", "LANG=C"])
def test_v11_a_character_outside_of_the_locale_breaks_no_log_line(form, locale):
    done = python("-c", LOG % form, **locale)
    assert done.returncode == 0
    assert b"Logging error" not in done.stderr
    assert done.stderr.count(b"scale gold-pool: 2 ") == 1
    assert done.stderr.count(b"RuntimeError") == 1
