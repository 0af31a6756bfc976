"""Every committed seed and table of the protocol tests through its fuzz target, and some mutations of each."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import fuzz_protocol
from tests.unit.protocol import test_chunks, test_commands, test_messages, test_metadata, test_server, wire

SEED_FILES = sorted(fuzz_protocol.SEEDS.glob("*/*"))

# The tables of the unit tests are seeds too, without being written twice.
TABLES: dict[str, list[bytes]] = {
    "chunk_reader": [
        *(bytes.fromhex(wire) for _, wire, _ in test_chunks.READS),
        *(bytes.fromhex(wire) for _, _, wire in test_chunks.WRITES),
        *(bytes.fromhex(test_chunks.GOOD + wire) for _, wire, _ in test_chunks.FAULTS),
    ],
    "amf": [
        *(bytes.fromhex(payload) for _, payload, _ in test_metadata.FORMS),
        *(bytes.fromhex(payload) for _, _, payload, _ in test_commands.DECODES),
        *(bytes.fromhex(payload) for _, _, payload, _ in test_commands.FAULTS),
    ],
    "server_connection": [
        test_server.OBS_SESSION,
        *(bytes.fromhex(test_chunks.GOOD + wire) for _, wire, _ in test_chunks.FAULTS),
        *(wire.message(22, bytes.fromhex(row[2]), on=6, stream=1) for row in test_messages.AGGREGATES),
        *(wire.message(22, bytes.fromhex(row[1]), on=6, stream=1) for row in test_messages.BROKEN_AGGREGATES),
    ],
}

# Enough for three seconds in all; longer runs are the fuzzer's own.
MUTATIONS = {
    "server_connection": 250,
    "client_connection": 150,
    "chunk_reader": 800,
    "amf": 1500,
    "media": 300,
    "flv": 800,
}


@pytest.mark.parametrize("path", SEED_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_seed_raises_nothing_but_the_peers_error(path: Path) -> None:
    fuzz_protocol.run(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("target", TABLES)
def test_the_tables_of_the_unit_tests_raise_nothing_but_the_peers_error(target: str) -> None:
    for data in TABLES[target]:
        fuzz_protocol.run(target, data)


@pytest.mark.parametrize("target", fuzz_protocol.TARGETS)
def test_mutated_seeds_raise_nothing_but_the_peers_error(target: str) -> None:
    for data in islice(fuzz_protocol.mutants(target, random.Random(0)), MUTATIONS[target]):
        fuzz_protocol.run(target, data)


def test_every_target_has_seeds_and_every_seed_a_target() -> None:
    assert {path.parent.name for path in SEED_FILES} == set(fuzz_protocol.TARGETS)
    assert sum(path.stat().st_size for path in SEED_FILES) < 150_000


def test_the_same_chance_gives_the_same_mutations() -> None:
    first, second = (list(islice(fuzz_protocol.mutants("flv", random.Random(5)), 20)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 15


def test_an_input_that_breaks_a_target_is_kept_among_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fragile(data: bytes) -> None:
        raise ZeroDivisionError

    (tmp_path / "flv").mkdir()
    (tmp_path / "flv" / "first.bin").write_bytes(b"FLV")
    monkeypatch.setattr(fuzz_protocol, "SEEDS", tmp_path)
    monkeypatch.setitem(fuzz_protocol.TARGETS, "flv", fragile)
    with pytest.raises(ZeroDivisionError):
        fuzz_protocol._run_mutants(["flv"], 60, 0)
    (kept,) = (tmp_path / "flv").glob("crash_*.bin")
    assert str(kept) in capsys.readouterr().out


def test_a_run_without_time_still_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_protocol._run_mutants(["flv", "amf"], 0, 0) == 0
    assert capsys.readouterr().out == "0 inputs, nothing broke\n"


def test_an_unknown_target_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fuzz_protocol.main(["mp4"])
    assert "target 'mp4', expected one of server_connection, client_connection" in capsys.readouterr().err
