"""Eight adapters in one batch beside one for all rows, and beside a pass per adapter; games of two checkpoints.

    python benchmarks/mixed_batch.py --rounds 3 --json docs/results/benchmarks/mixed_batch.json

Messages, scores and updates on the textual kitchen's own texts: the embedded model, and the shape of SmolLM2-135M with
random weights; on a GPU where there is one. All adapters have the same weights, so that all ways write the same
messages and give the same scores, which is compared before anything is timed. Rows go to the adapters in turn. One
adapter is added to the weights where that is today's way (`merged`), or beside them (`not merged`).

Games of two checkpoints are those of `rllib play` and `rllib crossplay`. Where a layer is small and on a CPU, up to two
rows per checkpoint share a pass, and all rows elsewhere.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from gpu import SHAPES, TINY, Work, build, wait

from harness import Row, alternate, main
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.rollout import play
from rllib_llm_comm.language import llama
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel, load_base_model
from rllib_llm_comm.language.mixed_batch import MixedBatch
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import Partner
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.rl.multi_agent_ppo import adamw
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import LanguagePolicy
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings

ADAPTERS = 8
GOAL = 0.7
STEPS = {"messages": "messages", "scores": "scores", "update": "ppo"}
"""Name of a step -> that of one adapter, in `gpu.Work`."""
GAMES = "games"
TEXT = "rllib_llm_comm/overcooked_text-v0"


@contextmanager
def beside_the_weights() -> Iterator[None]:
    """Models made inside never add an adapter to the weights."""
    before = llama._MOST_MERGED_BYTES, llama._MERGED_IN_UPDATES
    llama._MOST_MERGED_BYTES, llama._MERGED_IN_UPDATES = 0, 0
    try:
        yield
    finally:
        llama._MOST_MERGED_BYTES, llama._MERGED_IN_UPDATES = before


def network_of(base: BaseModel, device: str) -> LanguageNetwork:
    """A network whose adapters are not the identity; the same for every call."""
    network = LanguageNetwork(ModuleSettings(init_seed=0, device=device, compile_layers=False), base)
    generator = torch.Generator().manual_seed(0)
    for _, parameter in network.lm.named_adapter_parameters():
        parameter.data.add_(0.01 * torch.randn(parameter.shape, generator=generator).to(parameter.device))
        parameter.requires_grad_(True)
    return network


class Choir:
    """The steps of training with several models, in one batch or a pass each, as of `gpu.Work`."""

    def __init__(self, work: Work, models: list[AdaptedModel]) -> None:
        """Takes texts from a `Work`."""
        self.work, self.models, self.mixed = work, models, MixedBatch(models)
        self.owners = [row % len(models) for row in range(work.rows)]
        parameters = [p for model in models for _, p in model.named_adapter_parameters(ACTION)]
        self.optimizer = adamw(parameters, 1e-6)

    def _forget(self) -> None:
        for model in self.models:
            model.forget()
        for role in (MESSAGE, ACTION):
            rows = self.mixed.rows(self.owners, role)
            assert rows is not None
            rows.pool.prefixes.clear()

    @torch.no_grad()
    def messages(self) -> list[str]:
        """One message per prompt."""
        self._forget()
        return [message.text for message in self.mixed.messages(self.owners, self.work.prompts)]

    @torch.no_grad()
    def scores(self) -> torch.Tensor:
        """Scores of all candidates."""
        self._forget()
        return self._scored(self.owners)

    def update(self) -> None:
        """A step of all action adapters."""
        self._step(self._scored(self.owners))

    @torch.no_grad()
    def scores_apart(self) -> None:
        """Scores in a pass per adapter."""
        self._forget()
        for number in range(len(self.models)):
            self._scored_alone(number)

    def update_apart(self) -> None:
        """A step with a pass per adapter."""
        self._step(torch.cat([self._scored_alone(number) for number in range(len(self.models))]))

    @torch.no_grad()
    def messages_apart(self) -> None:
        """Messages in a pass per adapter."""
        self._forget()
        for number in range(len(self.models)):
            own = self.work.prompts[number :: len(self.models)]
            self.mixed.messages([number] * len(own), own)

    def _scored(self, owners: list[int], rows: slice = slice(None)) -> torch.Tensor:
        work = self.work
        return self.mixed.scores(owners, work.heads[rows], work.tails[rows], work.mask[rows])

    def _scored_alone(self, number: int) -> torch.Tensor:
        rows = slice(number, None, len(self.models))
        return self._scored([number] * len(self.owners[rows]), rows)

    def _step(self, logits: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        distribution = torch.distributions.Categorical(logits=logits)
        chosen = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        (-distribution.log_prob(chosen).mean() - distribution.entropy().mean()).backward()
        self.optimizer.step()


def rows_of(name: str, base: BaseModel, rows: int, rounds: int, steps: list[str]) -> Iterator[Row]:
    """Rows of some steps of training, and of memory."""
    device = base.device.type
    ours = Choir(
        Work.of_the_kitchen(network_of(base, device), rows), [network_of(base, device).lm for _ in range(ADAPTERS)]
    )
    merged = Work.of_the_kitchen(network_of(base, device), rows)
    with beside_the_weights():
        beside = Work.of_the_kitchen(network_of(base, device), rows)
    with torch.no_grad():
        known = merged.model.base, merged.heads, merged.tails, merged.mask
        alone = MixedBatch([merged.model]).scores([0] * rows, *known[1:])
    allowed = merged.mask.bool()
    close = 1e-3 if base.model.dtype == torch.float32 else 0.3
    torch.testing.assert_close(ours.scores().cpu()[allowed], alone.cpu()[allowed], atol=close, rtol=1e-3)
    if base.model.dtype == torch.float32 and "messages" in steps:
        texts = MixedBatch([merged.model]).messages([0] * rows, merged.prompts)
        assert ours.messages() == [message.text for message in texts]
    clock = time.process_time if device == "cpu" else time.perf_counter
    settings = {"rows": rows, "adapters": ADAPTERS, "lora_r": 8, "texts": "textual kitchen",
                "dtype": str(base.model.dtype), "device": device, "kept from before": "nothing",
                "clock": "CPU seconds" if device == "cpu" else "seconds"}  # fmt: skip

    def waited(step: Callable[[], object]) -> Callable[[], None]:
        def whole() -> None:
            step()
            wait(device)

        return whole

    for label in steps:
        single = STEPS[label]
        ways = [getattr(ours, label), getattr(merged, single), getattr(beside, single), getattr(ours, f"{label}_apart")]
        own, *others = alternate([waited(way) for way in ways], rounds, clock)
        rate = rows / statistics.median(own)
        for told, theirs, goal in zip(
            ("one adapter, merged", "one adapter, not merged", "a pass per adapter"), others, (GOAL, GOAL, None),
            strict=True,
        ):  # fmt: skip
            ratio = statistics.median(b / a for a, b in zip(own, theirs, strict=True))
            yield Row(f"mixed_batch/{name}, {label} beside {told}", rate, rate / ratio, "rows/s", goal,
                      {**settings, "reference": told})  # fmt: skip
    adapter = ours.models[0].adapter(ACTION)
    assert adapter is not None
    weights = [parameter for _, parameter in ours.models[0].named_adapter_parameters(ACTION)]
    copied = sum(parameter.numel() for parameter in weights) * base.model.dtype.itemsize
    held = sum(parameter.nbytes for parameter in weights)
    memory = {
        **settings,
        "reference": "merged: a copy of the linear maps",
        "ours": "beside the weights: a copy of itself",
    }
    yield Row(f"mixed_batch/{name}, memory of an adapter more", (held + copied) / 2**20,
              (held + adapter.merged_bytes) / 2**20, "MiB", None, memory, True)  # fmt: skip


class Apart(LanguagePolicy):
    """Shares no pass with other policies."""

    def write_ahead(self, *args: object, **kwargs: object) -> None:
        """Nothing."""

    def judge_ahead(self, *args: object, **kwargs: object) -> None:
        """Nothing."""


def table(base: BaseModel, device: str, kind: type[LanguagePolicy], steps: int) -> SeatedPolicy:
    """Two checkpoints in the seats of the textual kitchen, whose games have so many steps."""
    manifest = PolicyManifest("language", "Verco", {})
    talk = CommunicationSettings(max_message_words=10)
    policies = {agent: kind(network_of(base, device), talk, manifest) for agent in ("alice", "bob")}
    seats = {agent: Partner(PartnerSettings(policy=agent), policy) for agent, policy in policies.items()}
    return SeatedPolicy(seats, lambda **settings: make_env(TEXT, max_game_steps=steps, **settings))


def decisions_of(seated: SeatedPolicy, games: int) -> list[tuple[float, float]]:
    """Plays games side by side with policies that remember nothing; their returns and lengths."""
    for partner in seated.partners:
        partner.policy.network.forget()
        partner.policy._batched_before = None
    return [(sum(one.returns.values()), one.length) for one in play(seated, episodes=games, seed=0, num_envs=games)]


def seats_of(name: str, base: BaseModel, games: int, length: int, rounds: int) -> Iterator[Row]:
    """A game, and some side by side, of two checkpoints: in one batch beside a pass of each."""
    device = base.device.type
    clock = time.process_time if device == "cpu" else time.perf_counter
    for count in (1, games):
        ways = [
            functools.partial(decisions_of, table(base, device, kind, length), count)
            for kind in (LanguagePolicy, Apart)
        ]
        played, expected = ways[0](), ways[1]()
        assert played == expected
        steps = sum(length for _, length in played)
        own, apart = alternate(ways, rounds, clock)
        ratio = statistics.median(b / a for a, b in zip(own, apart, strict=True))
        rate = steps / statistics.median(own)
        settings = {
            "games": count,
            "game steps": length,
            "device": device,
            "clock": "CPU seconds" if device == "cpu" else "seconds",
            "reference": "a pass per checkpoint",
        }
        told = f"mixed_batch/{name}, two checkpoints, games side by side: {count}"
        yield Row(told, rate, rate / ratio, "game steps/s", None, settings)


def measure(options: argparse.Namespace) -> list[Row]:
    """Rows of both models."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = replace(SHAPES[0], sizes=TINY) if options.smoke else SHAPES[0]
    big = build(device, shape)
    if device == "cpu":
        big.model.float()
    small, large = (16, 16) if options.smoke else (256, 32)
    if device == "cuda" and not options.smoke:
        small, large = 512, 512
    rows: list[Row] = []
    steps = [step for step in options.steps if step != GAMES]
    for name, base, count in (("embedded", load_base_model(device=device), small), ("135M shape", big, large)):
        if name == "embedded" and not options.embedded or name != "embedded" and not options.big:
            continue
        rows += rows_of(name, base, count, options.rounds, steps)
        if GAMES in options.steps:
            games, length = (2, 2) if options.smoke else (16, 12) if name == "embedded" or device == "cuda" else (4, 4)
            rows += seats_of(name, base, games, length, options.rounds)
    return rows


def _more(parser: argparse.ArgumentParser) -> None:
    kinds = [*STEPS, GAMES]
    parser.add_argument("--steps", nargs="+", choices=kinds, default=kinds, help="the steps that are timed")
    parser.add_argument("--no-embedded", dest="embedded", action="store_false", help="leaves the embedded model out")
    parser.add_argument("--no-big", dest="big", action="store_false", help="leaves the shape of SmolLM2-135M out")


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure, _more)
