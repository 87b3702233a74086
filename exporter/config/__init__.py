# SPDX-License-Identifier: Apache-2.0
"""What the operator wants: flags, environment and a YAML file, read through one table."""

from exporter.config.arguments import Arguments, Parser, parse
from exporter.config.flags import BY_NAME, FLAGS, Flag, Given, Settings
from exporter.config.layers import Reloaded, check_all, load, reload
from exporter.config.suggest import did_you_mean
from exporter.config.values import Address, bracketed, shown

__all__ = [
    "BY_NAME",
    "FLAGS",
    "Address",
    "Arguments",
    "Flag",
    "Given",
    "Parser",
    "Reloaded",
    "Settings",
    "bracketed",
    "check_all",
    "did_you_mean",
    "load",
    "parse",
    "reload",
    "shown",
]
