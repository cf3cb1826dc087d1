"""Verco as an algorithm: runners, learners, checkpoints, and its pieces in other people's configs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from adapter_server import AdapterServer
from toys import TESTS, ColourTalk, randomise, register, talkers

from rllib_llm_comm import load_policy, register_all
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import PHASES
from tests import forked
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")


ENGINES = ("fast", "plain")


@pytest.fixture(scope="module")
def message_source(tmp_path_factory):
    """A checkpoint with a message adapter of its own."""
    with running(talkers()) as algo:
        randomise(algo.learner_group._learner.module["shared"].unwrapped().network, "message", std=0.5, seed=9)
        return algo.save_to_path(str(tmp_path_factory.mktemp("source") / "checkpoint"))


@pytest.mark.parametrize(
    ("runners", "learners"),
    [(0, 0), (1, 1), *(pytest.param(*n, marks=pytest.mark.slow) for n in ((1, 0), (0, 1), (2, 0)))],
)
def test_runners_and_learners(runners, learners, message_source):
    with running(
        talkers()
        .communication(message_checkpoint=message_source)
        .env_runners(num_env_runners=runners)
        .learners(num_learners=learners)
        .debugging(seed=77)  # games of its own: what other tests have computed is remembered and takes no time
    ) as algo:
        spoken = algo.env_runner_group.foreach_env_runner(
            lambda runner: runner.module["shared"].write_messages(["you see red. i say:"]),
            local_env_runner=runners == 0,
        )
        expected = load_policy(message_source).network.write_messages(["you see red. i say:"])
        assert spoken == [expected] * max(1, runners)
        tokens = 0
        for _ in range(2):
            results = algo.train()
            assert results["tokens"] > tokens + results["env_runners"]["num_module_steps_sampled"]["shared"]
            learned = results["learners"]["shared"]
            assert float(learned["ratio_first_minibatch"]) < 1e-5
            assert results["env_runners"]["message_words"] > 0
            seconds = results["phase_seconds"]
            assert set(seconds) == set(PHASES) and all(value > 0 for value in seconds.values())
            if not runners and tokens:  # the first iteration counts what was written before it
                assert sum(seconds.values()) < results["time_this_iter_s"]
            tokens = results["tokens"]
        assert algo.load_adapter(message_source) is None
        with refused("role", "choice"):
            algo.load_adapter(message_source, "alice")


def test_a_server_has_the_adapter_of_the_run_from_its_first_message_on(message_source, tmp_path):
    own = load_policy(message_source).network
    with AdapterServer(load_policy(message_source).network.lm) as server:
        place = {"base_url": server.url, "adapter_folder": str(tmp_path / "adapters")}
        with running(talkers().communication(message_checkpoint=message_source, message_server=place)) as algo:
            results = algo.train()
    assert results["env_runners"]["message_words"] > 0
    first, *others = server.paths
    assert first == "/v1/load_lora_adapter" and set(others) == {"/v1/completions"}
    (folder,) = (tmp_path / "adapters").iterdir()
    prompts = ["you see red. i say:"]
    said = own.write_messages(prompts)
    own.lm.load_adapter("message", folder)
    assert own.write_messages(prompts) == said


def curve(settings):
    """Losses and returns of two iterations, and the algorithm, which is stopped."""
    with running(settings) as algo:
        results = [algo.train() for _ in range(2)]
    return algo, [
        [r["learners"]["shared"][name] for name in ("policy_loss", "vf_loss", "entropy", "kl")]
        + [r["env_runners"]["episode_return_mean"], r["env_runners"]["message_words"]]
        for r in results
    ]


def test_same_seed_same_curve_with_the_plain_engine(message_source):
    taught = talkers(minibatch_size=12).communication(message_checkpoint=message_source)
    fast, plain = (curve(taught.copy(copy_frozen=False).language_model(engine=engine))[1] for engine in ENGINES)
    np.testing.assert_allclose(fast, plain, atol=1e-4)
    assert np.ptp([row[2] for row in fast]) > 0  # something was learned


def test_a_shared_trunk_gives_the_curve_of_the_plain_engine_and_is_kept_from_roll_out_to_update(tmp_path):
    fast, plain = (curve(talkers(minibatch_size=12).language_model(lora_layers=1, engine=engine)) for engine in ENGINES)
    np.testing.assert_allclose(fast[1], plain[1], atol=1e-4)
    assert np.ptp([row[2] for row in fast[1]]) > 0
    networks = [
        module["shared"].unwrapped().network
        for module in (fast[0].env_runner.module, fast[0].learner_group._learner.module)
    ]
    assert networks[0].lm.trunk is networks[1].lm.trunk and networks[0].lm.trunk.nbytes > 0
    policy = load_policy(fast[0].save_to_path(str(tmp_path / "checkpoint")))
    assert policy.network.settings.lora_layers == 1 and policy.network.lm.trunk is not None


def test_results_tell_how_episodes_ended():
    for ends in (False, True):
        with running(
            talkers()
            .environment(register(), env_config={"length": 6, "terminate": ends})
            .communication(messages="none")
            .reporting(metrics_num_episodes_for_smoothing=3)
        ) as algo:
            results = [algo.train()["env_runners"] for _ in range(2)]
        assert results[-1]["success_rate"] == float(ends) and results[-1]["episode_game_steps"] == 6
        assert results[0]["num_episodes_lifetime"] < 3 and np.isnan(results[0]["team_return_mean"])
        assert results[-1]["num_episodes_lifetime"] >= 3
        returns = results[-1]["agent_episode_returns_mean"].values()
        assert results[-1]["team_return_mean"] == pytest.approx(np.mean(list(returns)))


def test_restore_in_a_fresh_process_continues(message_source, tmp_path):
    algo = talkers(anneal=240).communication(message_checkpoint=message_source).build_algo()
    for _ in range(2):
        results = algo.train()
    path = algo.save_to_path(str(tmp_path / "checkpoint"))
    nothing = algo.metrics.peek(("closing", "nothing"))  # of the start by which a closing policy is judged
    learner = algo.learner_group._learner
    steps = [int(next(iter(o.state.values()))["step"]) for o in learner._named_optimizers.values()]
    algo.stop()
    policy = load_policy(path)
    env = {**forked.environment(), "PYTHONPATH": TESTS}
    run = forked.run(f"{TESTS}/verco/restore_and_train.py", path, cwd=tmp_path, env=env)
    assert "RESULT" in run.stdout, run.stderr[-3000:]
    restored = json.loads(run.stdout.split("RESULT")[1].splitlines()[0])
    assert restored["iteration"] == 2 and restored["after"]["iteration"] == 3
    assert restored["after"]["ratio"] < 1e-5 and restored["again"] == 3
    assert restored["after"]["sampled"] > int(results["num_env_steps_sampled_lifetime"])
    assert restored["steps"] == steps and restored["nothing"] == nothing
    rate = 1e-3 * (1 - results["decisions"] / 240)
    np.testing.assert_allclose(restored["after"]["rates"], [rate, rate])  # annealing goes on
    assert restored["messages"] == policy.network.write_messages(["you see red. i say:"])
    observations, _ = ColourTalk().reset(seed=5)
    silent = load_policy(path, messages="none").act(observations)
    for agent, row in zip(observations, restored["probabilities"], strict=True):
        np.testing.assert_allclose(silent[agent].probabilities, row, atol=1e-5)


def test_a_message_checkpoint_that_does_not_fit_is_refused(tmp_path, message_source):
    with pytest.raises(UserError, match="no checkpoint at .*nowhere"):
        talkers().communication(message_checkpoint=str(tmp_path / "nowhere")).build_algo()
    with pytest.raises(UserError, match="`lora_r` is 2"):
        talkers().language_model(lora_r=2).communication(message_checkpoint=message_source).build_algo()


def test_evaluation_runners_may_talk_in_another_way():
    with running(
        talkers().evaluation(
            evaluation_interval=1,
            evaluation_duration=2,
            evaluation_num_env_runners=0,
            evaluation_config={"messages": "none", "explore": True},
        )
    ) as algo:
        results = algo.train()
        assert results["evaluation"]["env_runners"]["num_episodes"] == 2
        assert "message_words" not in results["evaluation"]["env_runners"]
        assert "message_words" in results["env_runners"]


def test_registered_names_reach_tune():
    from ray.tune.registry import ENV_CREATOR, _global_registry, get_trainable_cls

    register_all()
    register_all()
    for name in ("Verco", "MessageSFT"):
        assert get_trainable_cls(name).__name__ == name
    assert _global_registry.contains(ENV_CREATOR, "rllib_llm_comm/overcooked_text-v0")


def test_learns_to_use_messages():
    """With constant messages two thirds of the guesses must be wrong; with a telling partner hardly one."""
    from rllib_llm_comm.verco.teachers.base import Teacher, register_teacher

    class Telling(Teacher):
        name = "telling"

        def messages(self, request, *, rng):
            return {agent: f"i see {request.state['colours'][agent]}" for agent in request.agents}

    register_teacher("telling", Telling)
    returns = {"teacher": [], "constant": []}
    for messages, own in returns.items():
        rates = {"train_batch_size_per_learner": 256, "lr": 5e-3, "num_epochs": 4, "target_kl": None, "gamma": 0.0}
        config = talkers(env_config={"length": 8, "busy": (1, 1)}, **rates).env_runners(num_envs_per_env_runner=8)
        with running(config.communication(messages=messages, teacher="telling")) as algo:
            for _ in range(len(returns["teacher"]) or 15):
                own.append(algo.train()["env_runners"].get("episode_return_mean", 0))
                if own[-1] > 13:
                    break
    assert max(returns["teacher"]) > 13  # of 14.7: now and then the right colour is forbidden
    assert max(returns["constant"]) < 8  # after as many iterations


def test_a_restored_run_takes_the_step_size_of_its_own_config(tmp_path):
    with running(talkers(lr=1e-3).communication(messages="none")) as source:
        source.train()
        path = source.save_to_path(str(tmp_path / "checkpoint"))
    with running(talkers(lr=3e-4, critic_lr=7e-5).communication(messages="none")) as heir:
        heir.restore_from_path(path)
        heir.train()
        rates = {
            name.removeprefix("shared_"): optimizer.param_groups[0]["lr"]
            for name, optimizer in heir.learner_group._learner._named_optimizers.items()
        }
    assert rates == {"actor": pytest.approx(3e-4), "critic": pytest.approx(7e-5)}
