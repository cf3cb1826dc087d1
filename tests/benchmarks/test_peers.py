"""The comparison with other libraries: it runs without them, says so, and refuses who computes something else."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests import forked

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


@pytest.fixture
def peers_folder(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def _load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_without_peers_it_says_who_is_skipped_and_measures_the_rest(tmp_path):
    target = tmp_path / "rows.json"
    environment = {**forked.environment(), "HF_HUB_OFFLINE": "1"}
    arguments = ("--smoke", "--json", str(target), "--environments", str(tmp_path / "none"))
    done = forked.run(FOLDER / "run.py", *arguments, cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("lamorel", "trl"):
        assert f"{name} is skipped: it is not installed" in done.stdout
    (row,) = json.loads(target.read_text())
    assert row["name"] == "peers/messages against generate"
    assert row["ours"] > 0 and row["reference"] > 0 and row["settings"]["same"] >= 0.9
    assert len(row["settings"]["not_compared"]) == 2


def test_a_batch_that_is_too_small_is_refused(tmp_path):
    done = forked.run(FOLDER / "run.py", "--decisions", "1", cwd=tmp_path)
    assert done.returncode != 0 and "`--decisions` is 1 but must be at least 2." in done.stderr


def test_the_problem_comes_back_as_written_and_its_tokens_are_those_of_its_texts(peers_folder, tmp_path):
    problem = _load("problem")
    written = problem.write_problem(tmp_path, "embedded", 4, 5)
    assert problem.read_problem(tmp_path) == written
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / problem.MODEL)
    assert len(set(written.prompts)) == 4 and all(len(set(menu)) == 5 for menu in written.candidates)
    for prompt, head, menu, tails in zip(
        written.prompts, written.prompt_ids, written.candidates, written.candidate_ids, strict=True
    ):
        for phrase, tail in zip(menu, tails, strict=True):
            assert tokenizer(f"{prompt} {phrase}")["input_ids"] == head + tail
            # lamorel tokenizes both apart, with the blank at the phrase
            apart = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, f" {phrase}")]
            assert apart[1] == tail and head[-len(apart[0]) :] == apart[0]


def test_our_scores_are_those_of_a_plain_forward_pass(peers_folder, tmp_path):
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    problem, party, parties = _load("problem"), _load("party"), _load("parties")
    compare = _load("compare")
    written = problem.write_problem(tmp_path, problem.RANDOM, 3, 4, tiny=True)
    process = parties.Process(parties.OURS, tmp_path, None, 1, tmp_path / "ours.log")
    try:
        ours = process.ask("scores")
        assert process.ask("iteration") is None
        moved = process.ask("scores")
        assert process.seconds("iteration") > 0
    finally:
        process.close()
    ids, mask, long = party.padded_rows(json.loads((tmp_path / problem.PROBLEM).read_text()), 0)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / problem.MODEL).float()
    model = peft.PeftModel.from_pretrained(base, tmp_path / problem.ACTION_ADAPTER).eval()
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(-1)
    own = logits.gather(-1, ids[:, 1:, None])[..., 0][:, -long:] * mask[:, -long:]
    plain = own.sum(1).reshape(len(written.prompts), -1).tolist()
    assert compare.require_same_scores("plain", ours, plain) < 1e-3
    assert compare.largest_difference(ours, moved) > 0  # it has learned


def test_other_numbers_are_refused(peers_folder):
    compare, parties = _load("compare"), sys.modules["parties"]
    right = [[-1.0, -2.0], [-3.0, -4.0]]
    assert compare.require_same_scores("trl", right, [[-1.0, -2.0], [-3.0, -4.0005]]) == pytest.approx(5e-4)
    for wrong in ([[-1.0, -2.0], [-3.0, -4.002]], [[-1.0, -2.0], [-3.0, float("nan")]], [[-1.0, -2.0]]):
        with pytest.raises(parties.PartyError, match="^trl is refused"):
            compare.require_same_scores("trl", right, wrong)


def test_other_words_are_refused(peers_folder):
    compare, parties = _load("compare"), sys.modules["parties"]
    assert compare.require_same_words("transformers", ["i go left"], [" i go left and then right"]) == 1
    with pytest.raises(parties.PartyError, match="transformers .*0.50"):
        compare.require_same_words("transformers", ["i go left", "wait"], ["i go left", "go on"])
    with pytest.raises(parties.PartyError, match="transformers .* 1 .* 2"):
        compare.require_same_words("transformers", ["a", "b"], ["a"])


def test_a_party_that_ends_is_told_with_its_last_words(peers_folder, tmp_path):
    parties = _load("parties")
    (tmp_path / "ends.py").write_text('raise SystemExit("there is no problem.json")')
    party = parties.Party("ours", str(tmp_path / "ends.py"), own_environment=False)
    with pytest.raises(parties.PartyError, match="ours is skipped: .*problem.json"):
        parties.Process(party, tmp_path, None, 1, tmp_path / "ours.log")


def test_what_cannot_be_installed_is_told_and_leaves_nothing(peers_folder, tmp_path, monkeypatch):
    def borrow_pip(target, with_pip):
        """In place of an environment of its own, whose pip takes seconds."""
        (target / "bin").mkdir(parents=True)
        (target / "bin" / "python").symlink_to(sys.executable)

    install = _load("install")
    monkeypatch.setattr(install.venv, "create", borrow_pip)
    assert set(install.requirements()) == {"lamorel", "trl"}
    (sentence,) = install.install(tmp_path, {"nobody": [str(tmp_path / "no_such_folder")]})
    assert sentence.startswith("nobody is not installed: pip gave up (ERROR")
    assert not (tmp_path / "nobody").exists()
