# SPDX-License-Identifier: Apache-2.0
"""What `watch` returns is the job's own iterable in every respect."""

from __future__ import annotations

import collections
import copy
import gc
import itertools
import pickle
import traceback
import types
import weakref
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from roofline_job import watch
from roofline_job.failures import FAILURES

pytestmark = pytest.mark.usefixtures("client")


class Shuffled:
    """A loader whose iterator is itself, and which counts how often it is asked for one."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.epochs = 0
        self._left = 0

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Shuffled:
        self.epochs += 1
        self._left = self.batches
        return self

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._left


def numbers() -> Generator[int, Any, str]:
    sent = yield 1
    yield sent or 2
    return "returned"


def test_each_epoch_asks_for_an_iterator_of_its_own() -> None:
    """The second epoch over the same loader is as long as the first."""
    watched = watch([1, 2, 3])

    assert [list(watched), list(watched)] == [[1, 2, 3], [1, 2, 3]]


def test_an_iterator_of_its_own_is_asked_once_per_epoch() -> None:
    """Asking twice would shuffle twice, or skip data."""
    loader = Shuffled(3)
    watched = watch(loader)

    assert [list(watched), list(watched)] == [[2, 1, 0], [2, 1, 0]]
    assert loader.epochs == 2
    assert iter(watched) is watched


def test_length_truth_and_items_are_the_originals() -> None:
    """What has a length keeps it; what has none gets none."""
    watched: Any = watch([4, 5])

    assert (len(watched), watched[1], bool(watched), 5 in watched) == (2, 5, True, True)
    assert (watched == [4, 5], repr(watched), list(reversed(watched))) == (True, "[4, 5]", [5, 4])
    assert not watch([])
    assert not hasattr(watch(iter([1])), "__len__")
    with pytest.raises(TypeError):
        len(watch(numbers()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        hash(watched)


def test_attributes_are_read_set_and_deleted_through() -> None:
    """``loader.sampler.set_epoch`` and the like reach the loader."""
    loader = Shuffled(3)
    watched: Any = watch(loader)
    watched.batches = 5
    watched.note = "here"

    assert loader.batches == len(watched) == 5
    assert loader.__dict__["note"] == "here"
    del watched.note
    assert not hasattr(loader, "note")
    with pytest.raises(AttributeError, match="'Shuffled' object has no attribute 'missing'"):
        _ = watched.missing


def test_it_is_taken_for_the_original() -> None:
    """A library that asks for the class does with it what it does with the loader."""
    loader = Shuffled(3)
    watched: Any = watch(loader)

    assert isinstance(watched, Shuffled)
    assert type(copy.copy(watched)) is Shuffled
    assert pickle.loads(pickle.dumps(watch([1, 2]))) == [1, 2]


class Plain:
    """A loader that is nothing else: no length, no call, no arithmetic."""

    def __iter__(self) -> Iterator[int]:
        return iter([1])


def test_it_can_what_the_original_can_and_nothing_else() -> None:
    """Special methods are those of the class: what its metaclass or the object has is no matter."""
    plain = Plain()
    vars(plain)["__len__"] = lambda: 5
    watched: Any = watch(plain)

    assert not callable(watched)
    with pytest.raises(TypeError, match=r"object of type 'Plain' has no len\(\)"):
        len(watched)
    with pytest.raises(TypeError, match=r"unsupported operand type.* 'Plain' and 'int'"):
        watched | 1


def test_it_is_called_what_the_original_is_called() -> None:
    """Also in what Python says when something cannot be done."""
    originals: list[Any] = [Plain(), [1], itertools.count(), collections.deque([1]), iter([1])]
    for original in originals:
        watched: Any = watch(original)
        messages = []
        for iterable in (original, watched):
            with pytest.raises(TypeError) as caught:
                iterable @ 1
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert type(watched).__name__.endswith(type(original).__name__)


def test_operators_are_the_originals() -> None:
    """Arrays are iterables too, and lists are added to and changed in place."""
    numbers: Any = [1, 2]
    watched: Any = watch(numbers)
    same = watched
    same += [3]
    assert (numbers, watched * 2, 2 * watched) == ([1, 2, 3], numbers * 2, numbers * 2)
    merged: Any = watch({"a": 1})
    assert (merged | {"b": 2}, {"b": 2} | merged) == ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert f"{watch('abc'):>5}" == "  abc"
    difference: Any = watch(collections.Counter("aab"))
    assert difference - collections.Counter("a") == collections.Counter("ab")


def test_an_object_that_answers_nothing_is_left_alone() -> None:
    """Its attributes are not asked for."""

    class Strict(Plain):
        def __getattr__(self, name: str) -> Any:
            raise OSError(name)

    assert list(watch(Strict())) == [1]
    assert FAILURES.count == 0


def test_what_is_no_iterable_fails_as_without_us() -> None:
    """The error comes from the loop, in the words of Python."""
    watched: Any = watch(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="'int' object is not iterable"):
        for _ in watched:
            pass


def test_a_generator_keeps_its_methods() -> None:
    """Values are sent and thrown into it, it is closed, and what it returns arrives."""
    watched: Any = watch(numbers())
    assert (next(watched), watched.send(7)) == (1, 7)
    with pytest.raises(StopIteration) as stopped:
        next(watched)
    assert stopped.value.value == "returned"

    thrown: Any = watch(numbers())
    next(thrown)
    with pytest.raises(KeyError, match="thrown"):
        thrown.throw(KeyError("thrown"))

    closed: Any = watch(numbers())
    next(closed)
    closed.close()
    assert list(closed) == []
    assert isinstance(closed, types.GeneratorType)


def test_a_generator_can_be_delegated_to() -> None:
    """``yield from`` passes values both ways and gives what the generator returned."""

    def outer() -> Generator[int, Any, None]:
        returned.append((yield from watch(numbers())))  # type: ignore[func-returns-value]

    returned: list[Any] = []
    generator = outer()
    assert next(generator) == 1
    assert generator.send(9) == 9
    assert list(generator) == []
    assert returned == ["returned"]


def _frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


class Refusing:
    """A loader that cannot begin."""

    def __iter__(self) -> Iterator[int]:
        raise OSError(5, "no data")


def _raising() -> Iterator[int]:
    yield 1
    raise ValueError("broken", 3)


def _loop(iterable: Any) -> BaseException:
    try:
        for _ in iterable:
            pass
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("make", [_raising, Refusing])
def test_what_a_loader_raises_is_what_it_raises_without_us(make: Any) -> None:
    """Type, arguments, context and traceback: no line of ours is in it."""
    plain, watched = _loop(make()), _loop(watch(make()))

    assert (type(watched), watched.args) == (type(plain), plain.args)
    assert (watched.__cause__, watched.__context__) == (None, None)
    assert _frames(watched) == _frames(plain)


def test_the_iterator_is_dropped_when_the_loop_is_left() -> None:
    """Its workers end when they would without us, not when the garbage is collected."""
    gc.disable()
    try:
        generator = numbers()
        gone = weakref.ref(generator)
        for _ in watch(generator):
            break
        del generator
        assert gone() is None
    finally:
        gc.enable()


def test_a_batch_is_dropped_when_the_job_drops_it() -> None:
    """Nothing of ours keeps a batch, which may be all the memory there is."""

    class Batch:
        pass

    gone: list[bool] = []

    def batches() -> Iterator[Batch]:
        for _ in range(3):
            if refs:
                gone.append(refs[-1]() is None)
            yield Batch()

    refs: list[weakref.ref[Batch]] = []
    for batch in watch(batches()):
        refs.append(weakref.ref(batch))
        del batch

    assert gone == [True, True]


def test_nothing_failed_inside() -> None:
    """All of this went without a failure that the client had to swallow."""
    list(watch([1]))

    assert FAILURES.count == 0
