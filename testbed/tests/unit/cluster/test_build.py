"""Where the cluster's programs are kept."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.cluster.build import _remove_old_builds


def test_the_two_newest_builds_and_the_extra_programs_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(("c" * 20, "a" * 20, "b" * 20, "example.org_cmd_extra@v1.0.0")):
        (tmp_path / name / "bin").mkdir(parents=True)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    _remove_old_builds(tmp_path)
    assert {d.name for d in tmp_path.iterdir()} == {"c" * 20, "a" * 20, "example.org_cmd_extra@v1.0.0"}
