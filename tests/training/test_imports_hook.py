# SPDX-License-Identifier: Apache-2.0
"""Functions that wait for a module are called once it was executed, and it does not notice."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from roofline_job import imports
from roofline_job.imports import after_import

SOURCE = "# hooked\nvalue = 1\n\ndef function():\n    return value\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules, on the path; the finder and the modules leave with the test."""
    finder = imports.Finder()
    monkeypatch.setattr(imports, "_finder", finder)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    before = set(sys.modules)
    meta_path = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = meta_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, source: str = SOURCE) -> None:
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    importlib.invalidate_caches()


def forget(name: str) -> None:
    sys.modules.pop(name, None)


def test_it_is_called_with_the_executed_module_before_anyone_uses_it(folder: Path) -> None:
    """What the callback puts in place is what the importing code gets."""
    write(folder, "hooked")

    def patch(module: Any) -> None:
        assert module.function() == 1
        module.function = lambda: 2

    after_import({"hooked": patch})
    from hooked import function  # type: ignore[import-not-found]

    assert function() == 2


def test_a_submodule_is_patched_before_its_package_takes_names_from_it(folder: Path) -> None:
    """`from .saving import save` in a package's `__init__` gets the patched function."""
    (folder / "package").mkdir()
    write(folder / "package", "saving", "def save(): return 1\n")
    write(folder / "package", "__init__", "from .saving import save\n")

    def patch(module: Any) -> None:
        module.save = lambda: 2

    after_import({"package.saving": patch})

    assert importlib.import_module("package").save() == 2


def facts(module: ModuleType) -> dict[str, object]:
    spec = module.__spec__
    assert spec is not None
    return {
        "names": sorted(vars(module)),
        "spec": type(spec),
        "repr": repr(spec).split(" object at ")[0],
        "loader": type(spec.loader),
        "same loader": module.__loader__ is spec.loader,
        "origin": spec.origin,
        "source": inspect.getsource(module),
        "get_source": spec.loader.get_source(module.__name__),  # type: ignore[union-attr]
        "state": sorted(vars(spec)),
    }


def test_the_module_is_what_it_would_be_otherwise(folder: Path) -> None:
    """Names, spec, loader and source are the import system's own, also while it is executed."""
    write(
        folder, "hooked", SOURCE + "loader_then = type(__spec__.loader)\nshown = repr(__spec__)\n"
    )
    plain = importlib.import_module("hooked")
    expected = facts(plain)
    forget("hooked")
    called: list[ModuleType] = []

    after_import({"hooked": called.append})
    hooked = importlib.import_module("hooked")

    assert called == [hooked]
    assert facts(hooked) == expected
    assert hooked.loader_then is plain.loader_then
    assert hooked.shown.split("loader=")[0] == plain.shown.split("loader=")[0]


def failure(name: str) -> str:
    with pytest.raises(BaseException) as caught:
        importlib.import_module(name)
    return "".join(traceback.format_exception(caught.value.with_traceback(caught.tb.tb_next)))


@pytest.mark.parametrize("raised", ["ValueError('no')", "ImportError('no')", "SystemExit(3)"])
def test_a_module_that_fails_fails_the_same_way(folder: Path, raised: str) -> None:
    """The exception has no line of ours; the callback waits for an import that works."""
    write(folder, "hooked", f"raise {raised}\n")
    expected = failure("hooked")
    called: list[ModuleType] = []

    after_import({"hooked": called.append})

    assert failure("hooked") == expected
    assert called == []
    write(folder, "hooked", "# longer than before, so that no cache is valid\nvalue = 1\n")
    importlib.import_module("hooked")
    assert len(called) == 1


def test_a_callback_that_fails_breaks_nothing(folder: Path) -> None:
    """The import goes on, and so do the other callbacks."""
    write(folder, "hooked")
    called: list[ModuleType] = []

    def fail(module: ModuleType) -> None:
        raise RuntimeError("ours")

    after_import({"hooked": fail})
    after_import({"hooked": called.append})

    assert importlib.import_module("hooked").value == 1
    assert len(called) == 1


