"""A bidder on disk: a snapshot now and then, a journal of every event between, nothing lost when the process is killed.

The journal gets its line before the caller gets the answer. A kill loses nothing that was answered, because the line is
with the operating system by then; a loss of power can lose what came after the last flush to the disk, a second at most.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay._core.errors import AssayError, InputError
from assay._core.files import write_text

from ._bidder import AutoBidder, dump_state, read_state

SNAPSHOT_EVERY = 1_000  # answers between two snapshots
FLUSH_S = 1.0  # what a loss of power may take


class Ledger:
    """Keep an `AutoBidder` in a state file and a journal beside it (``NAME.journal``).

    Parameters
    ----------
    bidder : AutoBidder
        Fresh; goes on from the files where they exist.
    path : path
        The state file.
    trouble : callable
        Told in one sentence where a snapshot could not be written.

    Raises
    ------
    InputError
        If the files are of another configuration, damaged, or in use by another process.
    """

    def __init__(self, bidder: AutoBidder, path: str | Path, trouble: Callable[[str], None] = warnings.warn) -> None:
        self.bidder = bidder
        self.trouble = trouble
        self.path = Path(path)
        if not self.path.name or self.path.is_dir():
            raise InputError(f"The state file needs a name, {str(path)!r} is a folder.")
        self.journal = self.path.with_name(self.path.name + ".journal")
        self.events = 0
        self.restored = 0
        self._handle: int | None = None
        self._broken = ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(
                f"The state file {self.path} cannot be written ({error.strerror}); choose another."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise InputError(f"The state file {self.path} is in use by another process.") from None
        try:
            self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        if self.path.exists():
            state = read_state(self.path)
            try:
                self.bidder.load_state_dict(state)
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from error
            self.events = int(state.get("events", 0))
            self._replay()
        elif self.journal.exists():
            raise InputError(f"{self.journal} is here without its state file {self.path}; move it away to start anew.")
        self._saved_at = self.bidder.answered_
        self._flushed = time.monotonic()
        self.snapshot()

    def _replay(self) -> None:
        """Do again what the journal holds beyond the snapshot."""
        if not self.journal.exists():
            return
        lines = self.journal.read_bytes().split(b"\n")
        whole, tail = lines[:-1], lines[-1]  # a last line without its end was never answered
        for number, line in enumerate(whole, 1):
            try:
                event = json.loads(line)
                n = int(event["n"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InputError(f"{self.journal}, line {number}: damaged; restore a backup of both files.") from error
            if n <= self.events:
                continue  # the snapshot knows it: the process died before it could shorten the journal
            if n != self.events + 1:
                raise InputError(
                    f"{self.journal}, line {number}: event {self.events + 1} is missing; restore a backup."
                )
            try:
                bid = was = 0.0
                if event["e"] == "bid":
                    bid, was = self.bidder.bid(event["value"], event["id"]), event["bid"]
                else:
                    self.bidder.observe(event["id"], **event["answer"])
            except InputError as error:
                raise InputError(f"{self.journal}, line {number}: {error}") from error
            except (KeyError, TypeError) as error:
                raise InputError(f"{self.journal}, line {number}: damaged; restore a backup of both files.") from error
            if bid != was:
                raise AssayError(
                    f"{self.journal}, line {number}: the bid was {was}, done again it is {bid}; "
                    "the file belongs to another version or machine, so start with a new --state."
                )
            self.events = n
            self.restored += 1
        del tail

    def bid(self, value: float, auction_id: str | int | None = None) -> tuple[str | int, float]:
        """Bid, and write it down; returns the id, made up where none was given, and the bid."""
        self._check()
        key: str | int = auction_id if auction_id is not None else self._made_up()
        bid = self.bidder.bid(value, key)
        self._write({"e": "bid", "id": key, "value": value, "bid": bid})
        return key, bid

    def _made_up(self) -> str:
        name = key = f"auction-{self.bidder.t_}"
        k = 1
        while self.bidder.knows(key):  # a caller's own id may look the same
            k += 1
            key = f"{name}-{k}"
        return key

    def observe(self, auction_id: str | int, answer: dict[str, Any]) -> None:
        """Book an answer, and write it down; every thousand answers the state file is written anew."""
        self._check()
        self.bidder.observe(auction_id, **answer)
        self._write({"e": "observe", "id": auction_id, "answer": answer})
        if self.bidder.answered_ - self._saved_at >= SNAPSHOT_EVERY:
            try:
                self.snapshot()
            except AssayError as error:
                # The answer is in the journal, which goes on growing; the next thousand tries again.
                self.trouble(str(error))
                self._saved_at = self.bidder.answered_

    def _check(self) -> None:
        if self._broken:
            raise AssayError(f"{self.journal} could not be written ({self._broken}); free some space and start again.")

    def _write(self, event: dict[str, Any]) -> None:
        assert self._handle is not None
        line = json.dumps({"n": self.events + 1, **event}, allow_nan=False).encode() + b"\n"
        try:
            while line:  # a full disk may take a part
                line = line[os.write(self._handle, line) :]
            now = time.monotonic()
            if now - self._flushed > FLUSH_S:
                os.fsync(self._handle)
                self._flushed = now
        except OSError as error:
            # The bidder knows what the file does not: nothing more is answered, and a restart goes on from the file.
            self._broken = (error.strerror or str(error)).lower()
            self._check()
        self.events += 1

    def snapshot(self) -> None:
        """Write the state file (temporary name, then renamed) and begin an empty journal."""
        write_text(self.path, dump_state({**self.bidder.state_dict(), "events": self.events}))
        # A kill between the two leaves old lines, which their numbers tell apart.
        write_text(self.journal, "")
        old, self._handle = self._handle, os.open(self.journal, os.O_WRONLY | os.O_APPEND)
        if old is not None:
            os.close(old)
        self._saved_at = self.bidder.answered_

    def close(self) -> None:
        """Write the last snapshot and free the file."""
        if self._handle is None:
            return
        if not self._broken:
            self.snapshot()
        os.close(self._handle)
        self._handle = None
        os.close(self._lock)
