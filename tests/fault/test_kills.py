"""kill -9 of a deployment at every named point and at random: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import pytest

from tests.fault.kills import POINTS, Witness, run

KILLS = 30


def test_what_was_acknowledged_is_there_once_and_the_state_is_that_of_a_clean_replay(tmp_path):
    witness = run(tmp_path, KILLS, seed=1)
    assert len([point for point in POINTS if witness.kills[point]]) >= len(POINTS) * 3 // 4  # some are rarely reached
    assert {"swap", "rescale", "batches", "ttl steps"} == set(witness.kinds)


def test_the_checks_see_a_batch_that_is_lost(tmp_path):
    witness = Witness(tmp_path)
    witness.acknowledged.add("0-9-9")
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        witness.kill("", 0)


def test_the_checks_see_a_batch_that_is_there_twice(tmp_path):
    witness = Witness(tmp_path)
    witness.keys.update(f"0-{writer}-0" for writer in range(3))
    with pytest.raises(AssertionError, match="twice"):
        witness.kill("", 0)
