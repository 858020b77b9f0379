"""What in an answer is chance? Paths, ports, process ids and the like differ from run to run.

Refuses to know how answers are kept or compared.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable

import msgspec

from adapters.answer import Answer, Crashed, End, Hung, Observed, Refused, Unsupported
from cases.model import Foreign


def _path(found: re.Match[str]) -> str:
    # The name of a source file is kept; that of a temporary file is chance.
    path = found[0]
    chance = path.startswith((tempfile.gettempdir(), "/tmp", "/dev", "/proc", "/run", "/var"))
    name = path.rpartition("/")[2]
    return f"<path>/{name}" if "." in name and not chance else "<path>"


_SIGNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # At least two components; not inside a URL, a fraction or a name.
    (re.compile(r"(?<![\w.:/)>])(?:/[\w.+@~-]+){2,}"), _path),
    (re.compile(r"\b0x[0-9a-fA-F]{4,}"), "<address>"),
    (re.compile(r"\[?\b(?:\d{1,3}\.){3}\d{1,3}\b\]?(?::\d+)?"), "<host>"),
    (re.compile(r"\[?\blocalhost\]?:\d+"), "<host>"),
    (re.compile(r"\[[\w.:%-]+\]:\d{4,5}\b"), "<host>"),
    (re.compile(r"(?i)\b(port|pid|process|thread)([ =:#]+)\d+"), r"\1\2<n>"),
    (re.compile(r"(\[[Rr]ank ?|\bRank |\brank[=:] ?)\d+"), r"\1<n>"),
    (re.compile(r"\b(on|from|to|by|with|for|at|of peer) rank \d+"), r"\1 rank <n>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"), "<time>"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(ms|milliseconds)\b"), r"<n> \1"),
    # An object's id in decimal.
    (re.compile(r"\b\d{12,}\b"), "<n>"),
)


def scrub_answer(answer: Answer) -> Answer:
    """The answer without what differs from one run to the next.

    Stacks, the number of the rank that died first, and what a dead process printed are left out. In
    a framework's message, signs replace paths, addresses, ports, process ids, object ids, ranks and
    times.
    """
    end: End
    match answer.end:
        case Refused(error, line, step):
            end = Refused(error, scrub_text(line), step)
        case Crashed(how):
            end = Crashed(scrub_text(how))
        case Hung(why, step, raised):
            end = Hung(scrub_text(why), step, scrub_text(raised))
        case Unsupported(why, step):
            end = Unsupported(scrub_text(why), step)
        case done:
            end = done
    return msgspec.structs.replace(
        answer,
        end=end,
        seen=tuple(map(_scrub_tensor, answer.seen)),
        complaints=tuple(map(scrub_text, answer.complaints)),
        apart=tuple(map(scrub_text, answer.apart)),
    )


def _scrub_tensor(seen: Observed) -> Observed:
    layout = seen.layout
    return msgspec.structs.replace(
        seen,
        layout=Foreign(scrub_text(layout.text)) if isinstance(layout, Foreign) else layout,
        disagreements=tuple(map(scrub_text, seen.disagreements)),
        note=scrub_text(seen.note),
    )


def scrub_text(said: str) -> str:
    """A text with signs such as ``<n>`` for what is chance; again changes nothing."""
    for pattern, sign in _SIGNS:
        said = pattern.sub(sign, said)
    return said
