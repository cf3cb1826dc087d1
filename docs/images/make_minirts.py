"""Makes `minirts.gif`, a game between two scripted opponents: python docs/images/make_minirts.py"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, RTSSettings
from rllib_llm_comm.envs.minirts.render import rgb_array

SEED, EVERY, MILLISECONDS, WIDTH = 12, 60, 90, 576
OPPONENTS = ("strong", "medium2")


def frames() -> list[Image.Image]:
    """The game from above, each 60 ticks."""
    game, found = RTSGame(SEED, RTSSettings(opponents=OPPONENTS)), []
    while not game.over:
        game.run(EVERY)
        image = Image.fromarray(rgb_array(game))
        found.append(image.resize((WIDTH, image.height * WIDTH // image.width), Image.Resampling.LANCZOS))
    return found


def main() -> None:
    shown = frames()
    palette = shown[len(shown) // 2].quantize(160)
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in shown]
    few += [few[-1]] * 15
    target = Path(__file__).with_name("minirts.gif")
    few[0].save(target, save_all=True, append_images=few[1:], duration=MILLISECONDS, loop=0, optimize=True)
    print(f"{target.name}: {len(few)} frames, {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
