from __future__ import annotations

from pathlib import Path

from trtllm_operator.runner.memory import HostMemory, gib, read


def write(root: Path, **files: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name.replace("__", ".")).write_text(content)


def test_version_2(tmp_path: Path) -> None:
    write(
        tmp_path,
        memory__max="8589934592\n",
        memory__peak="8589934590\n",
        memory__events="low 0\nhigh 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n",
    )
    assert read(tmp_path) == HostMemory(8589934592, 8589934590, 1)


def test_version_2_without_a_limit_on_an_old_kernel(tmp_path: Path) -> None:
    write(tmp_path, memory__max="max\n", memory__events="oom_kill 0\n")
    assert read(tmp_path) == HostMemory(None, None, 0)


def test_version_1(tmp_path: Path) -> None:
    write(
        tmp_path / "memory",
        memory__limit_in_bytes="1073741824\n",
        memory__max_usage_in_bytes="1073741824\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    )
    assert read(tmp_path) == HostMemory(1 << 30, 1 << 30, 3)


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    write(tmp_path / "memory", memory__limit_in_bytes="9223372036854771712\n")
    assert read(tmp_path).limit_bytes is None


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) == HostMemory()


def test_bytes_for_people() -> None:
    assert [gib(180 << 20), gib(1 << 30), gib(24793579520)] == ["180 MiB", "1.00 GiB", "23.09 GiB"]
