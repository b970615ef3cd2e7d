"""What the commands print: hostile text reaches a terminal as text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gate.cli import main
from gate.store import encode_record, seal
from tests.report.builders import make_fail
from tests.report.hostile import HOSTILE

WRITABLE = [text for text in HOSTILE if "\ud800" not in text]  # no file of ours holds a surrogate


@pytest.mark.parametrize("text", WRITABLE, ids=range(len(WRITABLE)))
def test_a_hostile_reason_is_printed_as_one_line_without_control_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    decision = msgspec.structs.replace(
        make_fail(), reason=f"because {text}", expires_at="2999-01-01T00:00:00+00:00"
    )
    (tmp_path / "decision.json").write_bytes(encode_record(seal(decision)))
    assert main(["report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[0].startswith("FAIL: because ")
    assert printed[0].isprintable()
    assert len(printed[0]) < 2100


def test_a_hostile_path_in_an_error_is_printed_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "a\x1b[31m\u202eb")]) == 2
    assert "\x1b" not in (told := capsys.readouterr().err)
    assert r"a\x1b[31m\u202eb" in told
