"""Import from PyTorch Geometric: `entry` reads a module, `convs` and `hetero` its layers."""
