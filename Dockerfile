# SPDX-License-Identifier: Apache-2.0
# docker build -t roofline-exporter .      (or: make image)
# Of requirements/Dockerfile, which Dependabot renews; `make lock` copies it here.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm@sha256:a1165e272e578941b84abc79e4ab38a0305cd12803a5c4247979ac7655f4d641

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY requirements/ requirements/
# The tools stay behind with this stage; /opt/roofline-exporter is what is shipped.
RUN python -m venv /tools \
 && python -m venv --without-pip /opt/roofline-exporter \
 && /tools/bin/pip install --quiet --no-deps --require-hashes --only-binary=:all: \
      -r requirements/build.txt \
 && /tools/bin/pip --python /opt/roofline-exporter install --quiet --no-deps --require-hashes \
      --only-binary=:all: --no-compile -r requirements/image.txt
COPY . .
ARG REVISION=
# Bytecode goes by the source's hash and is never checked: the image is read-only, times do not matter.
RUN SOURCE_REVISION="${REVISION}" /tools/bin/pip wheel --quiet --no-deps --no-build-isolation \
      --no-index --wheel-dir /dist . \
 && /tools/bin/pip --python /opt/roofline-exporter install --quiet --no-deps --no-index --no-compile \
      /dist/*.whl \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/roofline-exporter/lib

FROM ${PYTHON_IMAGE}
ARG VERSION=0.2.0
ARG REVISION=
LABEL org.opencontainers.image.title="roofline-exporter" \
      org.opencontainers.image.description="Prometheus exporter that shows how saturated, how limited and how idle each NVIDIA GPU is, against its roofline." \
      org.opencontainers.image.source="https://github.com/roofline-exporter/roofline-exporter" \
      org.opencontainers.image.url="https://github.com/roofline-exporter/roofline-exporter" \
      org.opencontainers.image.documentation="https://github.com/roofline-exporter/roofline-exporter/blob/main/docs/deploy.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Official Python images come without the standard library's bytecode, and here it cannot be kept
# later. The folder is for the training socket; a new volume gets its owner. Group 0 is that of every
# user that OpenShift makes up, and of a root without capabilities.
RUN python -m compileall -q --invalidation-mode unchecked-hash \
      -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|site-packages|dist-packages)/' \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && install -d -o 65532 -g 0 -m 0775 /run/roofline-exporter
COPY --from=build /opt/roofline-exporter /opt/roofline-exporter
# utility is the driver's name for NVML.
ENV PATH=/opt/roofline-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
EXPOSE 19400
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
  CMD ["roofline-exporter", "healthcheck"]
ENTRYPOINT ["roofline-exporter"]
