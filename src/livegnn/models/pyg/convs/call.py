"""One call of a convolution, as all families of convolutions read it, and the entry of the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from livegnn.models import ir, layers
from livegnn.models.edges import EdgeAttribute, Loops
from livegnn.models.messages import linear
from livegnn.models.pyg.context import Import, Rewired, refuse, to_array
from livegnn.models.pyg.convs.aggregation import Aggregator, refuse_aggregation, simple_name
from livegnn.models.pyg.convs.rewired import rewired_sum

Run: TypeAlias = Callable[[Any, str, ir.Value], Any]  # reads a row-local module, such as GINConv's nn

Exactness: TypeAlias = Literal["bit-exact", "exact to float32", "bit-exact or exact to float32"]

BIT_EXACT: Exactness = "bit-exact"  # sums, means, extremes along edges, attention that separates
TO_FLOAT32: Exactness = "exact to float32"  # messages are computed edge by edge and gathered
BY_OPTION: Exactness = "bit-exact or exact to float32"  # the text says which option needs messages edge by edge


@dataclass(frozen=True)
class Call:
    """What a convolution is given.

    x, own: the sources' and the targets' rows, the same unless edges join two types of vertices.
    weight: of the edges, the graph's or computed.   attributes: rows of edges, or None.   types: the graph's types.
    others: its other arguments.   name, where: the module's qualified name alone, and with its type.
    run: reads a row-local module inside it.   rewired: self-loops and degrees that the forward has changed, and this
    layer's sums heed.
    """

    conv: Any
    x: ir.Value
    own: ir.Value
    weight: ir.Value | None
    attributes: ir.Value | None
    types: bool
    others: dict[str, Any]
    name: str
    where: str
    run: Run
    record: Import
    rewired: Rewired | None = None

    @property
    def aggregate(self) -> layers.Aggregate:
        """The name of a simple aggregation. Raises: ModelUnsupported for another."""
        name = simple_name(self.conv.aggr_module)
        if name is None:
            raise refuse_aggregation(self.conv.aggr_module, self.conv.aggr, self.where)
        return name

    def gather(self, message: ir.Value, *, weight: ir.Value | None = None, relation: int | None = None) -> ir.Value:
        """`message`, rows of sources or of edges, by the convolution's own aggregation."""
        if self.rewired is not None:
            aggregate = simple_name(self.conv.aggr_module)
            return rewired_sum(self.conv, message, self.rewired, aggregate, self.where, self.record)
        return self.aggregator(message, weight=weight, relation=relation).of(self.conv.aggr_module)

    def aggregator(
        self,
        message: ir.Value,
        *,
        weight: ir.Value | None = None,
        relation: int | None = None,
        loops: Loops = "keep",
    ) -> Aggregator:
        return Aggregator(message, self.x, self.record, self.where, weight, relation, loops, self.conv.aggr)

    def sum_only(self, what: str) -> None:
        """Refuses any aggregation but the sum."""
        if self.aggregate != "sum":
            raise refuse(
                self.where, f"{what} with aggr={self.conv.aggr!r} is not supported", "train it with aggr='add'"
            )

    def attributes_only_if(self, wanted: bool, what: str) -> None:
        """Refuses attributes where they are not wanted, and a call without where they are."""
        if (self.attributes is not None) != wanted:
            raise refuse(self.where, f"it needs edge_attr if {what}, and only then", "fix the call")

    def needed_attributes(self) -> ir.Value:
        """The attributes of a layer that cannot do without. Raises: ModelUnsupported."""
        if self.attributes is None:
            raise refuse(self.where, "it is not given the edge_attr that it reads", "pass edge_attr")
        return self.attributes

    def first_rows(self) -> ir.Value:
        """The argument x_0. Raises: ModelUnsupported."""
        x_0 = self.others.get("x_0")
        if not isinstance(x_0, ir.Value) or x_0.on_edges:
            raise refuse(self.where, "its x_0 is not one row per vertex", "pass the first layer's rows")
        return x_0

    @property
    def loops(self) -> Loops:
        """What becomes of self-loop edges by the convolution's add_self_loops."""
        return "replace" if self.conv.add_self_loops else "keep"

    def raw_attributes(self) -> bool:
        """Whether the attributes are the graph's own, not computed inside the model."""
        return isinstance(self.attributes, EdgeAttribute)

    def inner(self, name: str, x: ir.Value) -> ir.Value:
        """A row-local module, or function, that the convolution keeps as `name`."""
        module = self.conv
        for part in name.split("."):
            module = getattr(module, part)
        result: ir.Value = self.run(module, f"{self.name}.{name}" if self.name else name, x)
        return result


@dataclass(frozen=True)
class Conv:
    """How one type of convolution is read, and what docs/models.md says of it.

    takes: names of arguments beyond x, edge_index, edge_weight, edge_attr, edge_type and size.
    turns: whether flow="target_to_source" is the layer along edges that are turned round, as it is of most.
    vectors: whether edge attributes may be a vector, one number per edge.
    """

    convert: Callable[[Any, Call], Any]
    how: str
    exactness: Exactness = BIT_EXACT
    takes: tuple[str, ...] = ()
    vectors: bool = False
    turns: bool = True


def dense(module: Any, x: ir.Value) -> ir.Value:
    """A torch or PyG Linear of `x`."""
    return linear(x, to_array(module.weight), to_array(module.bias))


def added(*values: ir.Value) -> ir.Combine:
    """The sum of `values`."""
    return ir.Combine(tuple((1.0, value) for value in values))


def side_by_side(parts: Sequence[ir.Value]) -> ir.Value:
    """The columns of all parts; one part as it is."""
    return parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))
