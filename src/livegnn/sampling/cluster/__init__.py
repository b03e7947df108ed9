"""Sampling and serving workers: state machines over logs, in one process or in many."""
