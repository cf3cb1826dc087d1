"""The language model that a file names once, for all of its stages (`model:`)."""

from __future__ import annotations

from dataclasses import replace

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.experiments.algorithm_settings import find_algorithm
from rllib_llm_comm.experiments.experiment_file import MODEL, Experiment, ExperimentFile
from rllib_llm_comm.experiments.stages_without_tune import KINDS
from rllib_llm_comm.verco.language_config import MODEL_SETTINGS, LanguageModelConfigMixin


def with_model(file: ExperimentFile) -> ExperimentFile:
    """Gives the settings of `model:` to all stages that load a language model.

    A stage's own settings stand above them; a stage that names a `base_model` of its own takes none of them, as they
    are about another model. `evaluate` and `replay` play what the checkpoint was trained with.

    Raises:
        UserError: If a setting is unknown, or no stage loads a language model.
    """
    if not file.model:
        return file
    for name in file.model:
        if name not in MODEL_SETTINGS:
            raise UserError(
                f"`{MODEL}.{name}` is no setting of a language model; known are {', '.join(MODEL_SETTINGS)}."
                f"{did_you_mean(str(name), MODEL_SETTINGS)}"
            )
    filled, taken = {}, False
    for stage, experiment in file.experiments.items():
        known = () if "base_model" in experiment.config else _known(experiment)
        own = {key: value for key, value in file.model.items() if key in known}
        taken = taken or bool(own)
        filled[stage] = experiment.model_copy(update={"config": {**own, **experiment.config}})
    if not taken:
        raise UserError(f"`{MODEL}` means nothing to any stage of this file; remove it.")
    return replace(file, experiments=filled, model={})


def _known(experiment: Experiment) -> tuple[str, ...]:
    """Settings of a language model that a stage takes."""
    if kind := KINDS.get(experiment.run):
        return kind.model_settings
    try:
        config = find_algorithm(experiment.run).get_default_config()
    except UserError:  # told by the stage's check
        return ()
    return MODEL_SETTINGS if isinstance(config, LanguageModelConfigMixin) else ()
