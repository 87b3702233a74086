# SPDX-License-Identifier: Apache-2.0
"""Functions that wait for a module are called once it was executed, and it does not notice."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
import traceback
import zipfile
import zipimport
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from roofline_job import imports
from roofline_job.imports import after_import

SOURCE = "# hooked\nvalue = 1\n\ndef function():\n    return value\n"
LONGER = "# longer than before, so that no cache is valid\n" + SOURCE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules, on the path; the finder and the modules leave with the test."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    write(tmp_path, "hooked")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, source: str = SOURCE) -> None:
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    importlib.invalidate_caches()


def await_modules(callbacks: Mapping[str, Callable[[Any], object]]) -> list[str]:
    """Wait for modules; return the list of those that are missed."""
    missed: list[str] = []
    after_import(callbacks, missed.append)
    return missed


def await_hooked() -> list[ModuleType]:
    """Wait for the module; return the list of what is called back with."""
    called: list[ModuleType] = []
    await_modules({"hooked": called.append})
    return called


def load() -> Any:
    return importlib.import_module("hooked")


def forget(name: str) -> None:
    sys.modules.pop(name, None)


def test_a_submodule_is_patched_before_its_package_takes_names_from_it(folder: Path) -> None:
    """`from .saving import save` in a package's `__init__` gets the patched function."""
    (folder / "package").mkdir()
    write(folder / "package", "saving", "def save(): return 1\n")
    write(folder / "package", "__init__", "from .saving import save\n")

    def patch(module: Any) -> None:
        module.save = lambda: 2

    await_modules({"package.saving": patch})

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
        "loader's state": sorted(vars(spec.loader)),
    }


def test_the_module_is_what_it_would_be_otherwise(folder: Path) -> None:
    """Names, spec, loader and source are the import system's own, also while it is executed."""
    then = "state_then = sorted(vars(__spec__.loader))\nshown = repr(__spec__)\n"
    write(folder, "hooked", SOURCE + then)
    plain = load()
    expected = facts(plain)
    forget("hooked")

    called = await_hooked()
    hooked = load()

    assert called == [hooked]
    assert facts(hooked) == expected
    assert hooked.state_then == plain.state_then
    assert hooked.shown.split("loader=")[0] == plain.shown.split("loader=")[0]


def failure(name: str) -> list[str]:
    """Import a module that fails; return the exception and what of it is not the import system's.

    That leaves out our line too: it and the import system's own are the price.
    """
    with pytest.raises(BaseException) as caught:
        importlib.import_module(name)
    lines = traceback.format_exception(caught.value.with_traceback(caught.tb.tb_next))
    own = [line for line in lines if f'File "{imports.__file__}"' in line]
    assert len(own) <= 1
    return [line for line in lines if "<frozen importlib" not in line and line not in own]


@pytest.mark.parametrize("raised", ["ValueError('no')", "ImportError('no')", "SystemExit(3)"])
def test_a_module_that_fails_fails_the_same_way(folder: Path, raised: str) -> None:
    """The exception and the job's lines are the same; the callback waits until it works."""
    write(folder, "hooked", f"raise {raised}\n")
    expected = failure("hooked")

    called = await_hooked()

    assert failure("hooked") == expected
    assert called == []
    write(folder, "hooked", LONGER)
    load()
    assert len(called) == 1


