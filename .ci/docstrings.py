"""Docstrings in the house style as Markdown, for the reference of the documentation site.

A docstring has a first sentence, perhaps a formula and some text, and then labelled sections: `Args:`, `Returns:`,
`Raises:`, `Exactness:`, `Cost:`, `Source:`. Arguments follow each other as `name: words`.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator

LABEL = re.compile(r"(Args|Returns|Raises|Exactness|Cost|Source|Yields|Strategy|Invariants?):\s+", re.MULTILINE)
FORMULA = re.compile(r"[\w\[\](),.^' +*/-]+( = | -> )")
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md")
SPECIAL = re.compile(r"([\\*_\[\]<>])")


def escaped(text: str) -> str:
    """Prose without Markdown's signs, but for what stands in backquotes; pages become links."""
    parts = re.split(r"(`[^`]+`)", text)
    plain = [part if part.startswith("`") else SPECIAL.sub(r"\\\1", part) for part in parts]
    return PAGE.sub(r"[\1](../docs/\1.md)", "".join(plain))


def items(text: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """`name: words` one after another, names being among `names`; what stands before the first has no name."""
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or r"(?!)"
    head = re.compile(rf"(?:^|(?<=\n)|(?<=\. )|(?<=\s\s)|(?<=\.\n))\s*((?:{known})(?:, (?:{known}))*):\s+")
    parts = head.split(text)
    found = [("", parts[0])] if parts[0].strip() else []
    found += zip(parts[1::2], parts[2::2], strict=True)
    return [(name, " ".join(words.split())) for name, words in found]


def listed(text: str, names: Iterable[str]) -> str:
    """Items as a list with the names as code; prose as it is."""
    lines = []
    for name, words in items(text, names):
        code = ", ".join(f"`{one}`" for one in name.split(", ")) if name else ""
        lines.append(f"- {code}: {escaped(words)}" if name else f"{escaped(words)}\n")
    return "\n".join(lines).rstrip()


def section(label: str, text: str, names: Iterable[str]) -> str:
    body = listed(text, names) if label == "Args" else escaped(" ".join(text.split()))
    return f"**{label}**\n\n{body}" if body.startswith("- ") else f"**{label}**  {body}"


def prose(block: str, names: Iterable[str]) -> str:
    """One paragraph: a program, a formula, named items or words."""
    if block.lstrip().startswith(">>>") or all(line.startswith("    ") for line in block.splitlines()):
        return f"```python\n{textwrap.dedent(block)}\n```"
    if FORMULA.match(block):
        return f"```text\n{block}\n```"
    return listed(block, names)


def blocks(docstring: str) -> Iterator[str]:
    """Paragraphs; a program is one of its own also where it follows words without a blank line."""
    for block in re.split(r"\n\s*\n", docstring.strip("\n")):
        words, mark, program = block.partition("\n>>> ")
        if block.startswith(">>> ") or not mark:
            yield block
        else:
            yield from (words, f">>> {program}")


def begins(block: str, label: re.Match[str]) -> bool:
    """Whether the label begins a section: at the left margin, or behind a sentence or another section."""
    before = block[: label.start()]
    return not before or before.endswith(("\n", "  ", ". "))


def markdown(docstring: str, names: Iterable[str] = ()) -> str:
    """The docstring as Markdown; `names` are those of its arguments or fields."""
    parts = []
    for block in blocks(docstring):
        starts = [one for one in LABEL.finditer(block) if begins(block, one)]
        if not starts:
            parts.append(prose(block, names))
            continue
        if block[: starts[0].start()].strip():
            parts.append(prose(block[: starts[0].start()].rstrip(), names))
        ends = [one.start() for one in starts[1:]] + [len(block)]
        parts += [section(one[1], block[one.end() : end], names) for one, end in zip(starts, ends, strict=True)]
    return "\n\n".join(parts)
