"""Two graphs that write one log, appends that fail before or after the log has them: graph = replay of its entries."""

import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import livegnn as lg
from livegnn.errors import LogConflict, LogUnavailable, UpdateError
from livegnn.log import UpdateLog, open_log, replay

writers = st.integers(0, 1)
vertices = st.integers(0, 4)
changes = st.one_of(
    st.tuples(st.just("add_edge"), vertices, vertices),
    st.tuples(st.just("remove_edge"), vertices, vertices),
    st.tuples(st.just("set_features"), vertices, st.lists(st.integers(-9, 9), min_size=2, max_size=2)),
    st.tuples(st.just("add_vertex"), st.just(4), st.just([1, 2])),
    st.tuples(st.just("remove_vertex"), vertices),
)
batches = st.lists(changes, max_size=4)


def initial():
    return lg.Graph(np.eye(4, 2, dtype=np.float32), [0, 1, 2], [1, 2, 3])


def filled(batch):
    updates = lg.Updates()
    for name, *args in batch:
        getattr(updates, name)(*args)
    return updates


class AttachMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        url = f"sqlite:{self.folder.name}/history.db"
        self.logs = [UpdateLog(open_log(url, synchronous="NORMAL")) for _ in range(2)]
        self.graphs = [initial(), initial()]
        model = lg.Model([lg.layers.SAGE(np.ones((2, 2), np.float32), np.eye(2, dtype=np.float32), aggregate="max")])
        self.engines = [lg.Engine(model, graph) for graph in self.graphs]
        self.attachments = [log.attach(graph) for log, graph in zip(self.logs, self.graphs, strict=True)]

    def accepted(self, writer, batch):
        """Whether the graph takes the batch, asked of a copy; and what it is then."""
        trial = lg.Graph.from_arrays(self.graphs[writer].to_arrays())
        try:
            trial.apply(filled(batch))
        except UpdateError:
            return None
        return trial

    @rule(writer=writers, batch=batches)
    def apply(self, writer, batch):
        trial, graph, log = self.accepted(writer, batch), self.graphs[writer], self.logs[writer]
        behind = graph.version < log.tail
        before = graph.version, graph.digest(), log.tail
        if trial is None or behind:
            with pytest.raises(UpdateError if trial is None else LogConflict):
                graph.apply(filled(batch))
            assert (graph.version, graph.digest(), log.tail) == before
        else:
            assert graph.apply(filled(batch)) == log.tail == before[0] + 1
            assert graph.digest() == trial.digest()

    @rule(writer=writers, batch=batches, written=st.booleans())
    def append_that_fails(self, writer, batch, written):
        graph, log = self.graphs[writer], self.logs[writer].log
        before, tail, behind = (graph.version, graph.digest()), log.tail, graph.version < log.tail
        if self.accepted(writer, batch) is None:
            return
        append = log.append

        def fail(*args, **options):
            if written:
                append(*args, **options)
            raise LogUnavailable("[append] expected a disk, got none; mount it")

        log.append = fail
        try:
            with pytest.raises(LogConflict if behind and written else LogUnavailable):
                graph.apply(filled(batch))
        finally:
            del log.append
        assert (graph.version, graph.digest()) == before
        assert log.tail == tail + (written and not behind)

    @rule(writer=writers)
    def catch_up(self, writer):
        assert self.attachments[writer].catch_up() == self.logs[writer].tail

    @rule(writer=writers)
    def attach_again(self, writer):
        self.attachments[writer].detach()
        self.attachments[writer] = self.logs[writer].attach(self.graphs[writer])

    @invariant()
    def a_graph_is_the_replay_of_its_entries(self):
        for graph, engine, attachment in zip(self.graphs, self.engines, self.attachments, strict=True):
            assert attachment.offset == graph.version
            copy = initial()
            replay(self.logs[0], copy, to_offset=graph.version)
            assert copy.digest() == graph.digest()
            assert copy.edges()["id"].tolist() == graph.edges()["id"].tolist()
            engine.verify()
            graph.host.store.check_invariants()

    def teardown(self):
        for log in self.logs:
            log.close()
        self.folder.cleanup()


AttachMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestAttachMachine = AttachMachine.TestCase
