"""The warning of a policy whose entropy collapses before it has seen a reward."""

from __future__ import annotations

import logging
import types

import pytest
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.rl.callbacks import ResultWarnings, WarnOfEntropyCollapse


class Run:
    """What the callback sees of an algorithm: results, and the logger whose state lies in checkpoints."""

    def __init__(self, config=None):
        self.metrics, self.algorithm = MetricsLogger(root=True), types.SimpleNamespace(config=config or VercoConfig())

    def goes_on(self, entropy, best=None):
        returns = {} if best is None else {"episode_return_max": best}
        result = {"learners": {"shared": {"entropy": entropy}, "__all_modules__": {}}, "env_runners": returns}
        WarnOfEntropyCollapse().on_train_result(algorithm=self.algorithm, metrics_logger=self.metrics, result=result)
        self.metrics.reduce()

    def killed(self):
        state, self.metrics = self.metrics.get_state(), MetricsLogger(root=True)
        self.metrics.set_state(state)


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize(
    ("best", "told"),
    [
        ([None, None, None], 1),
        ([-0.1, -0.1, -0.1], 1),
        ([-0.1, 0.0, 0.0], 1),  # to lose nothing is no reward
        ([0.0, -0.1, -0.05], 1),
        ([0.2, None, None], 0),
        ([0.2, 0.0, 0.0], 0),
        ([-1.0, -0.6, -0.7], 0),  # each step is charged, and some episodes end sooner
        ([None, -1.0, -0.6], 1),  # collapsed before any
    ],
)
def test_it_warns_once_where_no_reward_came(caplog, best, told, kill):
    run = Run()
    for entropy, own in zip((0.5, 0.04, 0.03), best, strict=True):
        run.goes_on(entropy, own)
        if kill:
            run.killed()
    run.goes_on(0.01)
    assert sum("advantage_floor" in record.getMessage() for record in caplog.records) == told


def test_without_a_critic_it_names_no_setting_of_one(caplog):
    run = Run(VercoConfig().training(advantages="grpo"))
    for entropy in (0.5, 0.04):
        run.goes_on(entropy)
    assert "`entropy_coeff` (now 0.01)" in caplog.text
    assert "advantage_floor" not in caplog.text and "critic_warmup" not in caplog.text


def test_every_language_algorithm_has_it():
    config = VercoConfig().environment("rllib_llm_comm/overcooked_text-v0").communication(messages="none")
    config.validate()
    assert WarnOfEntropyCollapse in config.callbacks_class


def test_what_the_package_warns_of_stands_in_the_result():
    """`rllib train` shows no log of the process that trains: its table prints these sentences."""
    told, result = ResultWarnings(), {}
    told.on_algorithm_init()
    told.on_algorithm_init()
    told.on_train_result(result={})  # takes what algorithms of other tests in this process have left
    for _ in range(2):
        logging.getLogger("rllib_llm_comm.anything").warning("It is %s.", "rigid")
    logging.getLogger("rllib_llm_comm.anything").warning("It closes\nup.")
    logging.getLogger("somebody.else").warning("It rains.")
    told.on_train_result(result=result)
    assert result == {"warnings": "It is rigid.\nIt closes up."}
    told.on_train_result(result=(later := {}))
    assert later == {}
