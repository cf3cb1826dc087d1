"""Experiment files, stages, pipelines and studies."""
