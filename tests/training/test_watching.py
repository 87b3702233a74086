# SPDX-License-Identifier: Apache-2.0
"""What `watch` returns does what the job's own iterable does."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from roofline_job import degraded, watch
from tests.training.measured import is_at_rest, measured

pytestmark = pytest.mark.usefixtures("client", "unheard")


class Shuffled:
    """A loader whose iterator is itself."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self._left = 0

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Shuffled:
        self._left = self.batches
        return self

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._left


class Plain:
    """A loader that is nothing else: no length, no call."""

    def __init__(self, data: list[int] | None = None) -> None:
        self.data = data or [1]

    def __iter__(self) -> Iterator[int]:
        return iter(self.data)


def numbers() -> Generator[int, Any, str]:
    sent = yield 1
    yield sent or 2
    return "returned"


def test_an_iterator_is_itself_when_asked_for_one() -> None:
    """Also one that begins anew then."""
    iterator = watch(iter([1, 2]))

    assert iter(iterator) is iterator
    assert list(iterator) == [1, 2]
    assert list(iterator) == []


def test_length_truth_and_items_are_the_originals() -> None:
    """What has a length keeps it; what has none gets none."""
    watched: Any = watch([4, 5])

    assert (len(watched), watched[1], watched[:1], bool(watched)) == (2, 5, [4], True)
    assert 5 in watched
    assert 6 not in watched
    assert (repr(watched), str(watched), list(reversed(watched))) == ("[4, 5]", "[4, 5]", [5, 4])
    assert dir(watched) == dir([])
    watched[0] = 7
    del watched[1]
    assert list(watched) == [7]
    assert not watch([])
    assert not watch({})
    assert watch(Plain())


def test_it_can_what_the_class_can_and_nothing_else() -> None:
    """Special methods are those of the class: what the object itself has is no matter."""
    plain = Plain()
    vars(plain)["__len__"] = lambda: 5
    watched: Any = watch(plain)

    assert not hasattr(watch(iter([1])), "__len__")
    assert not hasattr(watch(numbers()), "__len__")
    assert hasattr(watch([1]), "__len__")
    assert not callable(watched)
    assert callable(watch(type("Callable", (Plain,), {"__call__": len})()))
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(watched)
    with pytest.raises(TypeError, match="not subscriptable"):
        watched[0]


def test_it_may_be_a_context_of_its_own() -> None:
    """Some data readers are closed so; what ``__enter__`` returns is theirs."""

    class Reader(Plain):
        closed = False

        def __enter__(self) -> Reader:
            return self

        def __exit__(self, *_: object) -> None:
            self.closed = True

    reader = Reader()
    watched: Any = watch(reader)
    with watched as entered:
        assert entered is reader
        assert list(watched) == [1]
    assert reader.closed


def test_a_sequence_without_an_iterator_is_watched() -> None:
    """Python goes through it by index."""

    class Sequence:
        def __getitem__(self, index: int) -> int:
            return [5, 6][index]

    watched: Any = watch(Sequence())  # type: ignore[arg-type]

    assert list(watched) == [5, 6]
    assert watched[1] == 6
    assert measured().batches == 2


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


@pytest.mark.parametrize(
    "original", [[1, 2], (1, 2), range(3), {"a": 1}, "abc", Plain([1]), Shuffled(2)]
)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_copies_and_pickles_are_the_originals(original: Any, protocol: int) -> None:
    """They are loaded where there is no client, too."""
    dumped = pickle.dumps(watch(original), protocol)
    copies = [pickle.loads(dumped), copy.copy(watch(original)), copy.deepcopy(watch(original))]

    assert b"roofline" not in dumped
    assert [type(each) for each in copies] == [type(original)] * 3
    assert [list(each) for each in copies] == [list(original)] * 3


def test_a_copy_is_as_deep_as_it_would_be() -> None:
    """And what the job holds twice is one thing in a deep copy."""
    inside = [[1]]
    original = Plain(inside)  # type: ignore[arg-type]
    shallow: Any = copy.copy(watch(original))
    together: Any = copy.deepcopy([watch(original), original, inside])

    assert shallow is not original
    assert shallow.data is inside
    assert together[0] is together[1]
    assert together[0] is not original
    assert together[0].data is together[2]
    assert together[2] is not inside


def test_what_is_no_iterable_comes_back_itself() -> None:
    """The error comes from the loop, in the words of Python."""
    watched: Any = watch(5)  # type: ignore[arg-type]

    assert watched == 5
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        for _ in watched:
            pass


def test_an_object_that_answers_nothing_is_left_alone() -> None:
    """Its attributes are not asked for."""

    class Strict(Plain):
        def __getattr__(self, name: str) -> Any:
            raise OSError(name)

    assert list(watch(Strict())) == [1]
    assert not degraded.FOUND


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


def test_a_loader_that_cannot_begin_says_so_itself() -> None:
    """What it raises later, `test_scripts` compares, tracebacks and all."""

    class Refusing:
        def __iter__(self) -> Iterator[int]:
            raise OSError(5, "no data")

    with pytest.raises(OSError, match="no data") as caught:
        iter(watch(Refusing()))
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert not degraded.FOUND


def test_at_the_end_of_the_stack_no_batch_is_lost() -> None:
    """A job at its recursion limit goes on as it would, and is measured again afterwards."""

    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        else:
            found.append(next(iterator))

    found: list[int] = []
    iterator = iter(watch(iter(range(100_000))))
    limit = sys.getrecursionlimit()
    for levels in range(limit - 200, limit):
        try:
            deeper(levels)
        except RecursionError:
            continue
    found.extend(iterator)

    assert len(found) > 50_000
    assert not degraded.FOUND
    assert is_at_rest()
