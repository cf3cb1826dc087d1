"""A tiny game in which messages matter, and a tiny language model on disk."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

COLOURS = ("red", "blue", "green")
ENV_ID = "toys/colour_talk-v0"
TESTS = str(Path(__file__).parent)


class ColourTalk(ParallelEnv):
    """Two agents; each sees its own colour and is paid for naming the other's: only messages can tell it.

    Args:
        length: Game steps until truncation (or until the end, if `terminate`).
        busy: How many game steps each agent's action lasts.
        pay: Paid for naming the other's colour.
        pay_busy: Paid to every agent in each game step.
        terminate: End by termination instead of truncation.
        obvious: Text and vector tell the other's colour too.
        shared: Both get the mean of what they earn, so that it pays to tell.
    """

    metadata = {"name": "colour_talk", "render_modes": ["ansi"]}

    def __init__(
        self,
        length: int = 8,
        busy: tuple[int, ...] = (1, 1),
        pay_busy: float = 0.0,
        terminate: bool = False,
        obvious: bool = False,
        shared: bool = False,
        render_mode: str | None = None,
        pay: float = 1.0,
    ) -> None:
        self.possible_agents = ["alice", "bob"]
        self.agents: list[str] = []
        self.length, self.busy, self.pay_busy = (
            length,
            dict(zip(self.possible_agents, busy, strict=True)),
            pay_busy,
        )
        self.terminate, self.obvious, self.render_mode = terminate, obvious, render_mode
        self.shared, self.pay = shared, pay
        self.rng = np.random.default_rng()
        self.task, self.brief = "name the other's colour", "Two players see one colour each."

    @property
    def teacher_state(self) -> dict:
        return {"colours": dict(self.colours), "t": self.t}

    def observation_space(self, agent):
        text = gym.spaces.Text(200, charset=string.printable)
        return gym.spaces.Dict(
            {
                "vector": gym.spaces.Box(0, 1, (6 if self.obvious else 3,), np.float32),
                "text": text,
                "candidates": gym.spaces.Tuple([text] * 3),
                "action_mask": gym.spaces.Box(0, 1, (3,), np.int8),
                "subgoal": gym.spaces.Text(50, min_length=0, charset=string.printable),
            }
        )

    def action_space(self, agent):
        return gym.spaces.Discrete(3)

    def other(self, agent: str) -> str:
        return "bob" if agent == "alice" else "alice"

    def observe(self):
        observations = {}
        for agent in self.possible_agents:
            told = [self.colours[agent]]
            text = f"you are {agent}. you see {told[0]}."
            if self.obvious:
                told.append(self.colours[self.other(agent)])
                text += f" the other sees {told[1]}."
            mask = np.ones(3, np.int8)
            mask[self.masked] = 0
            observations[agent] = {
                "vector": np.eye(3, dtype=np.float32)[[COLOURS.index(colour) for colour in told]].ravel(),
                "text": text,
                "candidates": tuple(f"name {colour}" for colour in COLOURS),
                "action_mask": mask if self.obvious is False and self.t % 3 == 2 else np.ones(3, np.int8),
                "subgoal": "",
            }
        return observations

    def infos(self, rewards):
        return {
            a: {
                "needs_action": self.left[a] == 0,
                "step_rewards": [rewards[a]] if rewards is not None else [],
                "game_step": self.t,
                "task_success": self.terminate and self.t >= self.length,
            }
            for a in self.possible_agents
        }

    def draw(self):
        self.colours = {a: COLOURS[self.rng.integers(3)] for a in self.possible_agents}
        self.masked = int(self.rng.integers(3))

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.t, self.left = 0, dict.fromkeys(self.agents, 0)
        self.draw()
        return self.observe(), self.infos(None)

    def step(self, actions):
        rewards = dict.fromkeys(self.possible_agents, self.pay_busy)
        for agent in self.possible_agents:
            if self.left[agent] == 0:
                if COLOURS[int(actions[agent])] == self.colours[self.other(agent)]:
                    rewards[agent] += self.pay
                self.left[agent] = self.busy[agent]
            self.left[agent] -= 1
        if self.shared:
            rewards = dict.fromkeys(rewards, sum(rewards.values()) / len(rewards))
        self.t += 1
        self.draw()
        over = self.t >= self.length
        terminations = dict.fromkeys(self.possible_agents, over and self.terminate)
        truncations = dict.fromkeys(self.possible_agents, over and not self.terminate)
        if over:
            self.agents = []
        return self.observe(), rewards, terminations, truncations, self.infos(rewards)

    def render(self):
        return f"step {self.t}: {self.colours}"


class Luck(ParallelEnv):
    """Two agents; each is paid 1 for naming the colour that it sees, and much more or less by luck that the other sees.

    What the actor needs is in its own vector; only a critic that sees more can tell luck from merit.

    Args:
        luck: Paid or taken besides.
        state: Whether observations tell the whole state (a table of both agents' vectors, the own first), too.
        length: Game steps until truncation.
    """

    metadata = {"name": "luck", "render_modes": []}

    def __init__(self, luck: float = 10.0, state: bool = True, length: int = 8) -> None:
        self.possible_agents = ["alice", "bob"]
        self.agents: list[str] = []
        self.luck, self.tells_state, self.length = luck, state, length
        self.rng = np.random.default_rng()

    def observation_space(self, agent):
        boxes = {"vector": gym.spaces.Box(-1, 1, (4,), np.float32)}
        if self.tells_state:
            boxes["state"] = gym.spaces.Box(-1, 1, (2, 4), np.float64)
        return gym.spaces.Dict(boxes)

    def action_space(self, agent):
        return gym.spaces.Discrete(3)

    def observe(self):
        self.colours, self.fate = self.rng.integers(3, size=2), self.rng.choice([-1.0, 1.0], size=2)
        table = np.concatenate([np.eye(3)[self.colours], self.fate[::-1, None]], axis=1)  # each sees the other's fate
        observations = {}
        for i, agent in enumerate(self.possible_agents):
            observations[agent] = {"vector": table[i].astype(np.float32)}
            if self.tells_state:
                observations[agent]["state"] = np.roll(table, -i, axis=0)
        return observations

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t, self.agents = 0, list(self.possible_agents)
        return self.observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        rewards = {
            agent: float(actions[agent] == self.colours[i]) + self.luck * self.fate[i]
            for i, agent in enumerate(self.possible_agents)
        }
        self.t += 1
        over = self.t >= self.length
        self.agents = [] if over else self.agents
        none, all_of = dict.fromkeys(rewards, False), dict.fromkeys(rewards, over)
        return self.observe(), rewards, none, all_of, {agent: {} for agent in rewards}


class TellDoor(ParallelEnv):
    """Alice sees which of two doors is right; Bob must name it and alone is paid. Only a message can tell him.

    Args:
        length: Game steps until truncation.
        busy: How many game steps the action of each lasts.
    """

    metadata = {"name": "tell_door", "render_modes": []}

    def __init__(self, length: int = 8, busy: tuple[int, ...] = (1, 1)) -> None:
        self.possible_agents = ["alice", "bob"]
        self.agents: list[str] = []
        self.length, self.busy = length, dict(zip(self.possible_agents, busy, strict=True))
        self.rng = np.random.default_rng()

    def observation_space(self, agent):
        text = gym.spaces.Text(200, charset=string.printable)
        return gym.spaces.Dict({"text": text, "candidates": gym.spaces.Tuple([text] * 2)})

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def observe(self):
        self.door = int(self.rng.integers(2))
        candidates = tuple(f"name {colour}" for colour in COLOURS[:2])
        texts = {"alice": f"you are alice. you see {COLOURS[self.door]}.", "bob": "you are bob."}
        return {agent: {"text": text, "candidates": candidates} for agent, text in texts.items()}

    def infos(self):
        return {agent: {"needs_action": self.t % self.busy[agent] == 0} for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t, self.agents = 0, list(self.possible_agents)
        return self.observe(), self.infos()

    def step(self, actions):
        paid = float("bob" in actions and int(actions["bob"]) == self.door)
        self.t += 1
        over = self.t >= self.length
        self.agents = [] if over else self.agents
        ends = dict.fromkeys(self.possible_agents, over)
        return self.observe(), {"alice": 0.0, "bob": paid}, dict.fromkeys(ends, False), ends, self.infos()


def make(**settings) -> ColourTalk:
    return ColourTalk(**settings)


def register() -> str:
    """Registers the game with PettingZoo and Tune; returns its id."""
    from pettingzoo.env_registry import registration

    try:
        registration.spec("parallel", ENV_ID)
    except Exception:
        registration.register("parallel", ENV_ID, entry_point="toys:make")
    return ENV_ID


@functools.cache
def tiny_model() -> str:
    """The tiny model's folder, written once per process."""
    folder = tempfile.mkdtemp(prefix="tiny-lm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return save_tiny_model(folder)


def language_model(**settings) -> dict:
    """Settings of the tiny model for a config's `.language_model(...)`."""
    return {
        "base_model": tiny_model(),
        "max_prompt_tokens": 160,
        "max_candidate_tokens": 8,
        "critic_hiddens": [16],
        **settings,
    }


def talkers(kind: Any = None, env_config: dict | None = None, **training: Any) -> Any:
    """A config of Verco, or of another kind, on the toy: small batches of two games in which bob is busy at times."""
    from rllib_llm_comm import VercoConfig

    game = {"busy": (1, 2), "length": 6} if env_config is None else env_config
    return (
        (kind or VercoConfig)()
        .environment(register(), env_config=game)
        .language_model(**language_model(temperature=2.0))
        .env_runners(num_envs_per_env_runner=2)
        .training(**{"train_batch_size_per_learner": 24, "num_epochs": 2, "lr": 1e-3, **training})
        .debugging(seed=0)
    )


def door_talkers(env_config: dict | None = None, **training: Any) -> Any:
    """A config of Verco on `TellDoor`, without messages that are trained."""
    from rllib_llm_comm import VercoConfig
    from rllib_llm_comm.rl.rllib_adapter import register_parallel_env

    register_parallel_env("toys/door", entry=TellDoor)
    return (
        VercoConfig()
        .environment("toys/door", env_config=env_config or {}, disable_env_checking=True)
        .language_model(**language_model(max_prompt_tokens=40))
        .training(**training)
        .debugging(seed=0)
    )


def words_of(base, ids) -> str:
    """The text of a padded row of token ids."""
    return base.decode([int(token) for token in ids if int(token) >= 0])


def save_tiny_model(folder: str | os.PathLike[str], hidden: int = 32, layers: int = 2) -> str:
    """Writes a tiny random LLaMA with a tokenizer that knows the toy's words."""
    import torch

    from tools.embedded_model.corpus import Document
    from tools.embedded_model.train import build_model, train_tokenizer

    torch.manual_seed(0)
    texts = [
        Document("toy", f"you are {who}. you see {hue}. the other sees {hue}. i say:", f"i see {hue}")
        for who in ("alice", "bob")
        for hue in COLOURS
    ]
    texts += [Document("toy", "alice says: bob says: next i", f"name {colour}") for colour in COLOURS]
    tokenizer = train_tokenizer(texts * 50, 400)
    model = build_model(tokenizer, layers=layers, hidden=hidden, heads=4)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.15)
    tokenizer.save_pretrained(str(folder))
    model.save_pretrained(str(folder), safe_serialization=True)
    return str(folder)


def randomise(network, role, std=0.1, seed=0) -> None:
    """Gives an adapter random weights in place of the identity."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in network.lm.named_adapter_parameters(role):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)


def write_talker(folder: str | os.PathLike[str], **settings: Any) -> Path:
    """Writes the policy of a Verco on the embedded model, whose adapters say something else than the base."""
    from rllib_llm_comm.policies.policy_folder import write_policy
    from rllib_llm_comm.policies.policy_manifest import PolicyManifest
    from rllib_llm_comm.verco.language_network import LanguageNetwork
    from rllib_llm_comm.verco.policy import base_model_digest, policy_files
    from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings

    network = LanguageNetwork(ModuleSettings(**settings))
    for seed, role in enumerate(("message", "action")):
        randomise(network, role, std=0.2, seed=seed)
    talk, digest = CommunicationSettings().to_dict(), base_model_digest(network.lm.base)
    manifest = PolicyManifest("Verco", network.settings.to_dict(), talk, ENV_ID, base_model_digest=digest)
    return write_policy(folder, policy_files(network), manifest)


def write_tiny_talker(folder: str | os.PathLike[str], seed: int = 1, **env_config: Any) -> Path:
    """Writes the policy of a Verco on the tiny model, whose messages are of at most four words."""
    from rllib_llm_comm.policies.policy_folder import write_policy
    from rllib_llm_comm.policies.policy_manifest import PolicyManifest
    from rllib_llm_comm.verco.language_network import LanguageNetwork
    from rllib_llm_comm.verco.policy import base_model_digest, policy_files
    from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings

    register()
    network = LanguageNetwork(ModuleSettings.from_mapping(language_model(init_seed=seed, temperature=3.0)))
    randomise(network, "action", seed=seed)
    randomise(network, "message", std=0.5, seed=seed + 1)
    talk, digest = CommunicationSettings(max_message_words=4).to_dict(), base_model_digest(network.lm.base)
    manifest = PolicyManifest("Verco", network.settings.to_dict(), talk, ENV_ID, env_config, base_model_digest=digest)
    return write_policy(folder, policy_files(network), manifest)


def batch_of(network, count=6) -> dict:
    """Encoded observations of the toy, as the module gets them."""
    import torch

    from rllib_llm_comm.verco.encoding import ObservationEncoder, read_observation

    encoder = ObservationEncoder(network.lm.base, network.settings)
    env = ColourTalk()
    rows = []
    for seed in range(count // 2):
        observations, _ = env.reset(seed=seed)
        rows += [
            encoder.encode(read_observation(o), {"bob": f"i see {('red', 'blue')[seed % 2]}"})
            for o in observations.values()
        ]
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
