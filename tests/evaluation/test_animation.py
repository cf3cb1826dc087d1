"""An episode as one animated picture."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hostile import write_checkpoint
from PIL import Image, ImageSequence
from test_counterfactuals import Hearers
from test_replay import NASTY
from toys import ColourTalk
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.evaluation.replay import write_animation
from rllib_llm_comm.evaluation.rollout import record
from tests.experiments.staged import run

COOKS = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": ["alice"], "max_game_steps": 12}


class Says(Hearers):
    """Says one thing at every moment."""

    words = "make a tomato salad"

    def act(self, observations, explore=True):
        return {
            agent: dataclasses.replace(d, said=self.words, heard={"other": self.words} if self.words else {})
            for agent, d in super().act(observations, explore).items()
        }


class Mute(Says):
    words = ""


def frames_of(path):
    with Image.open(path) as picture:
        told = ((one.convert("RGB"), one.info["duration"]) for one in ImageSequence.Iterator(picture))
        return [(np.asarray(image).astype(int), duration) for image, duration in told]


def episode_of(player):
    (episode,) = record(player, seed=4, env=parallel_env(**COOKS))
    return episode


def test_a_moment_per_frame_and_the_end_stands_longest(tmp_path):
    episode = episode_of(Says())
    found = frames_of(write_animation(episode, tmp_path / "a" / "told.gif", milliseconds=500))
    assert len(found) == len(episode.frames) > 3
    assert [duration for _, duration in found] == [500] * (len(found) - 1) + [1500]
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "told.gif"]
    height, width, _ = episode.frames[0]["image"].shape
    for (picture, _), frame in zip(found, episode.frames, strict=True):
        assert picture.shape[0] == height and picture.shape[1] > width
        # Away from the bubbles it is the game's own picture, in fewer colours.
        assert np.abs(picture[-40:, :width] - frame["image"][-40:]).mean() < 4


def test_who_speaks_has_a_bubble_over_its_head(tmp_path):
    spoken, mute = episode_of(Says()), episode_of(Mute())
    pictures = [frames_of(write_animation(e, tmp_path / "x.gif")) for e in (spoken, mute)]
    for agent in ("alice", "bob"):
        x, y = (round(value) for value in spoken.frames[0]["places"][agent])
        part = (slice(max(0, y - 40), y + 100), slice(max(0, x - 60), x + 60))
        with_words, without = (np.abs(p[0][0][part] - spoken.frames[0]["image"][part]).mean() for p in pictures)
        assert without < 4 < 12 < with_words
    last = spoken.frames[-1]["image"]  # nobody says anything at the end
    assert np.abs(pictures[0][-1][0][:, : last.shape[1]] - last).mean() < 4


def test_small_pictures_are_enlarged_and_cut_no_words_off(tmp_path):
    episode = episode_of(Says())
    whole = frames_of(write_animation(episode, tmp_path / "x.gif"))
    for frame in episode.frames:
        frame.update(image=frame["image"][:32, :40], places={})
    small = frames_of(write_animation(episode, tmp_path / "x.gif"))
    assert {picture.shape[0] for picture, _ in small} == {small[0][0].shape[0]} and small[0][0].shape[0] > 256
    assert all(picture.shape[1] - 320 == 340 for picture, _ in small)
    for (large, _), (picture, _) in zip(whole, small, strict=True):  # the panel, as beside a large picture
        height = min(len(large), len(picture))
        assert np.abs(picture[:height, -340:] - large[:height, -340:]).mean() < 4


@pytest.mark.parametrize("words", [NASTY * 20, "x" * 500, "a\nb\tc\x00\u202e", "caf\u00e9 \ufffd \U0001f600"])
def test_any_message_can_be_drawn(tmp_path, words):
    player = Says()
    player.words = words
    assert len(frames_of(write_animation(episode_of(player), tmp_path / "x.gif"))) > 3


def test_a_game_without_pictures_is_refused(tmp_path):
    (episode,) = record(Hearers(), env=ColourTalk(length=3))
    with pytest.raises(UserError, match="pictures"):
        write_animation(episode, tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_the_command_and_a_stage_write_it_and_other_formats_are_refused(tmp_path):
    cooks = str(write_checkpoint(tmp_path / "cooks", env_config=COOKS))
    page, picture = tmp_path / "page.html", tmp_path / "told.gif"
    done = CliRunner().invoke(cli, ["replay", cooks, "--out", str(page), "--animation", str(picture)])
    assert done.exit_code == 0, done.output
    assert page.is_file() and len(frames_of(picture)) > 2
    wrong = CliRunner().invoke(cli, ["replay", cooks, "--animation", str(tmp_path / "told.mp4")])
    assert isinstance(wrong.exception, UserError) and ".gif" in str(wrong.exception)
    run({"replay": {"run": "replay", "config": {"checkpoint": cooks, "animation": True}}}, tmp_path)
    assert {"replay.html", "replay.gif"} <= {path.name for path in (tmp_path / "f/replay").iterdir()}
