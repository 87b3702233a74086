# SPDX-License-Identifier: Apache-2.0
"""The only package that knows the Grafana SDK: our model in, classic JSON out."""

from __future__ import annotations

from dashboards.sdk.page import PLUGIN_VERSION, to_json

__all__ = ["PLUGIN_VERSION", "to_json"]
