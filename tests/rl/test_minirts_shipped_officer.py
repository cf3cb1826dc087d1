"""The shipped officer does what it is told: games and units by the functions of `rllib officer play` and `build`."""

from __future__ import annotations

from rllib_llm_comm.evaluation.officers import OfficerScoreSettings, OfficerTaskSettings, officer_scores, officer_tasks

SHIPPED = "trained:zoo:red_officer"
SEED = 100_000  # as in docs/algorithms/red.md
GAMES = 12
# The officer wins 9 under the oracle and 2 under the adversary; of 20 games it wins 14 and 2, and on three other ranges
# of seeds it is 9 to 11 more. Rounding on another machine may turn a few games. An officer that hears nothing wins the
# same games under both.
MORE = 4


def test_it_wins_more_under_the_oracle_than_under_the_adversary():
    how = {"games": GAMES, "seed": SEED, "side_by_side": 2 * GAMES}
    found = officer_scores(OfficerScoreSettings(executor=SHIPPED, commanders=("oracle", "adversarial"), **how))
    won = {name: sum(game["result"] == 1 for game in games.values()) for name, games in found["played"].items()}
    assert won["oracle"] >= won["adversarial"] + MORE, won


def test_it_makes_a_spearman_when_it_is_told_to_and_seldom_else():
    found = officer_tasks(OfficerTaskSettings(executor=SHIPPED, units=["spearman"], games=10, seed=SEED))
    made = found["units"]["spearman"]
    told, untold = (round(made.get(how, 0.0) * made.get(f"{how}_games", 0)) for how in ("told", "not_told"))
    assert told >= 8 and untold <= 3
