"""`livegnn models`: what a registry holds, and adding a version to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from livegnn.cli.console import Console
from livegnn.deployment.model_files import CLASS_FILE, OWN_FILE, PICKLE_FILE, check_sums, read_model
from livegnn.deployment.registry import ModelKey, Registry
from livegnn.errors import LiveGnnError, UsageError
from livegnn.models.model import Model


def add_models(parser: argparse.ArgumentParser) -> None:
    """Declares `livegnn models add` and `livegnn models list`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    adding = actions.add_parser("add", help="add a file's model as the next version of a name")
    adding.add_argument("name", metavar="NAME")
    kinds = "model.toml with weights next to it, .pt2, .pt, or what Model.save wrote"
    adding.add_argument("file", type=Path, metavar="FILE", help=kinds)
    adding.add_argument("--trust-pickle", action="store_true", help="read .pt and .pt2, which may run code of the file")
    listing = actions.add_parser("list", help="the models of a registry, each compared with its checksum")
    for each in (adding, listing):
        each.add_argument("--models", type=Path, default=Path("models"), metavar="DIR", help="default: models")


def run_models(options: argparse.Namespace, console: Console) -> int:
    """Adds, or lists; 0, or 1 where a listed model is damaged."""
    registry = Registry(options.models)
    if options.action == "add":
        key = registry.add(options.name, read_model(options.file, trust_pickle=options.trust_pickle))
        console.good(f"{key}: {registry.load(key)}")
        return 0
    if not options.models.is_dir():
        raise UsageError(f"[models] expected a registry's folder at {options.models}, got none; name it by --models")
    rows = [
        (str(key := ModelKey(name, version)), *_seen(registry, key))
        for name, versions in registry.versions().items()
        for version in versions
    ]
    console.table(("model", "file", "state"), rows)
    return int(any(state != "sound" for _, _, state in rows))


def _seen(registry: Registry, key: ModelKey) -> tuple[str, str]:
    """The file of a model, and what its checksum says."""
    place = registry.place(key)
    form = next(form for form in (OWN_FILE, CLASS_FILE, PICKLE_FILE) if (place / form).is_file())
    try:
        if form == OWN_FILE:
            Model.load(place / form)
        else:
            check_sums(place)
    except LiveGnnError as fault:
        return form, str(fault)
    return form, "sound"
