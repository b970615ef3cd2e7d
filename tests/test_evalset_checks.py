"""gate evalset check and add: what an evalset can show, and no document twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gate.cli import main
from gate.errors import UsageError
from gate.evalset import read_evalset
from gate.evalset_checks import add_documents, examine_evalset, smallest_loss
from gate.measures.power import required_n_zero_flips
from gate.records import Criterion
from tests import evalsets
from tests.evalsets import Row, write_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small sound evalset."""
    return evalsets.write_evalset(tmp_path / "tiny")


def replace(path: Path, old: str, new: str) -> None:
    """Replace text in a file; it must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def list_todo(folder: Path, *criteria: Criterion) -> list[str]:
    """Return the notes that ask for something."""
    return [note.message for note in examine_evalset(folder, criteria) if not note.is_fine]


@pytest.mark.parametrize("n", [1, 2, 29, 59, 149, 299])
def test_the_smallest_loss_is_the_margin_that_n_documents_decide(n: int) -> None:
    loss = smallest_loss(n)
    assert required_n_zero_flips(loss + 1e-9) == n
    assert (1 - loss) ** n == pytest.approx(0.05)


def test_the_projects_own_evalset_has_nothing_to_do() -> None:
    smoke = Path(__file__).parent.parent / "evalsets" / "smoke"
    assert list_todo(smoke) == []


def test_sizes_are_said_in_what_they_can_show(folder: Path) -> None:
    found = "\n".join(note.message for note in examine_evalset(folder))
    assert "5 documents of 2 tasks in 2 classes" in found
    assert "no changed answer in 5 certifies a loss below 45.1% (95%)" in found
    assert "task sums: 3 documents, a loss below 63.2%" in found
    assert "timing_per_class = 2" in found


@pytest.mark.parametrize(("groups", "n"), [("all", 5), ("each_task", 2)])
def test_a_margin_that_the_documents_cannot_decide_is_named(
    folder: Path, groups: str, n: int
) -> None:
    criterion = Criterion(
        name="mine", measure="task_delta", rule="non_inferior", margin=0.1, groups=groups
    )
    found = [message for message in list_todo(folder, criterion) if "criterion 'mine'" in message]
    assert len(found) == 1
    assert "needs 29 documents" in found[0]
    assert f"there are {n};" in found[0]


def test_the_margin_on_failed_requests_needs_documents_too(folder: Path) -> None:
    criterion = Criterion(name="error rate", measure="error_rate", rule="non_inferior", margin=0.05)
    assert any("needs 59 documents" in message for message in list_todo(folder, criterion))


def test_a_prompt_that_comes_twice_is_named(folder: Path) -> None:
    rows: list[Row] = [*evalsets.SUMS, evalsets.SUMS[0] | {"id": "again"}]
    write_rows(folder / "sums.jsonl", rows)
    assert any("1 documents have a prompt that another has" in m for m in list_todo(folder))


def test_an_empty_target_is_named(folder: Path) -> None:
    write_rows(folder / "sums.jsonl", [*evalsets.SUMS, {"id": "e", "prompt": "?", "target": " "}])
    assert any("no text under 'target' ('e' first)" in m for m in list_todo(folder))


def test_too_few_timing_prompts_are_named(folder: Path) -> None:
    write_rows(folder / "timing.jsonl", [evalsets.timing_row("maths", 0)])
    assert any("speed cannot be measured" in m for m in list_todo(folder))


REFUSED = (
    (
        "sums.yaml",
        "function: take_first",
        "function: regex\n        regex_pattern: '('\n      - function: take_first",
        "is no regular expression",
    ),
    (
        "sums.yaml",
        "  - metric: exact_match",
        "  - metric: exact_match\n    regexes_to_ignore: ['[']",
        "is no regular expression",
    ),
    ("sums.yaml", "{{prompt}}", "{{ prompt * 10**10 }}", "the operator \\*\\*"),
    ("sums.yaml", "{{prompt}}", "{{ nothing }}", "cannot be rendered|lm-eval refuses"),
    ("sums.yaml", 'until: ["\\n"]', "until: []", "until is empty"),
    ("evalset.toml", "0.75", "0.5", "sum to 0.75"),
)


@pytest.mark.parametrize(("name", "old", "new", "named"), REFUSED)
def test_what_a_run_would_refuse_is_refused(
    folder: Path, name: str, old: str, new: str, named: str
) -> None:
    replace(folder / name, old, new)
    with pytest.raises(UsageError, match=named):
        examine_evalset(folder)


def test_the_command_prints_notes_and_refuses_with_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evalset", "check", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("ok   tiny: 5 documents")
    assert main(["evalset", "check", str(folder / "nowhere")]) == 2
    assert "no such file" in capsys.readouterr().err


# ------------------------------------------------------------------------ add


def write_source(tmp_path: Path, *rows: Row) -> Path:
    """Write documents to add."""
    write_rows(tmp_path / "new.jsonl", list(rows))
    return tmp_path / "new.jsonl"


NEW: Row = {"id": "new", "prompt": "2 + 9 =", "target": "11"}


def test_documents_are_appended(folder: Path, tmp_path: Path) -> None:
    before = read_evalset(folder)
    (folder / "sums.jsonl").write_text((folder / "sums.jsonl").read_text().rstrip("\n"))
    assert main(["evalset", "add", str(folder), "sums", str(write_source(tmp_path, NEW))]) == 0
    after = read_evalset(folder)
    assert after.documents["sums"] == (*before.documents["sums"], NEW)
    assert after.sha256 != before.sha256


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ((NEW, NEW), "'new' is taken by an earlier line"),
        ((NEW | {"id": "s0"},), "its id is taken in sums"),
        ((NEW | {"prompt": "0 + 0 ="},), "its prompt is in the evalset already"),
        ((NEW | {"prompt": "maths 1"},), "its prompt is in the evalset already"),
        ((NEW, NEW | {"id": "other"}), "its prompt is in the evalset already"),
        (({"id": "x", "prompt": "y"},), "it lacks target, which its task's others have"),
        (({"id": "x"},), "has no text under 'prompt'"),
        ((), "has no documents"),
    ],
    ids=[
        "id twice",
        "id known",
        "prompt known",
        "timing",
        "prompt twice",
        "field",
        "none",
        "empty",
    ],
)
def test_nothing_is_added_where_one_document_is_not_sound(
    folder: Path, tmp_path: Path, rows: tuple[Row, ...], named: str
) -> None:
    before = (folder / "sums.jsonl").read_bytes()
    with pytest.raises(UsageError, match=named):
        add_documents(folder, "sums", write_source(tmp_path, *rows))
    assert (folder / "sums.jsonl").read_bytes() == before


def test_adding_twice_is_refused(folder: Path, tmp_path: Path) -> None:
    add_documents(folder, "sums", write_source(tmp_path, NEW))
    with pytest.raises(UsageError, match="its id is taken"):
        add_documents(folder, "sums", write_source(tmp_path, NEW))
    lines = (folder / "sums.jsonl").read_text().splitlines()
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 4


def test_a_task_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task 'mine'; name one of sums, objects"):
        add_documents(folder, "mine", write_source(tmp_path, NEW))
