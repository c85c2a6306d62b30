"""Pins: the inputs that a run fixes at its start. `RunStarted` cites them as one blob; every decision reads them."""

from __future__ import annotations

from functools import cache

import msgspec

from mz_engine.decoding.quantity import decode_quantity, encode_quantity
from mz_engine.model.config import Config
from mz_engine.model.pipeline import Pipeline
from mz_engine.model.rules import RuleSet


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: Pipeline
    rules: dict[str, RuleSet]
    templates: dict[str, str]
    config: Config


_ENCODER = msgspec.json.Encoder(enc_hook=encode_quantity, order="deterministic")


def encode_pins(pins: Pins) -> bytes:
    """Encode pins canonically: the same pins give the same bytes."""
    return _ENCODER.encode(pins)


def decode_pins(data: bytes) -> Pins:
    return _decoder().decode(data)


@cache
def _decoder() -> msgspec.json.Decoder[Pins]:
    """Return the decoder, made at the first use: making it takes longer than short commands, which decode no pins."""
    return msgspec.json.Decoder(Pins, dec_hook=decode_quantity)
