"""A log against a list: appends with keys and expectations, several handles, reopening."""

import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from livegnn.errors import LogConflict
from livegnn.log import open_log

handles = st.integers(0, 1)
bodies = st.binary(max_size=5)
keys = st.sampled_from("abcdef")


class LogMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:{self.folder.name}/history.db"
        self.logs = [self.open(), self.open()]
        self.model = []  # (key or None, payload)

    def open(self):
        return open_log(self.url, synchronous="NORMAL")

    def place(self, key):
        return next((i for i, (each, _) in enumerate(self.model) if each == key), None)

    @rule(handle=handles, body=bodies)
    def append(self, handle, body):
        assert self.logs[handle].append(body) == len(self.model)
        self.model.append((None, body))

    @rule(handle=handles, body=bodies, key=keys)
    def append_by_key(self, handle, body, key):
        known = self.place(key)
        offset = self.logs[handle].append(body, key=key)
        if known is None:
            known = len(self.model)
            self.model.append((key, body))
        assert offset == known

    @rule(handle=handles, body=bodies, key=st.none() | keys, shift=st.integers(-2, 2))
    def append_at(self, handle, body, key, shift):
        expect = max(0, len(self.model) + shift)
        known = None if key is None else self.place(key)
        if known == expect or (known is None and expect == len(self.model)):
            assert self.logs[handle].append(body, key=key, expect=expect) == expect
            if known is None:
                self.model.append((key, body))
        else:
            with pytest.raises(LogConflict):
                self.logs[handle].append(body, key=key, expect=expect)

    @rule(handle=handles)
    def reopen(self, handle):
        self.logs[handle].close()
        self.logs[handle] = self.open()

    @rule(handle=handles, first=st.integers(0, 20), limit=st.none() | st.integers(0, 20))
    def read(self, handle, first, limit):
        found = [(entry.offset, entry.payload) for entry in self.logs[handle].read(first, limit)]
        expected = [(i, body) for i, (_, body) in enumerate(self.model)][first:]
        assert found == expected[:limit]

    @invariant()
    def both_handles_agree_with_the_model(self):
        for log in self.logs:
            assert (log.tail, log.committed) == (len(self.model), len(self.model) - 1)
        entries = list(self.logs[0].read())
        assert [entry.payload for entry in entries] == [body for _, body in self.model]
        assert all(key in (None, entry.key) for entry, (key, _) in zip(entries, self.model, strict=True))

    def teardown(self):
        for log in self.logs:
            log.close()
        self.folder.cleanup()


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLogMachine = LogMachine.TestCase
