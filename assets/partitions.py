"""The partitions of the lineage, all from the profile: sources, cells of the ladder, vocabularies, repetitions, checkpoints."""

import dagster as dg

from assets.profile import active_profile

PROFILE = active_profile()

SOURCES = dg.StaticPartitionsDefinition(sorted(PROFILE.sources))
CELLS = dg.StaticPartitionsDefinition(sorted(PROFILE.ladder))
VOCABULARIES = dg.StaticPartitionsDefinition(sorted(PROFILE.vocabularies))
REPEATS = dg.StaticPartitionsDefinition(sorted(PROFILE.repeats.keys if PROFILE.repeats else ()))
CHECKPOINTS = dg.StaticPartitionsDefinition(["cooldown", "hero"])
