"""Other people's software on the games: for each client the form of the games that it takes, and a run that shows it.

Each run uses the client's own classes and raises if the client refuses the game, or if what comes out is wrong. It
returns a sentence of what was seen. Clients are imported by the runs, so that none has to be installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from rllib_llm_comm.envs import env_ids
from rllib_llm_comm.envs.wrappers import box_observations, masked_observations, plain_infos

STEPS = 40
"""Length of a roll-out."""
_LEARN = 64
_SEED = 0


@dataclass(frozen=True)
class Game:
    """A game as clients get it.

    Attributes:
        name: Its name.
        heading: Its name in the table.
        module: Its module in `rllib_llm_comm.envs` by PettingZoo's names.
        settings: Its settings.
    """

    name: str
    heading: str
    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def forms(self) -> SimpleNamespace:
        """Its functions `env` (AEC) and `parallel_env`, which make it with these settings."""
        module = importlib.import_module(f"rllib_llm_comm.envs.{self.module}")
        return SimpleNamespace(
            env=partial(module.env, **self.settings), parallel_env=partial(module.parallel_env, **self.settings)
        )

    def make(self) -> ParallelEnv:
        """Makes it."""
        made: ParallelEnv = self.forms().parallel_env()
        return made


LONG_LAKE = ["1....2", *["......"] * 4, "b....a"]
"""A lake on which no episode ends within four steps, which PettingZoo's `max_cycles_test` takes for granted."""
RED = {"action_level": "red", "observe": ["vector"]}
_HEADINGS = {
    "overcooked_text": "Text",
    "overcooked_ai": "AI",
    "overcooked_ai_subgoals": "Subgoals",
    "minirts": "MiniRTS",
    "frozen_lake": "Lake",
}


def _games() -> Iterator[Game]:
    for env_id in env_ids():
        name = env_id.removeprefix("rllib_llm_comm/").removesuffix("-v0")
        if "/" not in name:
            settings = {"layout": LONG_LAKE} if name == "frozen_lake" else {}
            yield Game(name, _HEADINGS.get(name, name.capitalize()), f"{name}_v0", settings)
        if name == "minirts":
            yield Game("minirts_red", "RED", "minirts_v0", RED)


GAMES = tuple(_games())


@dataclass(frozen=True)
class Limit:
    """A client's own limit, which lies outside of this project.

    Attributes:
        reason: A sentence.
        error: Part of the error that shows it, as `repr` writes it.
    """

    reason: str
    error: str


@dataclass(frozen=True)
class Client:
    """A program that plays or checks environments.

    Attributes:
        name: Its name in the table.
        distribution: The distribution that holds it.
        licence: Its licence.
        form: The expression by which it gets a game `env`.
        run: A function of a game that runs it and tells what was seen.
        needs: Modules that have to be installed.
        heavy: Whether it wants an environment of its own.
        limits: Game -> the limit of the client that keeps it from this game.
    """

    name: str
    distribution: str
    licence: str
    form: str
    run: Callable[[Game], str]
    needs: tuple[str, ...] = ()
    heavy: bool = False
    limits: Mapping[str, Limit] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Modules that are not installed."""
        return [module for module in self.needs if importlib.util.find_spec(module) is None]


# ---- PettingZoo's own tests --------------------------------------------------------------------------


def api_tests(game: Game) -> str:
    """PettingZoo's contract of both forms."""
    from pettingzoo.test import api_test, parallel_api_test

    with contextlib.redirect_stdout(io.StringIO()):
        parallel_api_test(game.make(), num_cycles=STEPS)
        api_test(game.forms().env(), num_cycles=STEPS)
    return f"both pass, {STEPS} cycles each"


def seed_tests(game: Game) -> str:
    """Equal seeds give equal episodes, in both forms."""
    from pettingzoo.test import parallel_seed_test, seed_test

    forms = game.forms()
    parallel_seed_test(forms.parallel_env, num_cycles=STEPS)
    seed_test(forms.env, num_cycles=STEPS)
    return f"both pass, {STEPS} cycles each"


