# SPDX-License-Identifier: Apache-2.0
"""The thread accounts of this process, and its job."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from threading import get_ident
from typing import Any

from . import identity, names, summary
from .degraded import LOADERS, note
from .termination import before_termination
from .thread_accounts import NEVER, ThreadAccount


class Process:
    """The accounts of this process; there is one."""

    def __init__(self) -> None:
        self.automatic = False
        """Whether the job was started with automatic instrumentation."""
        self.accounts: list[ThreadAccount] = []
        self.reset()

    def reset(self) -> None:
        """Start over, as in a forked child: the parent's work is not counted there."""
        for account in self.accounts:
            account.detach()
        self.accounts = []
        self._by_thread: dict[tuple[int, str | None, int | None], ThreadAccount] = {}
        self.latest: ThreadAccount | None = None
        """The account in which a loop was last opened."""
        self.trained = False
        """Whether an optimizer ever stepped on a batch of a loop."""
        self.stepped = False
        """Whether an optimizer ever stepped, in a loop or not."""
        self._job: str | None = None
        """The name that the job gave first."""
        self._flushing = False

    def account_here(self) -> ThreadAccount | None:
        """Return this thread's first account, or None."""
        thread = get_ident()
        return next((account for account in self.accounts if account.thread == thread), None)

    def account(self, job: str | None = None, rank: int | None = None) -> ThreadAccount | None:
        """Return this thread's account of a job and rank; None where this process must not report.

        Without a job it is the first one that was named in this process; what was counted before
        any was named belongs to it too. A thread that gets the number of one that ended goes on
        in its account.
        """
        key = (get_ident(), job, rank)
        account = self._by_thread.get(key)
        if account is None and not identity.is_loader_worker():
            account = self._by_thread[key] = self._known(job, rank) or self._new(job, rank)
        return account

    def _known(self, job: str | None, rank: int | None) -> ThreadAccount | None:
        """Return the account of this thread that is known by another key."""
        name = None if job is None else names.job_name(job)
        if name is not None and self._job is None:
            self._job = name
            for account in self.accounts:
                if account.due_ns == NEVER:
                    account.job = name
        for account in self.accounts:
            is_same = rank in (None, account.rank) and name in (None, account.job)
            if is_same and account.thread == get_ident():
                return account
        return None

    def _new(self, job: str | None, rank: int | None) -> ThreadAccount:
        name = (self._job or names.job_name(None)) if job is None else names.job_name(job)
        account = ThreadAccount(name, rank, "auto" if self.automatic else "client")
        if self.automatic:
            account.trains = get_ident() == threading.main_thread().ident
        self.accounts.append(account)
        self._flush_at_exit()
        return account

    def account_of_step(self) -> ThreadAccount | None:
        """Return the account to which an optimizer's step in this thread belongs: it trains.

        It is that of the loop in this thread, else of the loop which last got a batch: autograd's
        threads step too. But where a thread of the job itself trains on what a helper thread reads,
        that loop does not train, and its waits are not this one's.
        """
        self.stepped = True
        account, latest = self.account_here(), self.latest
        is_in_loop = account is not None and bool(account.open)
        if latest is not None and latest is not account and not is_in_loop:
            if latest.trains or not _is_of_python():
                account = latest
            else:
                account = self.account()
                if account is not None:
                    account.count_by_steps()
                    note("helper_thread", f"{threading.current_thread().name} trains")
        account = account or self.account()
        if account is not None:
            account.trains = True
            if self.automatic and not LOADERS.on:
                account.count_by_steps()
        return account

    def flush(self) -> None:
        """Send the last reports, at exit."""
        for account in self.accounts:
            account.report(NEVER, ending=True)
        accounts = [account for account in self.accounts if account.due_ns != NEVER]
        if not accounts or not summary.is_wanted():
            return
        try:
            rank = accounts[0].rank
            rank = identity.rank() if rank is None else rank
            summary.write_summary(accounts, rank, identity.world_size() or 1)
        except Exception:  # as where the job has already removed its framework's modules
            return

    def _flush_at_exit(self) -> None:
        """Have `flush` called when this process ends, also where it is one of multiprocessing's.

        Those leave by ``os._exit`` after their own finalizers, which a child must register itself.
        """
        if self._flushing:
            return
        self._flushing = True
        atexit.register(self.flush)
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.flush, exitpriority=0)
        if summary.is_wanted() and identity.rank() == 0:
            before_termination(self.flush)


def _is_of_python() -> bool:
    """Return whether Python code started this thread; ``current_thread`` would make one up."""
    here = get_ident()
    threads = [thread for thread in threading.enumerate() if thread.ident == here]
    return any(type(thread).__name__ != "_DummyThread" for thread in threads)


PROCESS = Process()
os.register_at_fork(after_in_child=PROCESS.reset)
