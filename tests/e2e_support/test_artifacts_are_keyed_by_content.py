"""An artifact is built once for its inputs, and again only when they change."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.artifacts import BuildError, cache_dir, cached, content_key, run_logged

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4)
"""Of whatever UTF-8 can write; to ask the codec itself, as st.text() does, takes seconds on a fresh clone."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIERKEEPER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_key_is_the_same_wherever_a_folder_lies(tmp_path: Path) -> None:
    here, there = tree(tmp_path / "here", a="1", sub__b="2"), tree(tmp_path / "else" / "there", a="1", sub__b="2")
    assert content_key([here]) == content_key([there])


def test_the_key_changes_with_a_file_name(tmp_path: Path) -> None:
    assert content_key([tree(tmp_path / "x", a="1")]) != content_key([tree(tmp_path / "y", b="1")])


def test_the_key_changes_with_the_executable_bit(tmp_path: Path) -> None:
    folder = tree(tmp_path / "x", a="1")
    before = content_key([folder])
    (folder / "a").chmod(0o755)
    assert content_key([folder]) != before


def test_compiled_python_does_not_change_the_key(tmp_path: Path) -> None:
    folder = tree(tmp_path / "x", a="1")
    before = content_key([folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("junk")
    assert content_key([folder]) == before


@given(TEXTS, TEXTS)
def test_unlike_lists_of_texts_have_unlike_keys(one: list[str], other: list[str]) -> None:
    assert (content_key(one) == content_key(other)) == (one == other)


def test_a_missing_input_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        content_key([tmp_path / "missing"])


def test_the_same_inputs_build_once() -> None:
    built: list[Path] = []
    first = cached("thing", ["x"], built.append)
    assert cached("thing", ["x"], built.append) == first
    assert len(built) == 1


def test_other_inputs_build_beside_it() -> None:
    first = cached("thing", ["x"], lambda _: None)
    second = cached("thing", ["y"], lambda _: None)
    assert {first.parent, second.parent} == {cache_dir()}
    assert first != second


def test_of_one_name_the_three_used_last_are_kept() -> None:
    cached("thing-else", ["x"], lambda _: None)
    folders = [cached("thing", [str(number)], lambda _: None) for number in range(3)]
    for age, folder in enumerate(reversed(folders)):
        os.utime(folder, (1000 - age, 1000 - age))
    assert cached("thing", ["0"], lambda _: None) == folders[0]
    newest = cached("thing", ["3"], lambda _: None)
    kept = {path for path in cache_dir().glob("thing-*") if "else" not in path.name}
    assert kept == {folders[0], folders[2], newest}
    assert list(cache_dir().glob("thing-else-*"))


def test_a_failed_build_leaves_nothing_that_looks_finished() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise BuildError("no")

    with pytest.raises(BuildError):
        cached("thing", ["x"], fail)
    assert [path.name for path in cache_dir().iterdir() if path.name != ".locks"] == []
    assert not (cached("thing", ["x"], lambda _: None) / "half").exists()


def test_what_a_killed_build_left_is_not_in_the_next_one() -> None:
    left = cache_dir() / f".building-thing-{content_key(['x'])}"
    left.mkdir()
    (left / "half").write_text("half")
    assert list(cached("thing", ["x"], lambda _: None).iterdir()) == []


def test_two_builders_at_once_build_once() -> None:
    started, finish, built = threading.Event(), threading.Event(), []

    def build(folder: Path) -> None:
        built.append(folder)
        started.set()
        assert finish.wait(10)

    first = threading.Thread(target=cached, args=("thing", ["x"], build))
    second = threading.Thread(target=cached, args=("thing", ["x"], build))
    first.start()
    assert started.wait(10)
    second.start()
    finish.set()
    first.join(10)
    second.join(10)
    assert len(built) == 1


def test_a_failing_command_shows_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"exit code 3:\nthe reason"):
        run_logged(["sh", "-c", "echo the reason; exit 3"], log=tmp_path / "log")


def test_a_missing_command_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no-such-command-here: not found; `make setup`"):
        run_logged(["no-such-command-here"], log=tmp_path / "log")