def render_tests(game: Game) -> str:
    """All modes of `render`."""
    from pettingzoo.test import render_test

    with contextlib.redirect_stdout(io.StringIO()):
        render_test(game.forms().env)
    return "passes in all modes"


def state_tests(game: Game) -> str:
    """`state` and `state_space`, in both forms."""
    from pettingzoo.test.state_test import state_test

    forms = game.forms()
    env = forms.parallel_env()
    state_test(forms.env(), env, num_cycles=STEPS)
    return f"passes, {env.state_space.shape[0]} numbers"


def max_cycles_tests(game: Game) -> str:
    """`max_cycles`, in both forms."""
    from pettingzoo.test.max_cycles_test import max_cycles_test

    max_cycles_test(game.forms())
    return "passes"


# ---- learners ----------------------------------------------------------------------------------------


def vectorised(game: Game, base_class: str, wrap: Callable[[Any], Any] = lambda env: env) -> Any:
    """Two games side by side as SuperSuit's vector of single agents.

    Args:
        game: The game.
        base_class: "gymnasium" or "stable_baselines3".
        wrap: Wrappers of SuperSuit.
    """
    import supersuit

    env = supersuit.pettingzoo_env_to_vec_env_v1(wrap(box_observations(game.make())))
    return supersuit.concat_vec_envs_v1(env, 2, num_cpus=0, base_class=base_class)


def supersuit_run(game: Game) -> str:
    """Random play through SuperSuit's wrappers, of which `frame_skip` draws from the game's `np_random`."""
    import supersuit

    def wrap(env: Any) -> Any:
        return supersuit.frame_stack_v1(supersuit.frame_skip_v0(env, (1, 2)), 2)

    env = vectorised(game, "gymnasium", wrap)
    env.action_space.seed(_SEED)
    observations, _ = env.reset(seed=_SEED)
    for _ in range(STEPS):
        observations, rewards, *_ = env.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
        _require(all(one in env.observation_space for one in observations), "an observation is outside of its space")
        _require(rewards.shape == (env.num_envs,), f"rewards have the shape {rewards.shape}")
    return f"{STEPS} random steps of {env.num_envs} agents in their space"


def stable_baselines3_run(game: Game) -> str:
    """PPO of Stable-Baselines3 learns on two games at once."""
    from stable_baselines3 import PPO

    env = vectorised(game, "stable_baselines3")
    learner = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=None, device="cpu")
    before = _weights(learner.policy)
    learner.learn(_LEARN)
    _require(_changed(before, learner.policy), "PPO changed no weight")
    return f"PPO learns, {learner.num_timesteps} steps"


def tianshou_game(game: Game) -> Any:
    """The game in tianshou's form."""
    from tianshou.env import PettingZooEnv

    env = game.make()
    discrete = isinstance(env.action_space(env.possible_agents[0]), spaces.Discrete)
    form = masked_observations if discrete else box_observations
    return PettingZooEnv(parallel_to_aec(plain_infos(form(env))))


def tianshou_run(game: Game) -> str:
    """A DQN of tianshou per agent collects from two games and learns."""
    from tianshou.algorithm import MultiAgentOffPolicyAlgorithm
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.torch_utils import policy_within_training_step

    env = tianshou_game(game)
    learners = MultiAgentOffPolicyAlgorithm(algorithms=[_dqn(env) for _ in env.agents], env=env)
    buffer = VectorReplayBuffer(10 * STEPS, 2)
    envs = DummyVectorEnv([partial(tianshou_game, game) for _ in range(2)])
    collector = Collector(learners, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=STEPS)
    batch, _ = buffer.sample(0)
    _require(bool(batch.obs.mask[np.arange(len(batch)), batch.act].all()), "an action was forbidden by the mask")
    before = _weights(learners)
    with policy_within_training_step(learners.policy):
        learners.update(buffer=buffer, sample_size=STEPS)
    _require(_changed(before, learners), "DQN changed no weight")
    return f"DQN learns, {len(batch)} steps, all allowed by the mask"


