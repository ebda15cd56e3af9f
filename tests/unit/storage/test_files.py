"""The one place that touches files: its registry, its faults, its limit of descriptors, its lock."""

import ast
import errno
import fcntl
import inspect
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident

import pytest

from storage.disk_files import DEFAULT_OPEN_FILES, DiskFiles
from storage.files import OPERATIONS, OUT_OF_DESCRIPTORS, File, Files, LockedError, TornWriteError
from tests.support.disk import files

# these ask nothing of the disk that could get lost: they keep books, or only combine operations
NOT_OPERATIONS = {
    "set_fault_hook",
    "limit_open_files",
    "limit_retired_files",
    "open_files_count",
    "close",
    "hold",
    "release",
    "replace_whole",
    "make_directories",
    "make_say",
}


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def functions(of: type[Files]) -> dict[str, ast.FunctionDef]:
    [made] = ast.parse(inspect.getsource(of)).body
    assert isinstance(made, ast.ClassDef)
    return {node.name: node for node in made.body if isinstance(node, ast.FunctionDef)}


def test_a_directory_is_only_made_inside_an_existing_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.make_directory(str(tmp_path / "a" / "b"))
    assert not (tmp_path / "a").exists()
    files.make_directories(str(tmp_path / "a" / "b"))
    files.make_directory(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        files.make_directory(str(tmp_path / "file"))


def test_a_path_that_the_disk_cannot_check_does_not_count_as_gone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert files.exists(str(tmp_path / "file"))
    assert not files.exists(str(tmp_path / "nothing"))
    assert not files.exists(str(tmp_path / "file" / "below"))
    with pytest.raises(OSError, match="symbolic links"):
        files.exists(str(tmp_path / "loop"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        files.write_whole("/dev/full", b"x")


def test_every_function_that_touches_files_is_an_operation() -> None:
    public = {name for name in functions(Files) | functions(DiskFiles) if not name.startswith("_")}
    assert public - NOT_OPERATIONS == set(OPERATIONS)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_asks_the_hook_under_its_own_name(name: str) -> None:
    asked = {
        node.args[0].value
        for node in ast.walk(functions(DiskFiles)[name])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("_ask", "_fault_hook")
        and isinstance(node.args[0], ast.Constant)
    }
    assert asked == {name}


def test_two_nodes_in_a_process_have_their_own_faults_and_descriptors(tmp_path: Path) -> None:
    one, other = DiskFiles(), DiskFiles()
    opened = [File(str(tmp_path / f"{at}")) for at in range(4)]
    one.limit_open_files(1)

    def refuse(name: str, path: str, _size: int) -> None:
        raise OSError(errno.EIO, name, path)

    one.set_fault_hook(refuse)
    for file in opened:
        other.create(file)
    assert (one.open_files_count(), other.open_files_count()) == (0, 4)
    with pytest.raises(OSError, match="exists"):
        one.exists(opened[0].path)
    assert other.exists(opened[0].path)
    for file in opened:
        other.close(file)


def test_a_lock_is_held_against_other_nodes_of_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    one, other = DiskFiles(), DiskFiles()
    one.lock(path)
    with pytest.raises(LockedError):
        other.lock(path)
    one.unlock(path)
    other.lock(path)
    other.unlock(path)


def test_only_files_touches_files() -> None:
    folder = Path(inspect.getfile(DiskFiles)).parent
    for path in sorted(folder.rglob("*.py")):
        if path.name == "disk_files.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called != "open", f"{path.name}:{node.lineno}"
                assert not called.startswith(("os.", "fcntl.", "shutil.")) or (
                    called.startswith("os.path.")
                    and (called in ("os.path.join", "os.path.dirname", "os.path.basename"))
                ), f"{path.name}:{node.lineno}: {called}"


def short_write(limit: int, operation: str = "append") -> None:
    files.set_fault_hook(lambda name, _path, _size: limit if name == operation else None)


def test_a_short_write_is_taken_back(tmp_path: Path) -> None:
    file = File(str(tmp_path / "a"))
    files.create(file)
    files.append(file, b"before", 0)
    short_write(3)
    with pytest.raises(OSError, match="3 of 6"):
        files.append(file, b"behind", 6)
    assert (tmp_path / "a").read_bytes() == b"before"


def test_a_failed_write_is_taken_back(tmp_path: Path) -> None:
    file = File(str(tmp_path / "a"))
    files.create(file)
    files.append(file, b"before", 0)

    def fail(name: str, _path: str, _size: int) -> None:
        if name == "append":
            raise OSError(errno.EIO, "bad disk")

    files.set_fault_hook(fail)
    with pytest.raises(OSError, match="bad disk"):
        files.append(file, b"behind", 6)
    assert (tmp_path / "a").read_bytes() == b"before"


def test_a_write_that_cannot_be_taken_back_has_its_own_error(tmp_path: Path) -> None:
    file = File(str(tmp_path / "a"))
    files.create(file)

    def fail(name: str, _path: str, _size: int) -> int | None:
        if name == "truncate":
            raise OSError(errno.EIO, "bad disk")
        return 2 if name == "append" else None

    files.set_fault_hook(fail)
    with pytest.raises(TornWriteError):
        files.append(file, b"behind", 0)


def test_a_missing_file_is_never_made_in_passing(tmp_path: Path) -> None:
    for touch in (lambda f: files.read(f, 1, 0), lambda f: files.append(f, b"x", 0), files.size_of):
        with pytest.raises(FileNotFoundError):
            touch(File(str(tmp_path / "missing")))
    assert list(tmp_path.iterdir()) == []


def test_files_that_only_read_open_none_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    reading, file = DiskFiles(only_reads=True), File(str(path))
    assert reading.read(file, 2, 1) == b"bc"
    assert fcntl.fcntl(file.descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    with pytest.raises(TornWriteError):
        reading.append(file, b"d", 3)
    reading.close(file)
    assert path.read_bytes() == b"abc"


def test_a_file_that_is_replaced_is_whole_or_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "text"
    files.replace_whole(str(path), b"old")
    short_write(2, "write_whole")
    with pytest.raises(OSError, match="2 of 3"):
        files.replace_whole(str(path), b"new")
    assert path.read_bytes() == b"old"


def test_a_missing_path_needs_no_sync(tmp_path: Path) -> None:
    files.sync(str(tmp_path / "missing"))
    files.sync_directory(str(tmp_path / "missing"))
    files.remove(str(tmp_path / "missing"))
    files.remove_tree(str(tmp_path / "missing"))


def test_a_tree_is_removed_with_its_contents(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    (tmp_path / "a" / "file").write_text("x")
    files.remove_tree(str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    files.limit_open_files(3)
    yield 3
    files.limit_open_files(DEFAULT_OPEN_FILES)


class FullSystem:
    """A system that gives no descriptor while `files` have one open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: DiskFiles, number: int) -> None:
        self.refused: list[str] = []
        really_open = os.open

        def open_unless_full(path: str, flags: int, mode: int = 0o777) -> int:
            if files.open_files_count():
                self.refused.append(path)
                raise OSError(number, "refused", path)
            return really_open(path, flags, mode)

        monkeypatch.setattr(os, "open", open_unless_full)


OPENING: dict[str, Callable[[DiskFiles, File], object]] = {
    "create": lambda files, file: files.create(file),
    "open_existing": lambda files, file: files.open_existing(file),
    "sync": lambda files, file: files.sync(file.path),
    "sync_directory": lambda files, file: files.sync_directory(os.path.dirname(file.path)),
    "read_whole": lambda files, file: files.read_whole(file.path),
    "write_whole": lambda files, file: files.write_whole(file.path, b"all"),
}


@pytest.mark.parametrize("number", sorted(OUT_OF_DESCRIPTORS))
@pytest.mark.parametrize("operation", OPENING)
def test_a_file_that_is_open_makes_room_where_the_system_has_no_descriptor_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, operation: str
) -> None:
    files = DiskFiles()
    one, other = File(str(tmp_path / "one")), File(str(tmp_path / "other"))
    for file in (one, other):
        files.create(file)
        files.append(file, b"1", 0)
    files.close(other)
    full = FullSystem(monkeypatch, files, number)
    OPENING[operation](files, other)
    assert len(full.refused) == 1
    assert one.descriptor == -1
    files.close(other)
    assert files.read(one, 1, 0) == b"1"
    files.close(one)


def test_none_makes_room_for_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = get_ident()
    files, one = DiskFiles(lambda: get_ident() == owner), File(str(tmp_path / "one"))
    files.create(one)
    FullSystem(monkeypatch, files, errno.EMFILE)
    with ThreadPoolExecutor(1) as thread, pytest.raises(OSError, match="refused"):
        thread.submit(files.sync, one.path).result()
    assert one.descriptor >= 0
    files.close(one)


def test_open_files_are_bounded_and_open_again_when_needed(tmp_path: Path, few_descriptors: int) -> None:
    opened = [File(str(tmp_path / f"{at}")) for at in range(10)]
    for at, file in enumerate(opened):
        files.create(file)
        files.append(file, b"%d" % at, 0)
    assert files.open_files_count() == few_descriptors
    assert [files.read(file, 9, 0) for file in opened] == [b"%d" % at for at in range(10)]
    assert files.open_files_count() == few_descriptors
    for file in opened:
        files.close(file)
    assert files.open_files_count() == 0


def test_a_file_in_use_outlives_those_that_were_touched_once(tmp_path: Path, few_descriptors: int) -> None:
    busy = File(str(tmp_path / "busy"))
    files.create(busy)
    once = [File(str(tmp_path / f"{at}")) for at in range(few_descriptors * 4)]
    opened = []
    files.set_fault_hook(lambda name, path, _size: opened.append(path) if name == "open_existing" else None)  # type: ignore[func-returns-value]
    for file in once:
        files.create(file)
        files.read(busy, 1, 0)
    reopened = opened.count(busy.path)
    assert reopened <= len(once) // 2
    for file in [busy, *once]:
        files.close(file)


def test_a_descriptor_that_was_let_go_is_not_used_any_more(tmp_path: Path) -> None:
    file = File(str(tmp_path / "a"))
    files.create(file)
    files.close(file)
    assert file.descriptor == -1
    files.close(file)


def test_a_descriptor_is_let_go_though_closing_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may report a failed write only then. The number soon belongs to another file."""
    files = DiskFiles()
    one, other, third = (File(str(tmp_path / name)) for name in ("one", "other", "third"))
    for file in (one, other):
        files.create(file)
        files.append(file, b"1", 0)
    one.used_lately = False
    with monkeypatch.context() as patched:
        _fail_to_close(patched)
        files.limit_open_files(1)
    files.limit_open_files(DEFAULT_OPEN_FILES)
    files.create(third)
    with pytest.raises(OSError, match="closed"):
        files.append(one, b"2", 1)  # the earlier write to it may be lost
    files.append(one, b"2", 1)
    assert [files.read(file, 9, 0) for file in (one, other, third)] == [b"12", b"1", b""]
    with monkeypatch.context() as patched:
        _fail_to_close(patched)
        with pytest.raises(OSError, match="closed"):
            files.close(one)
    assert one.descriptor == -1
    for file in (other, third):
        files.close(file)


def _fail_to_close(patched: pytest.MonkeyPatch) -> None:
    close = os.close

    def fail(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "closed")

    patched.setattr(os, "close", fail)


def test_the_lock_is_refused_within_a_process(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    files.lock(path)
    with pytest.raises(LockedError):
        files.lock(path)
    files.unlock(path)
    files.lock(path)
    files.unlock(path)


@pytest.mark.parametrize(
    "size", [0, 1, 4095, 4096, 16_383, 16_384, 16_385, (1 << 20) + 16_384, (1 << 20) + 16_385]
)
def test_a_file_is_read_whole_however_large_it_is(tmp_path: Path, size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    path = tmp_path / "file"
    path.write_bytes(data)
    assert DiskFiles().read_whole(str(path)) == data


@pytest.mark.parametrize("pages", [1, 3])
def test_a_read_cut_short_by_an_error_after_whole_pages_is_not_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(16_384))
    reads = iter([bytes(pages * 4096)])

    def read(descriptor: int, size: int) -> bytes:
        for data in reads:
            return data
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr("os.read", read)
    with pytest.raises(OSError, match="the disk fails") as raised:
        DiskFiles().read_whole(str(path))
    assert raised.value.filename == str(path)
