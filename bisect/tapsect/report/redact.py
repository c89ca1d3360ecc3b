"""Private names become hashes, the same everywhere: in texts, settings, models and values.

Private are the names of tensors and nodes, of dimensions and functions of the user's, paths, and
this machine's host and user.  Operators, versions, hardware and numbers stay: they are what the
report is about.  A hash is keyed by the digest of the model, so that who has not the model cannot
try names against it.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import re
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from tapsect.escape import LONGEST, clean
from tapsect.finding import Divergence, Finding
from tapsect.folder import CASE
from tapsect.report.ownrun import CaseFacts
from tapsect.report.words import CAUSES, EVIDENCE, EXPORT_EVIDENCE, FAILURES
from tapsect.traced import Profile

__all__ = ["Names"]

_KEPT_KEYS = frozenset(
    {"schema", "status", "failure", "cause", "evidence", "tool_version", "values", "op_type",
     "packages", "versions", "ops"}
)  # fmt: skip
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:[\\/]|~?/)[^\s'\"`,;:()\[\]]*\w[^\s'\"`,;:()\[\]]*")
_END = re.compile(r"[\w/.:\-]{4,}$")
_PLAIN_WORDS = frozenset(
    ["tapsect", "bisect", "tap", "taps", "tapped", "input", "inputs", "output", "outputs", "model"]
)


def _spoken() -> frozenset[str]:
    """Returns the words that the reports themselves speak in."""
    told = [f"{w.title} {w.meaning} {w.advice}" for w in CAUSES.values()]
    told.append(EXPORT_EVIDENCE)
    said = " ".join((*told, *FAILURES, *FAILURES.values(), *EVIDENCE, *EVIDENCE.values()))
    return _PLAIN_WORDS | frozenset(re.findall(r"\w+", said))


@dataclass(frozen=True, slots=True)
class Names:
    """What is private in one result, and what stands for it.

    Attributes:
        key: Of the hashes.
        known: Names and other private words.
        parts: Those of them that are parts of paths: plain words, as code has them, too.
        ops: Operators, which are not private, also where a node is called by its operator.
    """

    key: bytes
    known: frozenset[str]
    ops: frozenset[str]
    parts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, finding: Finding, profile: Profile | None, folder: Path) -> Names:
        """Returns the names of a result: those it tells, those of its profile and of its case."""
        paths = set(_paths(finding))
        parts = {p for path in paths for p in re.split(r"[\\/=,:]", path) if len(p) >= 3}
        found = {*_told(finding), *paths, *_persons()}
        told = finding.signature.get("ops")
        ops = {str(op) for op in told} if isinstance(told, list | tuple) else set()
        if finding.first_divergence is not None:
            ops.add(finding.first_divergence.op_type)
        if profile is not None:
            found |= {o.name for o in profile.operators} | {p.tensor for p in profile.points}
            found |= set(profile.inputs)
            ops |= {o.op for o in profile.operators}
        if (folder / CASE).is_dir():
            from tapsect.report.redact_model import names_of_case

            names, operators = names_of_case(folder / CASE)
            found, ops = found | names, ops | operators
        key = str(finding.model.get("sha256", "")).encode()
        return cls(key, frozenset((found | parts) - {""}), frozenset(ops), frozenset(parts - found))

    def name(self, name: str) -> str:
        """Returns what stands for one name; nothing for nothing."""
        if not name:
            return name
        told = name.encode("utf-8", "surrogatepass")
        return "r" + hmac.new(self.key, told, hashlib.sha256).hexdigest()[:10]

    def path(self, path: str) -> str:
        """Returns what stands for a path: its hash, and what kind of file it is."""
        suffix = PurePath(path).suffix
        return self.name(path) + (suffix if re.fullmatch(r"\.\w{1,5}", suffix) else "")

    def text(self, text: str) -> str:
        """Returns a text without private names, whole ones and one that its end cuts off."""
        if text in self.known:
            return self.path(text) if "/" in text or "\\" in text else self.name(text)
        if "," in text and all(part.strip() in self.known for part in text.split(",")):
            return ",".join(self.name(part.strip()) for part in text.split(","))
        spelled = _spellings(self.known)
        held = sorted((n for n in spelled if n in text), key=lambda n: (-len(n), n))
        patterns = [self._pattern(name) for name in held]
        if patterns:
            text = re.sub("|".join(patterns), lambda m: self.name(spelled[m.group()]), text)
        text = _PATH.sub(lambda m: self.path(m.group()), text)
        end = _END.search(text)
        if end and self._cut_off(end.group()):
            text = text[: end.start()] + self.name(end.group())
        return text

    def _cut_off(self, word: str) -> bool:
        """Returns whether the last word of a text is the beginning of a name."""
        if word in self.ops or word in _SPOKEN:
            return False
        return any(name.startswith(word) for name in self.known)

    def source(self, text: str) -> str:
        """Returns a program without private names; what is a word of any path stays."""
        return replace(self, known=self.known - self.parts, parts=frozenset()).text(text)

    def _pattern(self, name: str) -> str:
        """Returns where a name counts: anywhere; as a word of its own; or only in quotes."""
        escaped, spoken = re.escape(name), name in self.ops or name in _SPOKEN
        if not spoken and len(name) >= 6 and not name.isalpha():
            return escaped
        if not spoken and len(name) >= 3:
            return rf"(?<!\w){escaped}(?!\w)"
        return rf"(?<=['\"`]){escaped}(?=['\"`])"

    def data(self, value: Any) -> Any:
        """Returns JSON data without private names, in its keys as well."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                (self.name(k) if k in self.known and k not in _SPOKEN else k): (
                    v if k in _KEPT_KEYS else self.data(v)
                )
                for k, v in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value

    def finding(self, finding: Finding) -> Finding:
        """Returns the finding without private names."""
        body = self.data(finding.to_json())
        before = ("", *finding.command)
        body["command"] = [
            self.path(word) if last == "--out" else self._word(word)
            for last, word in zip(before, finding.command, strict=False)
        ]
        body["model"] = {**body["model"], "sha256": self.name("sha256")}
        for there, told in zip(body.get("unseen", ()), finding.unseen, strict=True):
            there["why"] = told.why
        return Finding.from_json(body)

    def _word(self, word: str) -> str:
        """Returns one word of a command line; a file keeps its ending only."""
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            return option + equals + (self._word(value) if value else "")
        key, equals, value = word.partition("=")
        if equals:
            return key + equals + self.text(value)
        looks_like_file = "/" in word or "\\" in word or re.fullmatch(r".+\.[A-Za-z]\w{0,5}", word)
        return self.path(word) if looks_like_file else self.text(word)

    def profile(self, profile: Profile) -> Profile:
        """Returns the profile without private names; its numbers stay."""
        culprit = profile.culprit
        return replace(
            profile,
            operators=tuple(replace(o, name=self.name(o.name)) for o in profile.operators),
            points=tuple(replace(p, tensor=self.name(p.tensor)) for p in profile.points),
            inputs=tuple(map(self.name, profile.inputs)),
            culprit=replace(culprit, tensor=self.name(culprit.tensor)) if culprit else None,
        )

    def case(self, case: CaseFacts) -> CaseFacts:
        """Returns what is known of a case under its new names."""
        return replace(case, inputs=tuple(map(self.name, case.inputs)))