def test_modules_that_are_loaded_are_handed_over_at_once(folder: Path) -> None:
    """It does not matter which comes first, the module or the wish."""
    write(folder, "hooked")
    module = importlib.import_module("hooked")
    called: list[ModuleType] = []

    after_import({"hooked": called.append})

    assert called == [module]


def test_a_module_under_execution_is_awaited(folder: Path) -> None:
    """Half a module is never handed over."""
    called: list[int] = []
    write(
        folder,
        "hooked",
        "import wishes\nwishes.wish()\nassert not wishes.called\nvalue = 1\n",
    )
    wishes = ModuleType("wishes")
    wishes.called = called  # type: ignore[attr-defined]
    wishes.wish = lambda: after_import(  # type: ignore[attr-defined]
        {"hooked": lambda module: called.append(module.value)}
    )
    sys.modules["wishes"] = wishes

    importlib.import_module("hooked")

    assert called == [1]


def test_looking_for_a_module_does_not_call(folder: Path) -> None:
    """`find_spec` is how libraries ask what is installed."""
    write(folder, "hooked")
    called: list[ModuleType] = []
    after_import({"hooked": called.append, "absent": called.append})

    spec = importlib.util.find_spec("hooked")

    assert spec is not None
    assert isinstance(spec, ModuleSpec)
    assert spec.loader is not None
    assert importlib.util.find_spec("absent") is None
    assert called == []
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.value == 1


class Searching:
    """A finder that finds by asking the import system, as other instrumentation does."""

    def __init__(self) -> None:
        self.under_way = False

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if self.under_way or name != "hooked":
            return None
        self.under_way = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.under_way = False


@pytest.mark.parametrize("place", [0, 1])
def test_finders_that_search_themselves_are_served(folder: Path, place: int) -> None:
    """Before or behind ours, none of them loops and the callback comes once."""
    write(folder, "hooked")
    called: list[ModuleType] = []
    after_import({"hooked": called.append})
    sys.meta_path.insert(place, Searching())

    assert importlib.import_module("hooked").value == 1
    assert len(called) == 1


def test_a_finder_that_raises_is_heard_as_ever(folder: Path) -> None:
    """What another finder raises reaches the importing code without a line of ours."""

    class Refusing:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "hooked":
                raise RuntimeError("refused")

    sys.meta_path.insert(0, Refusing())
    expected = failure("hooked")
    del sys.meta_path[0]
    after_import({"hooked": lambda module: None})
    sys.meta_path.insert(1, Refusing())

    assert failure("hooked") == expected


def test_specs_of_a_class_of_its_own_are_left_alone(folder: Path) -> None:
    """Nothing is done to what another finder made differently; the import works."""

    class Own(ModuleSpec):
        pass

    class Making:
        def find_spec(self, name: str, path: Any, target: object = None) -> ModuleSpec | None:
            found = PathFinder.find_spec(name, path)
            if name != "hooked" or found is None:
                return None
            spec = Own(name, found.loader, origin=found.origin)
            spec.has_location = True
            return spec

    write(folder, "hooked")
    after_import({"hooked": lambda module: None})
    sys.meta_path.insert(1, Making())

    module = importlib.import_module("hooked")

    assert type(module.__spec__) is Own
    assert module.value == 1


def test_a_job_that_imports_anew_is_hooked_anew(folder: Path) -> None:
    """Removing a module from `sys.modules` or reloading it loses and breaks nothing."""
    write(folder, "hooked")
    called: list[ModuleType] = []
    after_import({"hooked": called.append})

    first = importlib.import_module("hooked")
    importlib.reload(first)
    forget("hooked")
    second = importlib.import_module("hooked")

    assert called == [first, second]


def test_threads_that_import_at_once_get_one_module(folder: Path) -> None:
    """The callback comes once, and before any of them goes on."""
    write(folder, "hooked", SOURCE + "sum(range(100_000))\n")
    called: list[ModuleType] = []
    seen: list[int] = []
    after_import({"hooked": called.append})

    def load() -> None:
        importlib.import_module("hooked")
        seen.append(len(called))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [1] * 8
