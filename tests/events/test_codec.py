"""Every event ever released can be read; what cannot is named."""

from __future__ import annotations

import pkgutil
import threading
import time

import msgspec
import mz_events.catalog
import pytest
from msgspec.structs import replace
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentReplied, AgentRequested
from mz_events.catalog.feature import FeatureDelivered
from mz_events.catalog.validation import ArtifactParsed
from mz_events.codec import ALL_EVENTS, CODEC, FAMILIES, UPCASTERS, Codec, comparable_payload, type_of
from mz_events.names import Commit
from mz_events.store import StoreUnusable, UnknownEvent

from tests.support.golden import CORPUS, path_of
from tests.support.samples import sample

IDS = [type_of(kind) for kind in ALL_EVENTS]


class Sized(Event, frozen=True, kw_only=True, tag="test.sized"):
    """Schema 1 had `kb`, schema 2 `bytes`, schema 3 has `size_bytes` and a unit."""

    KIND = EventKind.EXTERNAL
    SCHEMA = 3
    size_bytes: int
    unit: str


def to_bytes(payload: dict[str, object]) -> dict[str, object]:
    kilobytes = payload["kb"]
    assert isinstance(kilobytes, int)
    return {"type": "test.sized", "bytes": kilobytes * 1024}


def to_size(payload: dict[str, object]) -> dict[str, object]:
    return {"type": "test.sized", "size_bytes": payload["bytes"], "unit": "none"}


SIZED = Codec((Sized,), {("test.sized", 1): to_bytes, ("test.sized", 2): to_size})


def test_every_module_of_the_catalog_is_a_family() -> None:
    modules = {f"mz_events.catalog.{module.name}" for module in pkgutil.iter_modules(mz_events.catalog.__path__)}
    assert modules - {"mz_events.catalog.base"} == {family.__name__ for family in FAMILIES}


def test_no_two_types_share_a_name() -> None:
    assert len(set(IDS)) == len(IDS) > 40


def test_every_type_declares_its_role_and_its_measurements() -> None:
    for kind in ALL_EVENTS:
        assert isinstance(kind.KIND, EventKind), kind
        assert kind.SCHEMA >= 1, kind
        assert set(kind.__struct_fields__) >= kind.NON_DETERMINISTIC, kind
        assert kind.__struct_config__.frozen, kind


def test_every_type_has_a_stored_payload_that_still_fits() -> None:
    for kind in ALL_EVENTS:
        name, path = type_of(kind), path_of(type_of(kind), kind.SCHEMA)
        assert path.exists(), f"no {path.name}; run: python -m tests.support.golden"
        stored = path.read_bytes().rstrip(b"\n")
        event = CODEC.decode(name, kind.SCHEMA, stored, "corpus@1")
        remedy = "never released: python -m tests.support.golden --renew"
        assert event == sample(kind), f"{path.name} no longer fits; {remedy}"
        assert CODEC.encode(event) == (name, kind.SCHEMA, stored)


def test_every_stored_payload_can_be_read() -> None:
    for path in sorted(CORPUS.glob("*.json")):
        name, _, schema = path.stem.rpartition(".")
        assert type_of(CODEC.decode(name, int(schema), path.read_bytes(), "corpus@1")) == name


def test_every_older_schema_has_an_upcaster() -> None:
    older = {(type_of(kind), schema) for kind in ALL_EVENTS for schema in range(1, kind.SCHEMA)}
    assert older == UPCASTERS.keys()


def test_a_field_that_a_payload_lacks_says_nothing() -> None:
    """Logs of older versions lack newer fields, so no default may claim anything."""
    claims = {
        (kind.__name__, field.name): field.default
        for kind in ALL_EVENTS
        for field in msgspec.structs.fields(kind)
        if field.default is not msgspec.NODEFAULT and field.default
    }
    assert claims == {("PhaseStarted", "units"): ("",)}, "but a phase has one unit"


def test_defaults_that_are_not_written_stay_what_they_are() -> None:
    written_never = {
        "keeps_session": False,
        "seen_marks": (),
        "prompt_tokens": None,
        "full_prompt_tokens": None,
        "counted_tokens": None,
    }
    _, schema, full = CODEC.encode(sample(AgentRequested))
    stored = {name: value for name, value in msgspec.json.decode(full).items() if name not in written_never}
    event = CODEC.decode(type_of(AgentRequested), schema, msgspec.json.encode(stored), "s@1")
    assert event == replace(sample(AgentRequested), **written_never)
    assert msgspec.json.decode(CODEC.encode(event)[2]) == stored


