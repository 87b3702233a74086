# SPDX-License-Identifier: Apache-2.0
"""The settings: flags, environment and a YAML file, read through one table."""

from exporter.cli.config.coerce import Address, Url, bracketed, shown
from exporter.cli.config.flags import BY_NAME, FLAGS, Settings
from exporter.cli.config.layers import Reloaded, load, reload, resolve
from exporter.cli.config.parser import Parser, did_you_mean, parse

__all__ = [
    "BY_NAME",
    "FLAGS",
    "Address",
    "Parser",
    "Reloaded",
    "Settings",
    "Url",
    "bracketed",
    "did_you_mean",
    "load",
    "parse",
    "reload",
    "resolve",
    "shown",
]
