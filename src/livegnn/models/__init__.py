"""A graph neural network as data: values (`ir`), layer specs (`layers`), `Model`, and import from PyG (`pyg`)."""
