# SPDX-License-Identifier: Apache-2.0
"""Starts automatic instrumentation in every Python of a job, then steps out of the way.

``roofline-exporter run`` puts this folder first on PYTHONPATH. Every Python that the job starts
then imports this file as its sitecustomize: the syntax must be valid for all of them, old ones too,
and nothing may be imported that the interpreter has not loaded itself (the job may have modules of
its own with names of the standard library).
"""

import os
import sys

CLIENT = "roofline_job"

FOLDER = os.path.dirname(os.path.abspath(__file__))


def begin():
    """Load the client and have it wait for torch; never fails, never prints."""
    if sys.version_info < (3, 10) or os.environ.get("ROOFLINE_JOB_INSTRUMENT") != "1":
        return
    if CLIENT in sys.modules:
        return
    try:
        _load()
    except Exception:  # an installation that is half removed: the job may have one of its own
        for name in list(sys.modules):
            if name.split(".")[0] == CLIENT:
                del sys.modules[name]


def _load():
    """Import the client by its path: what lies beside its folder is not for the job to import."""
    import _frozen_importlib
    import _frozen_importlib_external

    folder = os.path.dirname(FOLDER)
    spec = _frozen_importlib_external.spec_from_file_location(
        CLIENT, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    sys.modules[CLIENT] = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[CLIENT])
    __import__(CLIENT + ".auto")
    sys.modules[CLIENT + ".auto"].start()


if __name__ == "sitecustomize":
    begin()
    # Now the sitecustomize that this one shadows, as if it had been the only one. What it raises,
    # ImportError included where there is no other, is for the caller: Python's site. Old Pythons
    # empty a module that is not referenced any more.
    this = sys.modules.pop("sitecustomize")
    sys.path[:] = [entry for entry in sys.path if entry != FOLDER]
    sys.path_importer_cache.pop(FOLDER, None)
    __import__("sitecustomize")
