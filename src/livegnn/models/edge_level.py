"""Models with one row per edge: what an engine keeps of them, and what is computed when an edge's row is read.

An edge's row is a row-local function of rows of its two ends, of its attributes, its weight and its type. So an engine
keeps the rows of the ends, side by side, as the model's output, and nothing for an edge. `head_of` is the rest: a model
over one Input, the rows of source and target, the attributes, the weight and the type side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegnn.errors import ModelError
from livegnn.models import edges, ir
from livegnn.models.order import with_inputs

#: Values of one input that may be computed at an edge as well as at its end.
_UNARY = (ir.Linear, ir.Activation, ir.PReLU, ir.Affine, ir.LayerNorm, ir.L2Normalize, ir.Softmax, ir.LogSoftmax)

_OF_SUMS = (edges.ByRelation, edges.AddedLoop)  # values on edges that a Gather alone knows


@dataclass(frozen=True)
class EdgeHead:
    """value: a row-local model of rows of source and target, then attributes, weight and type where they are read."""

    value: ir.Value
    attributes: int
    weighted: bool
    typed: bool


def rows_of_ends(edge_output: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(the rows of vertices that are kept for it, the same values on edges over these rows).

    Raises: ModelError where it reads no vertex, or vertices that have types.
    """
    edge_output = _narrowed(edge_output)
    rows = _ends(edge_output)
    if not rows:
        raise ModelError(
            "[Model] expected an edge output that reads a row of a vertex, got one of attributes alone; compute it "
            "without a graph"
        )
    single = len(rows) == 1 and not isinstance(rows[0], ir.Concat)  # whose parts would pass for rows of ends
    return rows[0] if single else ir.Concat(tuple(rows)), edge_output


def check_edge_output(output: ir.Value, edge_output: ir.Value) -> None:
    """Refuses an edge output whose ends' rows are no parts of `output`. Raises: ModelError."""
    if not edge_output.on_edges or any(isinstance(each, _OF_SUMS) for each in _own(edge_output)):
        raise ModelError("[Model] expected an edge output as one row per edge of one kind, got another; fix the value")
    known = {id(part) for part in _parts(output)}
    if not all(id(x) in known for x in _ends(edge_output)):
        raise ModelError(
            "[Model] expected an edge output over rows of the output, got one over others; make the output with "
            "livegnn.models.edge_level.rows_of_ends"
        )


def head_of(output: ir.Value, edge_output: ir.Value) -> EdgeHead:
    """What an edge's row is computed by, from the output's rows of both ends and what is known of the edge."""
    width = output.width
    own = _own(edge_output)
    attributes = next((each.columns for each in own if isinstance(each, edges.EdgeAttribute)), 0)
    weighted = any(isinstance(each, edges.EdgeWeight) for each in own)
    typed = any(isinstance(each, edges.EdgeRelation) for each in own)
    given = ir.Input(2 * width + attributes + weighted + typed)
    starts: dict[int, int] = {}
    at = 0
    for part in _parts(output):
        starts.setdefault(id(part), at)
        at += part.width
    made: dict[int, ir.Value] = {}
    for value in own:
        if isinstance(value, edges.Source | edges.Target):
            start = starts[id(value.x)] + (width if isinstance(value, edges.Target) else 0)
        elif isinstance(value, edges.EdgeAttribute):
            start = 2 * width
        elif isinstance(value, edges.EdgeWeight):
            start = 2 * width + attributes
        elif isinstance(value, edges.EdgeRelation):
            start = 2 * width + attributes + weighted
        else:
            made[id(value)] = with_inputs(value, [made[id(x)] for x in value.inputs])
            continue
        made[id(value)] = ir.Slice(given, start, start + value.width)
    return EdgeHead(made[id(edge_output)], attributes, weighted, typed)


def _parts(output: ir.Value) -> tuple[ir.Value, ...]:
    """The values whose rows lie side by side in the output's."""
    return output.xs if isinstance(output, ir.Concat) else (output,)


def _ends(edge_output: ir.Value) -> list[ir.Value]:
    """The rows of vertices that are read at edges, each once."""
    own = edges.on_edges([edge_output])
    return [*{id(each.x): each.x for each in own if isinstance(each, edges.Source | edges.Target)}.values()]


def _own(edge_output: ir.Value) -> list[ir.Value]:
    """Its values on edges, each after its inputs; not those of a sum that it reads."""
    own = {id(each) for each in edges.on_edges([edge_output])}
    return [each for each in ir.walk(edge_output) if id(each) in own]


def _narrowed(edge_output: ir.Value) -> ir.Value:
    """The same, with steps over one row taken from the vertices to the edges where less is then kept of a vertex.

    W x[u] + V x[v] needs W x and V x of a vertex, or x alone.
    """
    ends = _ends(edge_output)
    above: dict[int, dict[int, ir.Value]] = {}
    for x in ends:
        for each in _chain(x):
            above.setdefault(id(each), {})[id(x)] = x
    bases: dict[int, ir.Value] = {}
    for x in ends:
        best = min(_chain(x), key=lambda each: each.width / len(above[id(each)]) - (each is x) * 1e-9)
        if best.width < sum(each.width for each in above[id(best)].values()):
            bases |= {key: best for key in above[id(best)] if key not in bases}
    return _lowered(edge_output, bases)


def _chain(x: ir.Value) -> list[ir.Value]:
    """`x`, and what it is computed from one step after the other."""
    found = [x]
    while isinstance(found[-1], _UNARY):
        found.append(found[-1].x)
    return found


def _lowered(edge_output: ir.Value, bases: dict[int, ir.Value]) -> ir.Value:
    """The edge output with every end that has a base read there."""
    made: dict[int, ir.Value] = {}
    shared: dict[tuple[int, type], ir.Value] = {}

    def at(take: type[edges.Source] | type[edges.Target], x: ir.Value, base: ir.Value) -> ir.Value:
        key = (id(x), take)
        if key not in shared:
            shared[key] = take(x) if x is base else with_inputs(x, [at(take, x.inputs[0], base)])
        return shared[key]

    for each in _own(edge_output):
        if isinstance(each, edges.Source | edges.Target):
            base = bases.get(id(each.x))
            made[id(each)] = each if base is None else at(type(each), each.x, base)
        else:
            made[id(each)] = with_inputs(each, [made[id(x)] for x in each.inputs])
    return made[id(edge_output)]