def test_map_keys_are_sorted_so_that_equal_events_have_equal_bytes() -> None:
    artifact_parsed = replace(sample(ArtifactParsed), fields={"severity": "LOW", "cause": "spec"})
    other = replace(sample(ArtifactParsed), fields={"cause": "spec", "severity": "LOW"})
    assert CODEC.encode(artifact_parsed) == CODEC.encode(other)


@pytest.mark.parametrize(
    ("schema", "payload"), [(1, b'{"type":"test.sized","kb":2}'), (2, b'{"type":"test.sized","bytes":2048}')]
)
def test_an_older_schema_is_lifted_step_by_step(schema: int, payload: bytes) -> None:
    assert SIZED.decode("test.sized", schema, payload, "s@1") == Sized(size_bytes=2048, unit="none")


def test_a_gap_among_the_upcasters_is_found_at_once() -> None:
    with pytest.raises(KeyError):
        Codec((Sized,), {("test.sized", 1): to_bytes})


@pytest.mark.parametrize(("name", "schema"), [("phase.dreamt", 1), ("unit.started", 2), ("unit.started", 0)])
def test_what_a_newer_version_wrote_is_named(name: str, schema: int) -> None:
    with pytest.raises(UnknownEvent, match=f"run/r/f@7 is {name}/{schema}") as caught:
        CODEC.decode(name, schema, b"{}", "run/r/f@7")
    assert (caught.value.event_ref, caught.value.type, caught.value.schema) == ("run/r/f@7", name, schema)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"type":"phase.completed"}',
        b"\xff\xfe",
        b'{"type":"unit.started","phase":"p","unit":"u","iteration":"1"}',
        b'{"type":"unit.started","phase":"\xff","unit":"u","iteration":1}',
        b'{"type":"unit.started","phase":"p","unit":"u","iteration":1,"more":1}',
        b'{"type":"phase.completed","phase":"p"}',
    ],
)
def test_a_damaged_payload_is_named(payload: bytes) -> None:
    with pytest.raises(StoreUnusable, match="run/r/f@3"):
        CODEC.decode("unit.started", 1, payload, "run/r/f@3")


def test_a_damaged_older_payload_is_named() -> None:
    with pytest.raises(StoreUnusable, match="s@9"):
        SIZED.decode("test.sized", 2, b'{"type":"test.sized","bytes":"many"}', "s@9")
    with pytest.raises(StoreUnusable, match="s@9"):
        SIZED.decode("test.sized", 1, b'{"type":"test.sized"}', "s@9")


def test_the_comparable_payload_leaves_measurements_out() -> None:
    reply = sample(AgentReplied)
    slower = replace(reply, duration_ms=99, tree=Commit("ab" * 20))
    other = replace(reply, ref=replace(reply.ref, attempt=99))
    assert comparable_payload(reply) == comparable_payload(slower) != comparable_payload(other)


def test_comparable_keeps_everything_but_measurements() -> None:
    event = sample(FeatureDelivered)
    actual = comparable_payload(event)
    assert actual == {"type": "feature.delivered", "ending": "ending", "changed_paths": ("src/app.py",)}


def test_the_decoder_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that prepare the same Struct at once crash msgspec."""
    made, make = list[object](), msgspec.json.Decoder

    def make_slowly(type_: type[Event]) -> msgspec.json.Decoder[Event]:
        made.append(type_)
        time.sleep(0.01)
        return make(type_)

    monkeypatch.setattr(msgspec.json, "Decoder", make_slowly)
    newest, payload = Codec((Sized,), {}), b'{"type":"test.sized","size_bytes":1,"unit":"none"}'
    threads = [threading.Thread(target=newest.decode, args=("test.sized", 3, payload, "s@1")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


NAMED = b'{"type":"unit.started","phase":"p","unit":"u","iteration":1}'


@pytest.mark.parametrize(
    ("payloads", "schemas"),
    [
        ((NAMED, NAMED[:-1]), (1, 1)),
        ((NAMED, NAMED), (1, 2)),
        ((NAMED, b'{"type":"unit.dreamt"}'), (1, 1)),
        ((NAMED + b"\n" + NAMED,), (1,)),
        ((NAMED, NAMED.decode()), (1, 1)),
    ],
    ids=["damaged", "newer schema", "newer type", "one too many", "text"],
)
def test_what_cannot_be_decoded_at_once(payloads: tuple[bytes, ...], schemas: tuple[int, ...]) -> None:
    assert CODEC.decode_unconverted((NAMED, NAMED), (1, 1)) == [CODEC.decode("unit.started", 1, NAMED, "s@1")] * 2
    assert CODEC.decode_unconverted(payloads, schemas) is None
    assert SIZED.decode_unconverted((b'{"type":"test.sized","kb":2}',), (1,)) is None
