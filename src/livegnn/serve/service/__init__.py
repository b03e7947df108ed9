"""HTTP in front of a deployment: routes, access, metrics. Needs Litestar (the extra serve)."""
