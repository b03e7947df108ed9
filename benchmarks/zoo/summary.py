"""The zoo's results as Markdown: counts, one row per class, refusals and impossible ones by reason."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.report import Report
from benchmarks.zoo.entries import Entry

_EXPECTED = "[from_pyg] expected a model that can be kept exact, got "


@dataclass(frozen=True)
class Result:
    """What became of one entry."""

    entry: Entry
    verdict: str
    reason: str

    @property
    def outcome(self) -> str:
        """A refusal of what no engine could keep is right, and no miss."""
        return "impossible" if self.verdict == "refused" and self.entry.expected == "impossible" else self.verdict


def write(report: Report, results: list[Result], missing: list[str], command: str, machine: str) -> None:
    report.title("Public network classes: what from_pyg takes unchanged", f"LIVEGNN_ZOO=... {command}", machine)
    counts = dict.fromkeys(("imported", "refused", "impossible", "wrong", "crash", "unfit"), 0)
    for each in results:
        counts[each.outcome] += 1
    possible = counts["imported"] + counts["refused"] + counts["wrong"] + counts["crash"]
    repositories = {each.entry.repository for each in results}
    report.line(f"\n{len(results)} classes of {len(repositories)} repositories.")
    if missing:
        report.line(f"Checkouts that are missing: {', '.join(missing)}.")
    report.heading("Counts")
    report.columns(["imported and right", "refused", "wrong", "crashes", "impossible", "share of what is possible"])
    share = f"{100 * counts['imported'] / possible:.0f} %" if possible else "-"
    report.row([*(counts[name] for name in ("imported", "refused", "wrong", "crash", "impossible")), share])
    if counts["unfit"]:
        report.line(f"\n{counts['unfit']} more do not run with this PyG, or by themselves, and are not counted.")
    _reasons(report, [each for each in results if each.outcome == "refused"])
    for outcome, heading in (
        ("wrong", "Wrong"),
        ("crash", "Crashes"),
        ("refused", "Refused, though they could be kept exact"),
        ("impossible", "Impossible"),
        ("imported", "Imported and right"),
        ("unfit", "Not runnable"),
    ):
        _table(report, [each for each in results if each.outcome == outcome], heading)


def _reasons(report: Report, refused: list[Result]) -> None:
    """Refusals by what is wrong, the most frequent first; the layer's name is left out."""
    by_reason: dict[str, list[str]] = {}
    for each in refused:
        text = each.reason.replace(_EXPECTED, "").partition(";")[0]
        where, _, reason = text.partition(": ")
        operation = where.split(" in ")[0] + ": " if " in " in where else ""
        by_reason.setdefault(operation + (reason or where), []).append(each.entry.name)
    if not by_reason:
        return
    report.heading("Refusals by reason")
    report.columns(["classes", "reason", "which"])
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        report.row([len(names), _escaped(reason), ", ".join(sorted(names))])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _table(report: Report, results: list[Result], heading: str) -> None:
    if not results:
        return
    report.heading(heading)
    report.columns(["repository", "class", "what from_pyg says"])
    for each in results:
        why = f" Why no engine can: {each.entry.why}." if each.outcome == "impossible" else ""
        said = _escaped(each.reason.replace(_EXPECTED, ""))
        report.row([each.entry.repository, f"{each.entry.file}:{each.entry.name}", said + why])
