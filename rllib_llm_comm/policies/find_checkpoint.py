"""The checkpoint behind a path: of a checkpoint, a trial, a stage or a run, `zoo:NAME` or `hf:user/repo`."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rllib_llm_comm.core.errors import UserError, did_you_mean, names_and_hint, one_line
from rllib_llm_comm.core.files import digest_of, read_foreign_json, read_regular
from rllib_llm_comm.core.places import fetched, is_remote
from rllib_llm_comm.policies.policy_manifest import (
    LANGUAGE,
    MANIFEST,
    MOST_MANIFEST,
    NETWORK,
    POLICY_FOLDER,
    names_a_folder,
)
from rllib_llm_comm.policies.stage_record import MARKER, read_record, require_readable

PREFIX = "zoo:"
CARD = "card.json"
_MOST_BYTES = 2**22
_WORDS = {"name", "what", "game", "algorithm", "licence", "trained", "limits"}
FOLDER = Path(__file__).with_name("zoo_policies")
HUB_PREFIX = "hf:"
FILES = (MANIFEST, "*.safetensors", "*adapter_config.json", "README.md")
"""The files of a published policy and its card; above all no pickles and no code."""
MOST_BYTES = 2**33
"""Most bytes that are fetched of a repository."""
_MOST_AGENTS = 64
_ROLES = ("message", "action", "reference")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_SECONDS = 30.0
_REPO = r"\w[\w.-]*/\w[\w.-]*"
_NAME = re.compile(rf"hf:(?P<repo>{_REPO})(?:@(?P<revision>[\w./-]+))?")


class Figures(BaseModel):
    """Figures of a shipped policy, measured with `rllib evaluate` as it is shipped.

    Attributes:
        seed: Seed of the first episode; the others count up.
        episodes: Number of episodes.
        sampled: True if actions were sampled.
        messages: The message mode, if not the policy's own; `None` for its own.
        planner: The planner that tells subgoals; `None` where none does.
        return_mean: Mean team return.
        success_rate: Share of episodes that were solved.
        metrics: Means of what the game counts itself.
        returns: Team return of each episode.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    seed: int
    episodes: int
    sampled: bool
    messages: str | None
    planner: str | None = None
    return_mean: float
    success_rate: float
    metrics: dict[str, float]
    returns: list[float]

    @property
    def played(self) -> str:
        """The way of playing: the planner, or the messages."""
        return f"planner {self.planner}" if self.planner else self.messages or "its own"

    @property
    def solved(self) -> str:
        """Share of episodes that were solved; "-" in games that go on for a score."""
        return "-" if "score" in self.metrics else f"{self.success_rate:.2f}"


