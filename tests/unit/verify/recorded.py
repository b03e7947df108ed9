"""Answers of language models, as they came: with and without fences and words around, right and wrong."""

GCN_GOOD = """\
The degree of the destination is a count over its in-edges, so it becomes the context:

```python
def msg_local(degree_u):
    return 1 / np.sqrt(np.maximum(degree_u, 1))

nbr_ctx = "count"

def msg_cbn(nct, mlc):
    return mlc / np.sqrt(nct)

def msg_cbn_inverse(nct, msg):
    return msg * np.sqrt(nct)

aggregate = "sum"

def source_nn(h_u):
    return h_u

def transform(a):
    return relu(a @ W)
```

This satisfies all six rules."""

# divides the wrong way round, as the listing of the paper does
GCN_REVERSED = GCN_GOOD.replace("return mlc / np.sqrt(nct)", "return np.sqrt(nct) / mlc")

# computes the formula, and keeps a mean where a sum and a count belong
SAGE_MEAN = """\
```python
aggregate = "mean"
source_nn = lambda h_u: h_u
transform = lambda a: relu(a @ W)
```"""

SAGE_GOOD = """\
nbr_ctx = lambda mlc: np.ones_like(mlc[:, :1]).sum(axis=0)
msg_cbn = lambda nct, mlc: mlc / nct
msg_cbn_inverse = lambda nct, msg: msg * nct
source_nn = lambda h_u: h_u
transform = lambda a: relu(a @ W)
"""

# computes something else than the formula, which no condition of the theorem would notice
SAGE_SUM = """\
```
def source_nn(h_u): return h_u
def transform(a): return relu(a @ W)
```"""

# forgets that a sum of rectified scores may be 0
GATED_UNGUARDED = """\
```python
def msg_local(h_u): return relu(h_u @ s)
nbr_ctx = "sum"
def msg_cbn(nct, mlc): return mlc / nct
def msg_cbn_inverse(nct, msg): return msg * nct
def source_nn(h_u): return h_u
```"""

GATED_GOOD = """\
```python
def msg_local(h_u): return relu(h_u @ s)
nbr_ctx = "sum"
def msg_cbn(nct, mlc): return where(nct > 0, mlc / where(nct > 0, nct, 1), 0)
def msg_cbn_inverse(nct, msg): return where(nct > 0, msg * nct, 0)
def source_nn(h_u): return h_u
```"""

# a needless dependence on the destination: exp(x + y) / sum of exp(x + y) is free of y
SEPARABLE_CONSTRAINED = """\
```python
def msg_local(h_u, h_v): return exp(h_u @ s + h_v @ t)
nbr_ctx = "sum"
def msg_cbn(nct, mlc): return mlc / nct
def msg_cbn_inverse(nct, msg): return msg * nct
def source_nn(h_u): return h_u
```"""

SEPARABLE_GOOD = """\
```python
def msg_local(h_u): return exp(h_u @ s)
nbr_ctx = "sum"
def msg_cbn(nct, mlc): return mlc / nct
def msg_cbn_inverse(nct, msg): return msg * nct
def source_nn(h_u): return h_u
```"""

HOSTILE = """\
```python
import os
def msg_local(h_u):
    os.system("echo gotcha")
    return h_u
```"""

REFUSAL = "I'm sorry, but I can't help with that."