_SPOKEN = _spoken()


@lru_cache(maxsize=8)
def _spellings(known: frozenset[str]) -> dict[str, str]:
    """Returns every way a name is written, and the name: as it is, shown, as JSON, in a shell."""
    ways: dict[str, str] = {}
    for name in sorted(known):
        shown = (clean(name), clean(name, limit=LONGEST), json.dumps(name)[1:-1], repr(name)[1:-1])
        quoted = [shlex.quote(f"{way} ")[1:-2] for way in (name, shown[2])]  # in a shell
        ways.update(dict.fromkeys((*shown, *quoted), name))
    return ways | {name: name for name in known}


def _told(finding: Finding) -> Iterator[str]:
    """Yields the names that a finding tells."""
    yield from (o.name for o in finding.outputs)
    yield from finding.culprit_nodes
    yield from finding.minimal.nodes if finding.minimal is not None else ()
    yield from (t for u in finding.unseen for t in u.tensors)
    first = (finding.first_divergence,) if finding.first_divergence is not None else ()
    for place in (*first, *finding.also, *finding.harmless, *finding.contributors):
        yield from _of_place(place)


def _of_place(place: Divergence) -> Iterable[str]:
    kernel = (place.kernel or "").split("+")
    return (place.tensor, place.node, place.tap or "", place.source or "", *place.nodes, *kernel)


def _paths(finding: Finding) -> Iterator[str]:
    """Yields paths as the command, the model, the engine and the reference name them."""
    yield str(finding.model.get("path", ""))
    for word in finding.command:
        if "/" in word or "\\" in word:
            yield word.rpartition(":")[0] if ".py:" in word else word
    for party in (finding.engine, finding.reference):
        spec = str(party.get("spec", ""))
        if "/" in spec or "\\" in spec or ".py:" in spec:
            yield spec.rpartition(":")[0] if ".py:" in spec else spec


def _persons() -> Iterator[str]:
    """Yields this machine's host, user and home; a report is redacted where it was made."""
    with suppress(Exception):  # a user without an entry has no name
        yield getpass.getuser()
    host = socket.gethostname()
    yield from {host, host.split(".")[0]} if host != "localhost" else ()
    yield str(Path.home())
