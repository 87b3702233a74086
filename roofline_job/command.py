# SPDX-License-Identifier: Apache-2.0
"""The command ``roofline-exporter``: ``run`` restarts in an isolated Python, or `exporter.cli`.

The modules on PYTHONPATH are the job's, and come before the standard library's. So until Python is
isolated (-I), this imports only what the interpreter itself has loaded.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROGRAM = "roofline-exporter"
_FIRST_ENVIRONMENT = "/proc/self/environ"


def main() -> int:
    """Run the command line; return its exit code."""
    words = sys.argv[1:]
    try:
        if words[:1] == ["run"]:
            return _run(words)
        if words[:1] == ["healthcheck"]:
            from exporter.cli import healthcheck

            if healthcheck.quick_check(words[1:], os.environ):
                return 0
        from exporter.cli import main as cli

        return cli.main(words)
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        reason = f"{error}: installed without its dependencies, it can only `run` jobs"
        print(f"{PROGRAM}: {reason}", file=sys.stderr)
        return 1


def _run(words: list[str]) -> int:
    if not sys.flags.isolated:
        again = [sys.executable, "-I", os.path.abspath(__file__), *words]
        os.execve(sys.executable, again, first_environment())  # noqa: S606 # without a shell
    # Installed with --target or --prefix, the package is on no isolated Python's path.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from roofline_job import launch

    return launch.main(words[1:], beside_daemon=_beside_daemon)


def _beside_daemon(
    become: Callable[[Mapping[str, str]], int], environ: Mapping[str, str], report: str | None
) -> int:
    from exporter.cli.job.supervise import supervise  # loaded only where it is asked for

    return supervise(become, environ, report)


def first_environment() -> dict[str, str]:
    """Return the environment that this process was given.

    In the C locale Python sets LC_CTYPE for itself and its children (PEP 538), and a sitecustomize
    may set more.
    """
    try:
        with open(_FIRST_ENVIRONMENT, "rb") as file:
            entries = os.fsdecode(file.read()).split("\0")
    except OSError:
        return dict(os.environ)
    return {name: value for name, is_set, value in (e.partition("=") for e in entries) if is_set}


if __name__ == "__main__":
    sys.exit(main())
