"""RIPPLE with NumPy, as the paper's own implementation: sorted mailboxes, BLAS transforms.

Segment sums go through SciPy's CSR times dense kernel (a row of scaled additions each), which beats add.reduceat and
add.at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from benchmarks.engine.networks import Network, layer_weights
from benchmarks.engine.stream import Workload
from benchmarks.peers.bootstrap import State, bootstrap, copied
from benchmarks.peers.ripple import Bags, Int64, Ripple

Floats = npt.NDArray[np.float32]
SMALL_BAGS = 64  # messages up to which reduceat's short call path wins


class RippleNumpy(Ripple):
    """rows[k] embeddings (rows[0] the features), sums[k] aggregates of rows[k]."""

    name = "RIPPLE (numpy)"

    def __init__(self, workload: Workload, kind: str, module: Network, state: State | None = None) -> None:
        super().__init__(workload, kind)
        state = bootstrap(workload, kind, module) if state is None else state
        self.rows: list[Floats] = [rows.numpy() for rows in copied(state.rows)]
        self.sums: list[Floats] = [sums.numpy() for sums in copied(state.sums)]
        self.layers = [
            tuple(None if t is None else t.numpy() for t in (w.neighbour, w.self_term, w.bias, w.second, w.second_bias))
            for w in layer_weights(kind, module)
        ]
        self.layer_count = len(self.layers)

    def take(self, k: int, vertices: Int64, positive: int) -> Floats:
        rows = self.rows[k][vertices]
        np.negative(rows[positive:], out=rows[positive:])
        return rows

    def replace_features(self, vertices: Int64, rows: Floats) -> Floats:
        delta = rows - self.rows[0][vertices]
        self.rows[0][vertices] = rows
        return delta

    def stack(self, delta: Floats, posted: Floats) -> Floats:
        return np.concatenate([delta, posted, np.zeros((1, posted.shape[1]), np.float32)])

    def sum_bags(self, bags: Bags, rows: Floats) -> Floats:
        if len(bags.row) <= SMALL_BAGS:
            return np.add.reduceat(rows[bags.row], bags.offset, axis=0)  # type: ignore[no-any-return]
        pointers = np.append(bags.offset, len(bags.row))
        ones = np.ones(len(bags.row), np.float32)
        matrix = csr_array((ones, bags.row, pointers), shape=(len(bags.offset), len(rows)))
        return matrix @ rows  # type: ignore[no-any-return]

    def deliver(self, k: int, vertices: Int64, mail: Floats) -> Floats:
        neighbour, self_term, bias, second, second_bias = self.layers[k]
        mail += self.sums[k][vertices]
        self.sums[k][vertices] = mail
        if self.kind == "sage":
            mail /= np.maximum(self.in_degree[vertices], 1).astype(np.float32)[:, None]
        z = mail @ neighbour
        z += self.rows[k][vertices] @ self_term
        z += bias
        if second is not None:
            np.maximum(z, 0, out=z)
            z = z @ second
            z += second_bias
        if k + 1 < self.layer_count:
            np.maximum(z, 0, out=z)
        delta = z - self.rows[k + 1][vertices]
        self.rows[k + 1][vertices] = z
        return delta  # type: ignore[no-any-return]

    def output(self, ids: npt.NDArray[np.int64]) -> Floats:
        return self.rows[-1][ids]

    def state_bytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows + self.sums)
