# The operator's image: non-root, runs with a read-only root file system, no compiler and no pip inside.
# BASE is any Debian or Python image with Python 3.11, or one that can install it with apt. PIP_OPTIONS reaches pip, for example
# "--no-index --find-links=/context/wheels" where the build itself has no network.
ARG BASE=python:3.11-slim-bookworm
# An image that holds the dependencies stage already saves installing them again when only the sources changed.
ARG DEPENDENCIES=dependencies

FROM ${BASE} AS dependencies
ARG PIP_OPTIONS=""
RUN python3 -c 'import ensurepip' 2>/dev/null \
 || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; }
RUN --mount=type=bind,target=/context \
    python3 -m venv /opt/tierkeeper \
 && /opt/tierkeeper/bin/pip install -q --no-cache-dir --no-compile --require-hashes --no-deps ${PIP_OPTIONS} -r /context/requirements.txt \
 && /opt/tierkeeper/bin/pip uninstall -q -y setuptools pip

FROM ${DEPENDENCIES} AS build
COPY operator/tierkeeper /opt/tierkeeper/lib/python3.11/site-packages/tierkeeper
# What the operator imports is compiled here: at run time the root file system is read-only, and every start would compile again. The rest of
# the packages, above all 1,700 models of the Kubernetes client, is left as it is: 60 MB and most of the build's time.
RUN /opt/tierkeeper/bin/python -m compileall -q /opt/tierkeeper/lib/python3.11/site-packages/tierkeeper \
 && /opt/tierkeeper/bin/python -c 'import tierkeeper.app, tierkeeper.adapters.otel' \
 && chmod -R a+rX /opt/tierkeeper

FROM ${BASE}
RUN python3 -c 'import asyncio, ssl' 2>/dev/null \
 || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; }
COPY --from=build /opt/tierkeeper /opt/tierkeeper
USER 65532:65532
# USER: libraries ask who they run as, and whatever number a cluster picks has no name in /etc/passwd.
ENV USER=tierkeeper \
    HOME=/tmp \
    PATH=/opt/tierkeeper/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
EXPOSE 8080 9095
ENTRYPOINT ["python", "-m", "tierkeeper"]
CMD ["run"]
