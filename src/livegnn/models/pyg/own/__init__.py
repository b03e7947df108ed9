"""Users' own subclasses of MessagePassing: their forward is run on a small graph and followed, step by step."""