class ModelCard(BaseModel):
    """The card of a shipped policy.

    Attributes:
        name: Its name behind `zoo:`.
        what: One sentence: who plays what.
        game: Id of the environment.
        algorithm: The algorithm that trained it.
        trained: Its training: file, seed, steps, model, teacher.
        limits: Things that it cannot do, or that its figures do not tell.
        licence: Licence of the weights.
        seats: Names of the agents.
        talks: True if it says and hears messages in words.
        base_model: Name of the language model that its adapters are of; empty without one.
        base_model_sha256: The digest of the file with that model's weights.
        figures: Measured figures.
        files: File -> SHA-256 of its content, of every file of the policy.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: str
    what: str
    game: str
    algorithm: str
    trained: str
    limits: str
    licence: str
    seats: list[str]
    talks: bool
    base_model: str = ""
    base_model_sha256: str = ""
    figures: list[Figures]
    files: dict[str, str]


def is_shipped(path: str | os.PathLike[str]) -> bool:
    """True if a path is `zoo:` and a name; whether there is such a policy is not asked."""
    return os.fspath(path).startswith(PREFIX)


def shipped_policies() -> dict[str, ModelCard]:
    """Name -> card of all policies that come with the package."""
    names = sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))
    return {name: _card(name) for name in names}


def shipped_policy(path: str | os.PathLike[str]) -> Path:
    """The policy folder behind `zoo:NAME`, after its files were compared with their digests.

    Raises:
        UserError: If there is no such policy, or its files are not those that were shipped.
    """
    name = os.fspath(path).removeprefix(PREFIX)
    known = shipped_policies()
    if name not in known:
        raise UserError(
            f"there is no shipped policy {PREFIX + name!r}; `rllib zoo list` shows them: {names_and_hint(name, known)}"
        )
    return _checked(name)


@lru_cache
def _checked(name: str) -> Path:
    folder, shipped = FOLDER / name, _card(name).files
    there = digests(folder)
    if there != shipped:
        wrong = sorted(set(there.items()) ^ set(shipped.items()))[0][0]
        raise UserError(
            f"the shipped policy {PREFIX + name!r} is damaged: {wrong!r} is not the file that was shipped; install "
            "rllib_llm_comm again."
        )
    return folder


@lru_cache
def _card(name: str) -> ModelCard:
    path = FOLDER / name / CARD
    try:
        return ModelCard.model_validate_json(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{str(path)!r} cannot be read ({reason}); install rllib_llm_comm again.") from error


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a policy folder but its card."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD)
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def in_markdown(text: object) -> str:
    """A text on one line that a reader of Markdown shows as it is: no HTML, no link, no further column of a table."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return plain.replace("](", "]\\(")


def card_text(card: ModelCard) -> str:
    """A card as Markdown."""
    told = {name: in_markdown(value) for name, value in card.model_dump(include=_WORDS).items()}
    rows = "\n".join(
        f"| {in_markdown(one.played)} | {one.episodes} from seed {one.seed} | {one.return_mean:.3f} | "
        f"{one.solved} | {', '.join(f'{in_markdown(name)} {value:g}' for name, value in one.metrics.items()) or '-'} |"
        for one in card.figures
    )
    base = f"| Base model | `{card.base_model}`, sha256 `{card.base_model_sha256}` |\n" if card.base_model else ""
    return (
        f"# zoo:{told['name']}\n\n{told['what']}\n\n"
        f"| | |\n| --- | --- |\n| Game | `{told['game']}` |\n| Seats | {', '.join(map(in_markdown, card.seats))} |\n"
        f"| Algorithm | {told['algorithm']} |\n{base}| Licence | {told['licence']} |\n\n"
        f"**Trained.** {told['trained']}\n\n**Limits.** {told['limits']}\n\n"
        f"| Played with | Episodes | Return | Solved | The game's counts |\n| --- | --- | --- | --- | --- |\n{rows}\n"
    )


def is_on_hub(path: str | os.PathLike[str]) -> bool:
    """True if a path is `hf:` and a name; whether there is such a repository is not asked."""
    return os.fspath(path).startswith(HUB_PREFIX)


def is_repo(name: str) -> bool:
    """True if a name is one of a repository, `user/name`; whether there is such a repository is not asked."""
    return re.fullmatch(_REPO, name) is not None


def endpoint() -> str | None:
    """The hub's address in `HF_ENDPOINT`; `None` for the public one."""
    return os.environ.get("HF_ENDPOINT") or None


def fetch_policy(path: str | os.PathLike[str]) -> Path:
    """The policy folder of a repository on the hub, in the hub's cache on this machine.

    The manifest is fetched first, then the files that it stands for, if they are not too large.

    Args:
        path: `hf:user/repo`, or `hf:user/repo@revision` for a branch, tag or commit.

    Raises:
        UserError: If the name is none, or the repository cannot be fetched, holds no policy or a larger one.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

    named = _NAME.fullmatch(os.fspath(path))
    if named is None:
        raise UserError(f"{os.fspath(path)!r} names no repository; write hf:user/repo, or hf:user/repo@revision.")
    repo, revision = named["repo"], named["revision"]
    try:
        if constants.HF_HUB_OFFLINE:  # what was fetched before
            return Path(snapshot_download(repo, revision=revision, local_files_only=True))
        about = HfApi(endpoint=endpoint()).model_info(repo, revision=revision, files_metadata=True, timeout=_SECONDS)
        sizes = {one.rfilename: one.size or 0 for one in about.siblings or ()}

        def fetch(name: str, revision: str | None) -> Path:
            return Path(hf_hub_download(repo, name, revision=revision, endpoint=endpoint(), etag_timeout=_SECONDS))

        if not 0 < sizes.get(MANIFEST, 0) <= MOST_MANIFEST:
            raise UserError(
                f"{os.fspath(path)!r} has no `{MANIFEST}` of at most {MOST_MANIFEST} bytes, so it is no policy of "
                "this package; look at the name."
            )
        manifest = fetch(MANIFEST, revision)
        wanted = [name for name in _files_of(manifest) if name in sizes]
        if (most := sum(sizes[name] for name in wanted)) > MOST_BYTES:
            raise UserError(
                f"{os.fspath(path)!r} has {most} bytes but at most {MOST_BYTES} are fetched; fetch it with `hf "
                "download`, and give its folder."
            )
        for name in wanted:  # of the same commit, after which the cache names its folder
            fetch(name, manifest.parent.name)
        return manifest.parent
    except UserError:
        raise
    except Exception as error:  # the hub's client raises kinds of three libraries
        reason = one_line(str(error), 300)
        raise UserError(
            f"{os.fspath(path)!r} cannot be fetched ({type(error).__name__}: {reason}); look at the name, at the "
            "network, and whether you are logged in (`hf auth login`) if it is private."
        ) from error


def _files_of(manifest: Path) -> list[str]:
    """The files that a `policy.json` may stand for, relative to it; what it says beyond that is checked on loading."""
    told = read_foreign_json(manifest, MOST_MANIFEST)
    if not isinstance(told, dict) or told.get("kind", LANGUAGE) != LANGUAGE:
        return [NETWORK]
    agents = told.get("agents") or [""]
    if not isinstance(agents, list) or len(agents) > _MOST_AGENTS:
        raise ValueError(f"`agents` of its {MANIFEST} must be a list of at most {_MOST_AGENTS} names")
    if any(agent != "" and not names_a_folder(agent) for agent in agents):
        raise ValueError(f"`agents` of its {MANIFEST} must be plain names")
    own = ["critic.safetensors", *(f"adapters/{role}/{name}" for role in _ROLES for name in _ADAPTER)]
    return [f"{agent}/{name}" if agent else name for agent in agents for name in own]


def is_named(path: str | os.PathLike[str]) -> bool:
    """True if a checkpoint is not given by its place on this machine: `zoo:NAME`, `hf:user/repo`, `s3://BUCKET/...`."""
    return is_shipped(path) or is_on_hub(path) or is_remote(path)


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint folder of a checkpoint, a trained stage, or a run with trained stages.

    Args:
        path: A checkpoint or trial folder, a stage's folder (of `run: clone_officer`, too), or the folder above the
            stages (of which the one trained last is taken), at `s3://BUCKET/...`, too; or `zoo:NAME` for a policy that
            comes with the package, or `hf:user/repo` for one on the Hugging Face hub.

    Raises:
        UserError: If nothing is there, or a stage has several checkpoints or none.
    """
    if not os.fspath(path):
        raise UserError("The path of the checkpoint is empty; give a checkpoint, a trial, a stage, a run or zoo:NAME.")
    if is_shipped(path):
        return shipped_policy(path)
    if is_on_hub(path):
        return fetch_policy(path)
    folder = fetched(path, "checkpoint")
    if not folder.exists():
        parent = folder.parent
        near = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
        hint = did_you_mean(folder.name, near)
        if str(path) in ("random", "scripted", "stay"):
            hint = " Who plays without a checkpoint plays in `rllib crossplay random scripted --env ID`."
        raise UserError(
            f"There is no checkpoint at {str(path)!r}; give a checkpoint, a trial, a stage or a run, such as "
            f"results/verco.{hint}"
        )
    require_readable(folder)
    record = read_record(folder)
    if record is None:
        below = sorted(folder.glob(f"*/{MARKER}"), key=lambda marker: marker.stat().st_mtime) if folder.is_dir() else []
        trained = [marker.parent for marker in below if _outputs(marker.parent)]
        return find_checkpoint(trained[-1]) if trained else folder
    outputs = _outputs(folder)
    if not outputs:
        written = sorted(found for found in folder.glob("trial_*/checkpoint_*") if found.is_dir())
        remedy = f" Give one that it has written so far, such as {str(written[-1])!r}." if written else ""
        raise UserError(
            f"Stage {str(path)!r} has no finished checkpoint; it is {record.run} and {record.status}.{remedy}"
        )
    if len(outputs) > 1:
        listed = ", ".join(str(output) for output in outputs)
        raise UserError(f"Stage {str(path)!r} is a sweep with {len(outputs)} checkpoints; give one of {listed}.")
    return outputs[0]


def _outputs(stage: Path) -> list[Path]:
    """The checkpoints or the policy folder that a stage ended with."""
    record = read_record(stage)
    if record is None or record.status != "finished":
        return []
    names = {path: Path(path).name for path in record.outputs}
    return [stage / path for path, name in names.items() if "checkpoint_" in name or name == POLICY_FOLDER]
