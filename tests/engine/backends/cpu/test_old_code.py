"""Machine code that nobody loads goes after a month; all else stays."""

import os
import time

import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.jit import kept_folder
from engine.backends.cpu.old_code import KEPT_S, LOOK_AFTER_S, tidy
from engine.backends.cpu.reg import create

OWN, OTHER, OLD = (f"cpu-{digit * 16}" for digit in "0ab")


@pytest.fixture
def base(tmp_path):
    """Folders by age in seconds, each with a file."""
    ages = {
        OWN: 2 * LOOK_AFTER_S,
        OTHER: KEPT_S - 60,
        OLD: KEPT_S + 60,
        "cpu-mine": 2 * KEPT_S,
        "models": 2 * KEPT_S,
    }
    for name, age_s in ages.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.nbc").write_bytes(b"code")
        set_age(tmp_path / name, age_s)
    return tmp_path


def set_age(folder, age_s):
    then = time.time() - age_s
    os.utime(folder, (then, then))


def names(base):
    return {each.name for each in base.iterdir()}


def test_what_was_not_used_for_a_month_goes_and_own_code_is_new_again(base):
    before = names(base)

    tidy(base / OWN)

    assert names(base) == before - {OLD}
    assert all((base / name / "code.nbc").is_file() for name in names(base))
    assert time.time() - (base / OWN).stat().st_mtime < 60


def test_code_that_was_used_today_is_no_occasion_to_look(base):
    before = names(base)
    set_age(base / OWN, LOOK_AFTER_S / 2)

    tidy(base / OWN)

    assert names(base) == before


def test_the_own_code_stays_however_old_it_is(base):
    set_age(base / OWN, 10 * KEPT_S)

    tidy(base / OWN)

    assert OWN in names(base)


def test_a_link_of_such_a_name_leads_nowhere(base, tmp_path_factory):
    target = tmp_path_factory.mktemp("elsewhere")
    (target / "kept").write_bytes(b"kept")
    link = base / f"cpu-{'c' * 16}"
    link.symlink_to(target)
    os.utime(link, (1, 1), follow_symlinks=False)

    tidy(base / OWN)

    assert (target / "kept").is_file()


def test_without_a_folder_nothing_happens(tmp_path):
    tidy(tmp_path / "none" / OWN)

    assert names(tmp_path) == set()


def test_a_backend_that_gets_ready_tells_that_its_code_is_used():
    backend = CpuBackend(create().devices()[0], 1)
    backend.prepare()
    set_age(kept_folder(), 2 * LOOK_AFTER_S)

    backend.prepare()
    backend.dispose()

    assert time.time() - kept_folder().stat().st_mtime < 60
