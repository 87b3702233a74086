# SPDX-License-Identifier: Apache-2.0
"""What the operator wants: flags, environment and a YAML file, read through one table."""

from exporter.cli.config.arguments import Parser, parse
from exporter.cli.config.flags import BY_NAME, FLAGS, Flag, Settings
from exporter.cli.config.layers import Reloaded, load, reload, resolve
from exporter.cli.config.suggest import did_you_mean
from exporter.cli.config.values import Address, Url, bracketed, shown

__all__ = [
    "BY_NAME",
    "FLAGS",
    "Address",
    "Flag",
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
