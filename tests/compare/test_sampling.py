"""Which scripts a run plays to Apache Kafka itself."""

from __future__ import annotations

from .cluster_properties import is_cluster
from .play import load_scripts
from .sampling import drawn, drawn_for_barnabas

SCRIPTS = load_scripts().values()


def test_a_seed_draws_the_same_scripts_each_time() -> None:
    assert drawn(SCRIPTS, 1) == drawn([*SCRIPTS][::-1], 1)


def test_every_script_is_drawn_sooner_or_later() -> None:
    assert frozenset().union(*(drawn(SCRIPTS, seed) for seed in range(300))) == {
        script.key for script in SCRIPTS if not is_cluster(script.properties)
    }


def test_a_run_draws_less_than_half_of_them() -> None:
    assert all(0 < len(drawn(SCRIPTS, seed)) < len(SCRIPTS) / 2 for seed in range(20))


def test_every_script_is_played_to_barnabas_sooner_or_later() -> None:
    assert frozenset().union(*(drawn_for_barnabas(SCRIPTS, seed) for seed in range(200))) == {
        script.key for script in SCRIPTS
    }


def test_every_run_plays_all_to_barnabas_that_one_broker_will_do_for() -> None:
    for_one = {script.key for script in SCRIPTS if not is_cluster(script.properties)}
    assert all(for_one < drawn_for_barnabas(SCRIPTS, seed) for seed in range(20))