def test_a_callback_that_fails_breaks_nothing() -> None:
    """The import goes on."""
    await_modules({"hooked": lambda module: 1 // 0})

    assert load().value == 1


def test_modules_that_are_loaded_are_handed_over_at_once() -> None:
    """It does not matter which comes first, the module or the wish."""
    module = load()

    assert await_hooked() == [module]


def test_looking_for_a_module_does_not_call() -> None:
    """`find_spec` is how libraries ask what is installed; a copy of their own is not the job's."""
    called = await_hooked()
    await_modules({"absent": called.append})

    spec = importlib.util.find_spec("hooked")

    assert spec is not None
    assert spec.loader is not None
    assert importlib.util.find_spec("absent") is None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.value == 1
    assert called == []
    load()
    assert len(called) == 1


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
def test_finders_that_search_themselves_are_served(place: int) -> None:
    """Before or behind ours, none of them loops and the callback comes once."""
    called = await_hooked()
    sys.meta_path.insert(place, Searching())

    module = load()

    assert called == [module]


def test_a_finder_that_raises_is_heard_as_ever() -> None:
    """What another finder raises reaches the importing code without a line of ours."""

    class Refusing:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "hooked":
                raise RuntimeError("refused")

    sys.meta_path.insert(0, Refusing())
    expected = failure("hooked")
    del sys.meta_path[0]
    await_hooked()
    sys.meta_path.insert(1, Refusing())

    assert failure("hooked") == expected


class Made:
    """A finder that makes one module's spec its own way."""

    def __init__(self, make: Callable[[ModuleSpec], ModuleSpec]) -> None:
        self.make = make

    def find_spec(self, name: str, path: Any, target: object = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path)
        return self.make(found) if name == "hooked" and found is not None else None


class Slots:
    """A loader that takes no attributes, as one written in C."""

    __slots__ = ()

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.value = 1


class Static:
    """A loader that is a class, as that of frozen modules."""

    create_module = staticmethod(Slots().create_module)
    exec_module = staticmethod(Slots().exec_module)


@pytest.mark.parametrize("loader", [Slots(), Static])
def test_loaders_that_take_nothing_are_left_alone(loader: Any) -> None:
    """The import works; that it is not hooked is reported."""
    called: list[ModuleType] = []
    missed = await_modules({"hooked": called.append})
    sys.meta_path.insert(1, Made(lambda found: ModuleSpec(found.name, loader)))

    assert load().value == 1
    assert (called, missed) == ([], ["hooked"])


def test_a_lazy_import_is_hooked_when_it_happens(folder: Path) -> None:
    """Nothing is executed earlier than it would be; as importlib's documentation has it."""
    called: list[object] = []
    await_modules({"hooked": lambda module: called.append(module.value)})
    spec = importlib.util.find_spec("hooked")
    assert spec is not None
    assert spec.loader is not None

    loader = spec.loader = importlib.util.LazyLoader(spec.loader)
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["hooked"] = module
    loader.exec_module(module)

    assert called == []
    assert module.value == 1
    assert called == [1]


def test_a_finder_that_makes_specs_its_own_way_is_served() -> None:
    """Of a class of its own, with a loader that makes imports lazy: the hook uses it first."""

    class Own(ModuleSpec):
        pass

    def make(found: ModuleSpec) -> ModuleSpec:
        assert found.loader is not None
        spec = Own(found.name, importlib.util.LazyLoader(found.loader), origin=found.origin)
        spec.has_location = True
        return spec

    called: list[object] = []
    await_modules({"hooked": lambda module: called.append(module.value)})
    sys.meta_path.insert(1, Made(make))

    module = load()

    assert (module.value, type(module.__spec__)) == (1, Own)
    assert called == [1]


def test_a_loader_that_serves_many_modules(folder: Path) -> None:
    """A zip file has one for all of its modules: only the listed ones are reported, each once."""
    with zipfile.ZipFile(folder / "modules.zip", "w") as file:
        file.writestr("outer.py", "import other, inner\nvalue = inner.value\n")
        for name in ("inner", "other", "looked_at"):
            file.writestr(f"{name}.py", "value = 1\n")
    sys.path.insert(0, str(folder / "modules.zip"))
    called: list[str] = []
    names = ("outer", "inner", "looked_at")
    await_modules(dict.fromkeys(names, lambda module: called.append(module.__name__)))

    assert importlib.util.find_spec("looked_at") is not None
    module = importlib.import_module("outer")

    assert isinstance(module.__loader__, zipimport.zipimporter)
    assert called == ["inner", "outer"]
    importlib.import_module("other")
    importlib.import_module("looked_at")
    assert called == ["inner", "outer", "looked_at"]
    for name in ("outer", "looked_at"):
        forget(name)
        importlib.import_module(name)
    assert called == ["inner", "outer", "looked_at", "outer", "looked_at"]


def test_another_function_in_front_of_ours_stays_there() -> None:
    """Other instrumentation may do the same to the same loader."""
    called: list[Any] = await_hooked()
    spec = importlib.util.find_spec("hooked")
    assert spec is not None
    loader: Any = spec.loader
    ours = loader.exec_module

    def theirs(module: ModuleType) -> None:
        called.append("theirs")
        ours(module)

    loader.exec_module = theirs
    module = sys.modules["hooked"] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    loader.exec_module(module)

    assert called == ["theirs", module, "theirs", module]
    assert loader.exec_module is theirs


def test_a_job_that_imports_anew_is_hooked_anew() -> None:
    """Removing a module from `sys.modules` or reloading it makes its classes and functions anew."""
    called = await_hooked()

    first = load()
    importlib.reload(first)
    forget("hooked")
    second = load()

    assert called == [first, first, second]


def test_threads_that_import_at_once_get_one_module(folder: Path) -> None:
    """The callback comes once, and before any of them goes on."""
    write(folder, "hooked", SOURCE + "sum(range(100_000))\n")
    seen: list[int] = []
    called = await_hooked()

    def load_and_look() -> None:
        load()
        seen.append(len(called))

    threads = [threading.Thread(target=load_and_look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [1] * 8
