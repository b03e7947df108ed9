"""Payments with amounts: samples that carry what their edges carry, exact after every correction.

Accounts pay shops. A query samples the latest payments of an account; each comes with its amount and its time. When the
bank corrects an amount, the next sample has the new one.
"""

import numpy as np

import livegnn as lg

paid = ("account", "paid", "shop")
graph = lg.Graph(
    {"account": np.eye(2, dtype=np.float32), "shop": np.ones((3, 1), np.float32)},
    {paid: ["ada", "ada", "ben"]},
    {paid: ["bakery", "garage", "bakery"]},
    time={paid: [1, 2, 3]},
    edge_attr={paid: [[4.50], [900.00], [3.20]]},
    ids={"account": ["ada", "ben"], "shop": ["bakery", "garage", "kiosk"]},
)
latest = lg.query("account").out("paid").sample(2, by="top_k")
sampler = lg.PreSampler(graph, latest, edge_data=True)


def show(title: str) -> None:
    sample = sampler.sample(["ada", "ben"])
    print(f"{title} (version {sample.version})")
    for account, shops, amounts, times in zip(
        sample.seeds, sample.hop(1), sample.edge_attr(1)[..., 0], sample.edge_time(1), strict=True
    ):
        payments = [
            f"{amount:.2f} at the {shop} (day {day})"
            for shop, amount, day in zip(shops, amounts, times, strict=True)
            if shop is not None
        ]
        print(f"  {account}: {', '.join(payments)}")


show("At first")

updates = lg.Updates()
updates.set_edge_attr("ada", "garage", [90.00], edge_type="paid")  # a decimal point was lost
updates.add_edge("ben", "kiosk", edge_type="paid", time=4, edge_attr=[12.00])
sampler.apply(updates)
show("After a correction and a payment")

sampler.verify()  # every sample, feature and amount against a scan of the graph
data = sampler.sample(["ada", "ben"]).to_pyg()
print("For PyTorch Geometric:", data["shop", "rev_paid", "account"].edge_attr.flatten().tolist())
