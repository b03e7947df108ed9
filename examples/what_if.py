"""Scoring a payment before it is let through: what would the model say if it were in the graph?"""

import numpy as np

import livegnn as lg

random = np.random.default_rng(3)
accounts, width = 500, 8
x = random.normal(size=(accounts, width)).astype(np.float32)
src, dst = random.integers(0, accounts, 2_000), random.integers(0, accounts, 2_000)


def matrix(rows: int, columns: int) -> np.ndarray:
    return (random.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)


model = lg.Model(  # random weights stand for a trained model
    [
        lg.layers.GCN(matrix(16, width), activation="relu"),
        lg.layers.GCN(matrix(16, 16), activation="relu"),
        lg.layers.Dense(matrix(1, 16)),
    ]
)
engine = lg.Engine(model, lg.Graph(x, src, dst))
before = engine.state_digest()
limit = 0.02  # a payment may not move the receiver's risk by more

accepted = 0
for payer, receiver in random.integers(0, accounts, (20, 2)).tolist():
    payment = lg.Updates()
    payment.add_edge(payer, receiver)
    risk_now = float(engine.predict([receiver])[0])
    with engine.what_if(payment) as view:
        risk_then = float(view.predict([receiver])[0])
    if abs(risk_then - risk_now) <= limit:
        accepted += 1
    else:
        print(f"held: {payer} -> {receiver} would move the risk from {risk_now:.2f} to {risk_then:.2f}")

print(f"{accepted} of 20 payments would pass")
print("state untouched:", engine.state_digest() == before)
