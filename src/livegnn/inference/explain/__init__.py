"""What live outputs are made of: shares of in-neighbours, and what moved them last."""
