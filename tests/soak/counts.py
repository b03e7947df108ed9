"""What slices did: totals by name, and which families, options and formats were covered."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import Any


class Counts:
    """Safe to add to from several threads."""

    def __init__(self, stored: dict[str, Any] | None = None) -> None:
        stored = stored or {"totals": {}, "covered": {}}
        self._lock = threading.Lock()
        self.totals: Counter[str] = Counter(stored["totals"])
        self.covered: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for kind, names in stored["covered"].items():
            self.covered[kind].update(names)

    def add(self, name: str, count: int = 1) -> None:
        """So many more of these were done."""
        with self._lock:
            self.totals[name] += count

    def cover(self, kind: str, *names: object) -> None:
        """These members of a kind (a family, an option ...) took part."""
        with self._lock:
            self.covered[kind].update(str(name) for name in names)

    def merge(self, other: Counts) -> None:
        """Adds what another one counted."""
        with self._lock:
            self.totals.update(other.totals)
            for kind, names in other.covered.items():
                self.covered[kind].update(names)

    def stored(self) -> dict[str, Any]:
        """As JSON takes it."""
        with self._lock:
            return {"totals": dict(self.totals), "covered": {kind: dict(names) for kind, names in self.covered.items()}}
