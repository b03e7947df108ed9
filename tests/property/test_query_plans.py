"""Plans under queries that come and go, against a dict of queries and the numbers ever given."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import livegnn as lg
from livegnn.sampling import Plan, Schema
from livegnn.sampling.queries.plan import plan

SCHEMA = Schema(integer_types=True, has_time=True, has_weight=True)
hops = st.tuples(st.sampled_from(["out", "in_"]), st.sampled_from([None, 1]), st.integers(1, 2), st.just("random"))


class Plans(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.plan = Plan(SCHEMA)
        self.model = {}  # query number -> query
        self.given = {}  # table number -> one-hop query, for all tables that ever were
        self.newest = 0

    @rule(parts=st.lists(hops, min_size=1, max_size=3))
    def add(self, parts):
        query = lg.query()
        for direction, edge_type, fanout, by in parts:
            query = getattr(query, direction)(edge_type).sample(fanout, by=by)
        self.plan, number = self.plan.add(query)
        assert number == self.newest + 1
        self.newest = number
        self.model[number] = query

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data):
        number = data.draw(st.sampled_from(sorted(self.model)))
        self.plan = self.plan.drop(number)
        del self.model[number]

    @invariant()
    def holds_the_queries_and_no_others(self):
        assert {planned.number: planned.query for planned in self.plan.queries} == self.model

    @invariant()
    def each_one_hop_query_has_one_table(self):
        wanted = {table.one_hop for query in self.model.values() for table in plan(query, SCHEMA).tables}
        assert {table.one_hop for table in self.plan.tables} == wanted
        assert len(self.plan.tables) == len(wanted)

    @invariant()
    def numbers_mean_the_same_for_ever(self):
        for number, one_hop in self.plan.tables:
            assert self.given.setdefault(number, one_hop) == one_hop
            assert number < self.plan.next_table

    @invariant()
    def tables_follow_the_hops_of_their_query(self):
        edges = set()
        for number, query in self.model.items():
            tables = self.plan.query(number).tables
            found = [self.plan.one_hop(table) for table in tables]
            assert [(hop.hop, hop.direction, hop.edge_type, hop.fanout, hop.by) for hop in found] == [
                (place, hop.direction, hop.edge_type, hop.fanout, hop.by)
                for place, hop in enumerate(query.hops, start=1)
            ]
            edges |= {(tables[place], tables[place + 1]) for place in range(len(tables) - 1)}
        told = {(table.number, after) for table in self.plan.tables for after in self.plan.feeds(table.number)}
        assert told == edges
        assert {(before, t.number) for t in self.plan.tables for before in self.plan.fed_by(t.number)} == edges
        assert all(self.plan.one_hop(one).hop + 1 == self.plan.one_hop(other).hop for one, other in edges)


TestPlans = Plans.TestCase
TestPlans.settings = settings(parent=settings.default, max_examples=60, stateful_step_count=20)
