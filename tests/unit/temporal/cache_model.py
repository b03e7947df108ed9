"""A feature cache as docs/feature-cache.md defines it (a dict, sorted whenever a row has to go); a source for one."""

from dataclasses import dataclass


@dataclass
class Entry:
    uses: int
    used: int  # when it was used last; larger is later
    came: int


class ModelCache:
    """Which ids are cached, and in which order they would go."""

    def __init__(self, policy, capacity, max_replace):
        self.policy, self.capacity, self.max_replace = policy, capacity, max_replace
        self.entries, self.now = {}, 0

    def key(self, given):
        entry = self.entries[given]
        return {"lru": (entry.used,), "lfu": (entry.uses, entry.used)}.get(self.policy, (entry.came,))

    def order(self):
        return sorted(self.entries, key=self.key)

    def contents(self):
        return [(given, self.entries[given].uses) for given in self.order()]

    def fetch(self, ids):
        """Returns how many ids, repeats counted, were hits."""
        found = sum(given in self.entries for given in ids)
        asked = list(dict.fromkeys(ids))
        hits = [given for given in asked if given in self.entries]
        missed = [given for given in asked if given not in self.entries]
        for given in hits:
            self.now += 1
            self.entries[given].uses += 1
            self.entries[given].used = self.now
        limit = 0 if self.policy == "static" else max(1, int(self.max_replace * self.capacity))
        count = min(limit, len(missed), self.capacity - len(hits))
        going = max(0, count - (self.capacity - len(self.entries)))
        for given in [given for given in self.order() if given not in hits][:going]:
            del self.entries[given]
        for given in missed[:count]:
            self.put(given, 1)
        return found

    def put(self, given, uses):
        self.now += 1
        self.entries[given] = Entry(uses, self.now, self.now)

    def drop(self, ids):
        for given in ids:
            self.entries.pop(given, None)

    def install(self, contents):
        """The last of them that there is room for, in that order."""
        self.entries = {}
        for given, uses in contents[-self.capacity :]:
            self.put(given, uses)

    def resize(self, capacity):
        contents, self.capacity = self.contents(), capacity
        self.install(contents)


class Remote:
    """A source elsewhere: counts what is asked of it, and fails when told to."""

    def __init__(self, rows):
        self.table, self.asked, self.broken = rows, [], False
        self.row_width, self.dtype = rows.shape[1], rows.dtype

    @property
    def row_count(self):
        return len(self.table)

    def rows(self, ids):
        if self.broken:
            raise OSError("no answer")
        self.asked.append(ids.tolist())
        return self.table[ids]
