"""Check that specification documents cite each other completely: which ids they define, and who cites them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from mz_engine.decoding.regex import find_groups
from mz_engine.model.config import SpecDocuments


class SpecText(NamedTuple):
    path: str
    text: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).stem


class SpecProblem(NamedTuple):
    path: str
    line: int
    """From 1."""
    message: str


class Mention(NamedTuple):
    """A definition or a citation of an id."""

    id: str
    path: str
    line: int


def spec_problems(kinds: Mapping[str, SpecDocuments], texts: Mapping[str, Sequence[SpecText]]) -> Iterator[SpecProblem]:
    """Yield ids that are defined twice, cited and not defined, or not cited as their kind demands. `texts` are the
    documents by kind; expressions must be valid."""
    definitions = {name: _definitions(documents, texts[name]) for name, documents in kinds.items()}
    citations = {
        (name, cited): [mention for text in texts[name] for mention in _matches(expression, text)]
        for name, documents in kinds.items()
        for cited, expression in documents.cites.items()
    }
    for name, mentions in definitions.items():
        yield from _repeated(mentions, f"{name} {{id}} is defined already in {{first}}")
    for (_, cited), mentions in citations.items():
        defined = {mention.id for mention in definitions[cited]}
        for id_, path, line in mentions:
            if id_ not in defined:
                yield SpecProblem(path, line, f"it cites {cited} {id_}, which no document defines")
    for name, documents in kinds.items():
        for citing in dict.fromkeys((*documents.cited_by, *documents.cited_once_by)):
            cited_ids = {mention.id for mention in citations[citing, name]}
            for id_, path, line in definitions[name]:
                if id_ not in cited_ids:
                    yield SpecProblem(path, line, f"{name} {id_} is cited by no {citing}")
        for citing in documents.cited_once_by:
            yield from _repeated(citations[citing, name], f"{name} {{id}} is cited already in {{first}}")


def _definitions(documents: SpecDocuments, texts: Sequence[SpecText]) -> list[Mention]:
    if documents.ids is None:
        return [Mention(text.name, text.path, 1) for text in texts]
    return [
        mention._replace(id=f"{text.name} {mention.id}") if documents.local else mention
        for text in texts
        for mention in _matches(documents.ids, text)
    ]


def _matches(expression: str, text: SpecText) -> Iterator[Mention]:
    for number, line in enumerate(text.text.split("\n"), start=1):
        for groups in find_groups(expression, line):
            yield Mention(" ".join(groups), text.path, number)


def _repeated(mentions: Sequence[Mention], message: str) -> Iterator[SpecProblem]:
    first = dict[str, Mention]()
    for mention in mentions:
        earlier = first.setdefault(mention.id, mention)
        if earlier is not mention:
            text = message.format(id=mention.id, first=f"{earlier.path}:{earlier.line}")
            yield SpecProblem(mention.path, mention.line, text)
