"""The rules of a source: what updates a record becomes.

rule = op, when: columns that must have these values, and where each argument of the op comes from
argument = column, cast to what the argument is | columns, a row of numbers | constant

A record becomes the updates of all rules that fit it, in the order of the rules; they stand or fall together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from livegnn.deployment.config_pipes import RuleField, SourceConfig, UpdateRule
from livegnn.deployment.pipes import casts
from livegnn.deployment.pipes.casts import RecordFault, fault
from livegnn.deployment.pipes.records import SourceRecord
from livegnn.errors import ColumnMissing, UpdateError, ValueInvalid
from livegnn.graph import Graph, Updates

_ARGUMENTS = {  # op -> its arguments, the needed ones first
    "add_edge": (("u", "v"), ("weight", "time", "edge_type", "edge_attr")),
    "remove_edge": (("u", "v"), ("time", "edge_type", "edge_id")),
    "set_weight": (("u", "v", "w"), ("edge_type", "edge_id")),
    "set_edge_attr": (("u", "v", "attr"), ("edge_type", "edge_id")),
    "set_features": (("u", "x"), ("vertex_type",)),
    "add_vertex": (("u", "x"), ("vertex_type",)),
    "remove_vertex": (("u",), ("vertex_type",)),
}
_ROWS = ("x", "attr", "edge_attr")
_ABSENT = object()
Get = Callable[[Mapping[str, Any]], Any]


class Built(NamedTuple):
    """updates: of the good records.  ends: how many updates there are up to each of them.  bad: with the reasons."""

    updates: Updates
    good: list[SourceRecord]
    ends: list[int]
    bad: list[tuple[SourceRecord, str]]


class SourceMapping:
    """The rules of a source, for a graph.

    Raises:  ValueInvalid, ColumnMissing naming source, rule and argument, where a rule cannot fit the graph.
    """

    def __init__(self, config: SourceConfig, graph: Graph) -> None:
        self._graph, self._skips = graph, config.unmatched == "skip"
        self._rules = [_Rule(config, place, rule, graph) for place, rule in enumerate(config.update)]
        self.ignores_known = any(rule.ignores_known for rule in self._rules)
        self.columns = sorted({name for rule in self._rules for name in rule.columns})

    def build(self, records: Sequence[SourceRecord]) -> Built:
        """The batch of some records, and those that are bad."""
        bad: dict[int, str] = {}
        while True:
            built = Built(Updates(), [], [], [])
            batch = _UpdatesUnderWay(self._graph, built.updates)
            if not self._fill(records, built, batch, bad):
                return built

    def _fill(
        self, records: Sequence[SourceRecord], built: Built, batch: _UpdatesUnderWay, bad: dict[int, str]
    ) -> bool:
        """True where a record left a part of its updates: it is bad then, and the batch is to be built anew."""
        for place, record in enumerate(records):
            reason = bad.get(place, record.fault)
            if not reason and record.values is not None:
                before = len(built.updates)
                try:
                    self._add(record.values, batch)
                    built.good.append(record)
                    built.ends.append(len(built.updates))
                except (RecordFault, UpdateError) as why:
                    reason = bad[place] = str(why)
                    if len(built.updates) != before:
                        return True
            if reason:
                built.bad.append((record, reason))
        return False

    def _add(self, values: Mapping[str, Any], batch: _UpdatesUnderWay) -> None:
        fitting = [rule for rule in self._rules if rule.fits(values)]
        if not fitting and not self._skips:
            raise RecordFault("[when] expected a record that a rule fits, got one that none does")
        calls = [(rule, rule.arguments(values)) for rule in fitting]
        for rule, arguments in calls:
            batch.call(rule, arguments)


class _UpdatesUnderWay:
    """Updates under way, and which vertices they add and remove."""

    def __init__(self, graph: Graph, updates: Updates) -> None:
        self._graph, self._updates = graph, updates
        self._there: dict[object, bool] = {}

    def call(self, rule: _Rule, arguments: dict[str, Any]) -> None:
        vertex = (arguments.get("vertex_type"), arguments["u"])
        if rule.ignores_known and self._knows(vertex):
            return
        getattr(self._updates, rule.op)(**arguments, **rule.constants)
        if rule.op in ("add_vertex", "remove_vertex"):
            self._there[vertex] = rule.op == "add_vertex"

    def _knows(self, vertex: tuple[Any, Any]) -> bool:
        found = self._there.get(vertex)
        if found is None:
            found = (vertex if vertex[0] is not None else vertex[1]) in self._graph
        return found


class _Rule:
    """One rule. columns: those that a table must have."""

    def __init__(self, config: SourceConfig, place: int, rule: UpdateRule, graph: Graph) -> None:
        self.op, self._where = rule.op, f"source {config.name}, rule {place + 1} ({rule.op})"
        self._nested = config.kind in ("kafka", "nats", "jsonl") or (config.kind == "stdin" and config.format != "csv")
        needed, others = _ARGUMENTS[rule.op]
        given = {name: getattr(rule, name) for pair in _ARGUMENTS.values() for names in pair for name in names}
        given = {name: field for name, field in given.items() if field is not None}
        for name in given:
            if name not in (*needed, *others):
                raise self._refused(f"arguments among {', '.join((*needed, *others))}", repr(name))
        missing = [name for name in needed if name not in given]
        if missing:
            raise self._refused(f"{', '.join(needed)}", f"no {missing[0]}")
        if rule.missing != "error" and rule.op != "remove_edge":
            raise self._refused("missing with remove_edge alone", "it")
        if rule.exists != "error" and rule.op != "add_vertex":
            raise self._refused("exists with add_vertex alone", "it")
        self.ignores_known = rule.exists == "ignore"
        self.constants: dict[str, Any] = {"missing": "ignore"} if rule.missing == "ignore" else {}
        self._check_graph(graph, set(given))
        self.columns: set[str] = set()
        self._when = [(self._column(name), _wanted(wanted)) for name, wanted in rule.when.items()]
        self._get = {name: self._argument(name, field, graph) for name, field in given.items()}

    def fits(self, values: Mapping[str, Any]) -> bool:
        """Whether the columns of `when` have their values; text is compared with text."""
        return all(_comparable(get(values)) in wanted for get, wanted in self._when)

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: RecordFault."""
        return {name: get(values) for name, get in self._get.items()}

    def _check_graph(self, graph: Graph, given: set[str]) -> None:
        """The graph's columns, each given if and only if it is there. Raises: ColumnMissing."""
        wanted: dict[str, bool] = {}
        if self.op == "add_edge":
            wanted = {"weight": graph.has_weight, "time": graph.has_time, "edge_attr": graph.attr_width > 0}
        if self.op in ("add_edge", "set_weight", "set_edge_attr", "remove_edge"):
            if graph.vertex_types is not None or (self.op == "add_edge" and graph.has_type):
                wanted["edge_type"] = True
        elif graph.vertex_types is not None or "vertex_type" in given:
            wanted["vertex_type"] = graph.vertex_types is not None
        if self.op == "set_weight" and not graph.has_weight:
            wanted["w"] = False
        if self.op == "set_edge_attr" and not graph.attr_width:
            wanted["attr"] = False
        for name, there in wanted.items():
            if there != (name in given):
                expected = f"{name}, which the graph has" if there else f"no {name}, which the graph does not have"
                raise ColumnMissing(
                    f"[{self._where}] expected {expected}, got {'none' if there else 'one'}; correct the rule"
                )

    # ---- arguments

    def _argument(self, name: str, field: Any, graph: Graph) -> Get:
        one = field if isinstance(field, RuleField) else None
        if isinstance(field, str):
            one = RuleField(column=field)
        elif isinstance(field, tuple):
            one = RuleField(columns=field)
        assert one is not None
        if sum((bool(one.column), bool(one.columns), one.value is not None)) != 1:
            raise self._refused(f"one of column, columns and value for {name}", "another number of them")
        if one.value is not None:
            if one.default is not None:
                raise self._refused(f"value or default for {name}", "both")
            constant = self._constant(name, one.value, one.cast, graph)
            return lambda values: constant
        if one.columns:
            if name not in _ROWS:
                raise self._refused(f"one column for {name}", "several")
            if one.default is not None and not isinstance(one.default, int | float):
                raise self._refused(f"a number as default of the columns of {name}", repr(one.default))
            if one.cast:
                raise self._refused(f"no cast for the columns of {name}, which are numbers", repr(one.cast))
            gets = [self._cast(self._column(each, one.default), each, casts.as_number) for each in one.columns]
            return lambda values: [get(values) for get in gets]
        if isinstance(one.default, tuple) and name not in _ROWS:
            raise self._refused(f"one value as default of {name}", "a list")
        return self._cast(self._column(one.column, one.default), one.column, self._kind(name, one.cast, graph))

    def _constant(self, name: str, value: Any, cast: str, graph: Graph) -> Any:
        try:
            return self._kind(name, cast, graph)(name, value)
        except RecordFault as why:
            raise ValueInvalid(f"[{self._where}] {str(why).partition('] ')[2]} for {name}; correct the rule") from why

    def _kind(self, name: str, cast: str, graph: Graph) -> Callable[[str, Any], Any]:
        """How a value becomes this argument."""
        own: Callable[[str, Any], Any]
        if name in _ROWS:
            if cast:
                raise self._refused(f"no cast for {name}, which is a list of numbers", repr(cast))
            return casts.as_row
        if name in ("u", "v"):
            own = _identity if graph.host.ids.text else casts.as_integer
        elif name in ("weight", "w"):
            own = casts.as_number
        elif name == "time":
            own = casts.as_time
        elif name == "edge_id":
            own = casts.as_integer
        else:
            own = casts.as_text if graph.vertex_types is not None else casts.as_integer
        if not cast:
            return own
        first = casts.CASTS[cast]
        return lambda where, value: own(where, first(where, value))

    def _cast(self, get: Get, column: str, kind: Callable[[str, Any], Any]) -> Get:
        def cast(values: Mapping[str, Any]) -> Any:
            value = get(values)
            if value is _ABSENT:
                raise fault(column, "a value", None)
            return kind(column, value)

        return cast

    def _column(self, name: str, default: Any = None) -> Get:
        """A column's value, the default where it has none, or _ABSENT. A dot leads into an object of JSON."""
        otherwise = _ABSENT if default is None else list(default) if isinstance(default, tuple) else default
        if default is None:
            self.columns.add(name)
        path = name.split(".") if self._nested else [name]
        if len(path) == 1:

            def get(values: Mapping[str, Any]) -> Any:
                value = values.get(name)
                return otherwise if value is None or value == "" else value

            return get

        def walk(values: Any) -> Any:
            for step in path:
                values = values.get(step) if isinstance(values, Mapping) else None
            return otherwise if values is None or values == "" else values

        return walk

    def _refused(self, expected: str, got: str) -> ValueInvalid:
        return ValueInvalid(f"[{self._where}] expected {expected}, got {got}; correct the rule")


def _identity(where: str, value: Any) -> str:
    """An id of a graph whose ids are text."""
    return casts.as_text(where, value)


def _wanted(value: Any) -> frozenset[object]:
    return frozenset(_comparable(each) for each in (value if isinstance(value, tuple) else (value,)))


def _comparable(value: Any) -> object:
    """Text of what is compared: a table of text has no other values."""
    if value is _ABSENT or isinstance(value, Mapping | list):
        return _ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