def _dqn(env: Any) -> Any:
    """A DQN of tianshou for one agent."""
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.utils.net.common import Net

    seen = env.observation_space
    seen = seen["observation"] if isinstance(seen, spaces.Dict) else seen
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=seen.shape, action_shape=getattr(env.action_space, "n", 1), hidden_sizes=[16]),
        action_space=env.action_space,
        observation_space=seen,
        eps_training=0.5,
    )
    return DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=10)


def torchrl_run(game: Game) -> str:
    """TorchRL's check of environments, and a roll-out with the state and the mask."""
    from torchrl.envs.libs.pettingzoo import PettingZooWrapper

    env = PettingZooWrapper(plain_infos(box_observations(game.make())), return_state=True, seed=_SEED)
    return _torchrl_steps(env)


def torchrl_turns_run(game: Game) -> str:
    """The same of the AEC form."""
    from torchrl.envs.libs.pettingzoo import PettingZooWrapper

    aec: AECEnv = parallel_to_aec(plain_infos(box_observations(game.make())))
    return _torchrl_steps(PettingZooWrapper(aec, use_mask=True, seed=_SEED))


def _torchrl_steps(env: Any) -> str:
    """Checks TorchRL's specs, and that masks hold in random play."""
    from torchrl.envs.utils import check_env_specs

    check_env_specs(env, seed=_SEED)
    played = env.rollout(STEPS, break_when_any_done=False)
    masked = [group for group in env.group_map if (group, "action_mask") in played.keys(True)]
    for group in masked:
        allowed = played[group, "action_mask"].gather(-1, played[group, "action"].unsqueeze(-1))
        _require(bool(allowed.all()), "an action was forbidden by the mask")
    return f"specs hold, {len(played)} random steps" + (", all allowed by the mask" if masked else "")


def _weights(module: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def _changed(before: list[Any], module: Any) -> bool:
    return any(bool((old != new).any()) for old, new in zip(before, module.parameters(), strict=True))


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise AssertionError(fault)


# ---- all ---------------------------------------------------------------------------------------------

_SHORT = "It expects four steps; the game is over after {}, whatever the limit."
# It reads `obs_next` of observations without a mask, which there is not yet when an agent acts.
_MASK_ONLY = "Its `MultiAgentPolicy` needs a mask; its `PettingZooEnv` makes one for Discrete only."
_ZOO = partial(Client, distribution="pettingzoo", licence="MIT")
CLIENTS = (
    _ZOO("PettingZoo's API tests", form="`env`, `parallel_to_aec(env)`", run=api_tests),
    _ZOO("PettingZoo's seed tests", form="`env`, `parallel_to_aec(env)`", run=seed_tests),
    _ZOO("PettingZoo's render test", form="`parallel_to_aec(env)`", run=render_tests),
    _ZOO("PettingZoo's state test", form="`env`, `parallel_to_aec(env)`", run=state_tests),
    _ZOO(
        "PettingZoo's max_cycles test",
        form="`env`, `parallel_to_aec(env)`",
        run=max_cycles_tests,
        limits={
            "door": Limit(_SHORT.format("two"), "AssertionError("),
            "referential": Limit(_SHORT.format("one"), "AssertionError("),
        },
    ),
    Client("SuperSuit", "supersuit", "MIT", "`box_observations(env)`", supersuit_run, ("supersuit",)),
    Client(
        "Stable-Baselines3",
        "stable-baselines3",
        "MIT",
        "`box_observations(env)` in SuperSuit's vector",
        stable_baselines3_run,
        ("stable_baselines3", "supersuit"),
    ),
    Client(
        "tianshou",
        "tianshou",
        "MIT",
        "`parallel_to_aec(plain_infos(masked_observations(env)))`",
        tianshou_run,
        ("tianshou",),
        heavy=True,
        limits={"minirts_red": Limit(_MASK_ONLY, "has no attribute 'obs_next'")},
    ),
    Client(
        "TorchRL",
        "torchrl",
        "MIT",
        "`plain_infos(box_observations(env))`",
        torchrl_run,
        ("torchrl",),
        heavy=True,
    ),
    Client(
        "TorchRL, AEC",
        "torchrl",
        "MIT",
        "`parallel_to_aec(plain_infos(box_observations(env)))`",
        torchrl_turns_run,
        ("torchrl",),
        heavy=True,
    ),
)
